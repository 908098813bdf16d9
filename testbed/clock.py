"""Clocks that a test decides about, for everything that takes a Clock: one stands still, two go at another pace, one
leaps.

Timers of the one that stands still fire in the order of their instants and each one's consequences run before the next
fires, so that ten periods of a loop pass in one `advance` exactly as they would in life.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from paddle_operator.kube.clock import SystemClock, Timer

# Tasks wake each other through queues and locks, one turn of the event loop per hop; the longest chain in our code has
# fewer than ten hops. What waits for a socket or a process is not helped by any number of turns.
_TURNS = 50


class AcceleratedClock(SystemClock):
    """Real time, but so many times faster: for back-offs whose length matters less than what comes after them."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def monotonic(self) -> float:
        return super().monotonic() * self._speed

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return super().call_later(seconds / self._speed, callback)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._speed)


class SlowClock(AcceleratedClock):
    """Times slower, and by the wall as well: what is to be done within a second may take a while."""

    def __init__(self, times: float) -> None:
        super().__init__(1 / times)
        self._since = super().now()

    def now(self) -> datetime:
        return self._since + (super().now() - self._since) * self._speed


class OffsetTimer:
    def __init__(self, due_at: float, callback: Callable[[], None]) -> None:
        self.due_at = due_at
        self.callback = callback
        self.wait: Timer | None = None
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        if self.wait:
            self.wait.cancel()


class OffsetClock(SystemClock):
    """Real time, but a test can send it ahead: an hour passes in no time, and what falls due in it happens at once.

    The API server and its nodes stay where they are. A clock that only ran faster than theirs would be farther from
    them the longer a test takes; from this one they are as far as the leaps were.
    """

    def __init__(self, ahead: timedelta = timedelta()) -> None:
        self._ahead = ahead
        self._timers: set[OffsetTimer] = set()

    def now(self) -> datetime:
        return super().now() + self._ahead

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead.total_seconds()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> OffsetTimer:
        timer = OffsetTimer(self.monotonic() + seconds, callback)
        self._timers.add(timer)
        self._set(timer)
        return timer

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def advance(self, ahead: timedelta) -> None:
        """It is so much later."""
        self._ahead += max(ahead, timedelta())
        self._timers = {timer for timer in self._timers if not timer.cancelled}
        for timer in self._timers:
            if timer.wait:
                timer.wait.cancel()
            self._set(timer)

    def advance_to(self, instant: datetime) -> datetime:
        """It is that time; later times stay as they are.

        Answers when it became that time by real time, by which others note what they do: now, or already before the
        leap where a test was too slow for it.
        """
        became_at = min(super().now(), instant - self._ahead)
        self.advance(instant - self.now())
        return became_at

    def _set(self, timer: OffsetTimer) -> None:
        timer.wait = super().call_later(max(timer.due_at - self.monotonic(), 0.0), lambda: self._ring(timer))

    def _ring(self, timer: OffsetTimer) -> None:
        self._timers.discard(timer)
        timer.callback()


class FakeTimer:
    def __init__(self, due_at: float, callback: Callable[[], None]) -> None:
        self.due_at = due_at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """A Clock whose time is a value of the test."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._wall = start
        self._monotonic = 1000.0  # not 0: code that takes 0 for "never" must not pass by luck
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self._monotonic + max(0.0, seconds), callback)
        heapq.heappush(self._timers, (timer.due_at, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Let time pass: both clocks move, and what falls due on the way happens at its instant."""
        await run_ready_tasks()
        end = self._monotonic + seconds
        while (timer := self._pop_due(end)) is not None:
            self._move_to(timer.due_at)
            timer.callback()
            await run_ready_tasks()
        self._move_to(end)
        await run_ready_tasks()

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, forwards or back: no timer notices."""
        self._wall += timedelta(seconds=seconds)

    @property
    def pending(self) -> int:
        """How many timers and sleepers still wait."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def _pop_due(self, end: float) -> FakeTimer | None:
        while self._timers and self._timers[0][0] <= end:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                return timer
        return None

    def _move_to(self, instant: float) -> None:
        self._wall += timedelta(seconds=instant - self._monotonic)
        self._monotonic = instant


async def run_ready_tasks() -> None:
    """Return once every task that can run without outside help has run."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
