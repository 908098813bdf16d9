"""How long to wait before the next retry, so that no loop spins, however the server fails."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import KubeError

FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 10.0
RESET_AFTER_SECONDS = 10.0


Duration = TypeVar("Duration", float, timedelta)


def exponential(number: int, first: Duration, limit: Duration) -> Duration:
    """The wait before retry `number`, counted from 1: `first`, then twice as long each time, at most `limit`."""
    return min(first * (1 << min(number - 1, 30)), limit)


class Backoff:
    """Waits that double up to a limit, with jitter. Only a try that lasted `RESET_AFTER_SECONDS` resets them.

    A try that merely began well does not: a server that accepts and then disconnects would be retried at full speed.
    """

    def __init__(self, clock: Clock, jitter: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._tries = 0
        self._began_at = clock.monotonic()

    def begin(self) -> None:
        """Call at the start of each try."""
        self._began_at = self._clock.monotonic()

    async def pause(self) -> None:
        """The try has failed; return when the next one may begin. After a long one that is at once."""
        if self._clock.monotonic() - self._began_at >= RESET_AFTER_SECONDS:
            self._tries = 0
            await self._clock.sleep(0)
            return
        self._tries += 1
        limit = exponential(self._tries, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        await self._clock.sleep(limit * (0.5 + self._jitter() / 2))


async def run_when_woken(
    wake: asyncio.Event, work: Callable[[], Awaitable[None]], clock: Clock, on_error: Callable[[KubeError], None]
) -> None:
    """Run `work` after each `wake`, until cancelled. A KubeError is passed to `on_error` and retried with backoff."""
    backoff = Backoff(clock)
    while True:
        await wake.wait()
        wake.clear()
        backoff.begin()
        try:
            await work()
        except KubeError as error:
            on_error(error)
            wake.set()
            await backoff.pause()
