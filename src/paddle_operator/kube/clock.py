"""Wall time, monotonic time and timers behind one interface, which tests replace by a fake.

Wall time is only written into objects: it may jump. Durations are measured on a clock that also runs while the machine
is suspended, since a lease expires meanwhile.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time in UTC."""

    def monotonic(self) -> float:
        """Seconds since a fixed moment; never decreases."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    _source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(self._source)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def within(clock: Clock, seconds: float, work: Coroutine[object, object, Result]) -> Result:
    """The result of `work`. Raises TimeoutError after `work` was cancelled and has ended."""
    task = asyncio.ensure_future(work)
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = task.cancel()

    timer = clock.call_later(max(seconds, 0), expire)
    try:
        return await task
    except asyncio.CancelledError:
        if not expired:
            raise
        raise TimeoutError from None
    finally:
        timer.cancel()
        task.cancel()
