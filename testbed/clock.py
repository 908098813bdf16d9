"""Clocks for tests: FakeClock stands still, AcceleratedClock and SlowClock scale real time, OffsetClock is set ahead.

The timers of a FakeClock fire in the order of their due times, and the tasks that one wakes run before the next fires:
ten periods of a loop in one `advance` run as in real time.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from paddle_operator.kube.clock import SystemClock, Timer

# Tasks wake each other through queues and locks, one turn of the event loop per hop; the longest chain in our code has
# fewer than ten hops. A task that waits for a socket or a process needs more than turns.
_LOOP_TURNS = 50


class AcceleratedClock(SystemClock):
    """Real time, `speed` times faster: for back-offs whose length is not tested."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def monotonic(self) -> float:
        return super().monotonic() * self._speed

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return super().call_later(seconds / self._speed, callback)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._speed)


class SlowClock(AcceleratedClock):
    """Real time, `times` slower, for timers and for `now`: a deadline of a second leaves more real time."""

    def __init__(self, times: float) -> None:
        super().__init__(1 / times)
        self._since = super().now()

    def now(self) -> datetime:
        return self._since + (super().now() - self._since) * self._speed


class OffsetTimer:
    def __init__(self, due_at: float, callback: Callable[[], None]) -> None:
        self.due_at = due_at
        self.callback = callback
        self.handle: Timer | None = None
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        if self.handle:
            self.handle.cancel()


class OffsetClock(SystemClock):
    """Real time plus an offset. `advance` increases the offset, and timers that become due fire at once.

    The API server and its nodes keep real time. The difference to an accelerated clock would grow with the duration of
    the test; here it is the sum of the advances.
    """

    def __init__(self, offset: timedelta = timedelta()) -> None:
        self._ahead = offset
        self._timers: set[OffsetTimer] = set()

    def now(self) -> datetime:
        return super().now() + self._ahead

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead.total_seconds()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> OffsetTimer:
        timer = OffsetTimer(self.monotonic() + seconds, callback)
        self._timers.add(timer)
        self._schedule(timer)
        return timer

    async def sleep(self, seconds: float) -> None:
        elapsed = asyncio.Event()
        timer = self.call_later(seconds, elapsed.set)
        try:
            await elapsed.wait()
        finally:
            timer.cancel()

    def advance(self, offset: timedelta) -> None:
        """Increase the offset."""
        self._ahead += max(offset, timedelta())
        self._timers = {timer for timer in self._timers if not timer.cancelled}
        for timer in self._timers:
            if timer.handle:
                timer.handle.cancel()
            self._schedule(timer)

    def advance_to(self, instant: datetime) -> datetime:
        """Advance to an instant, unless it has passed.

        Returns the real time at which this clock reached the instant: now, or earlier if the test was too slow.
        """
        reached_at = min(super().now(), instant - self._ahead)
        self.advance(instant - self.now())
        return reached_at

    def _schedule(self, timer: OffsetTimer) -> None:
        timer.handle = super().call_later(max(timer.due_at - self.monotonic(), 0.0), lambda: self._fire(timer))

    def _fire(self, timer: OffsetTimer) -> None:
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
    """A clock that only `advance` moves."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._wall = start
        self._monotonic = 1000.0  # not 0: code that confuses 0 with "never" must fail
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
        elapsed = asyncio.Event()
        timer = self.call_later(seconds, elapsed.set)
        try:
            await elapsed.wait()
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Advance both clocks; each timer on the way fires at its due time."""
        await run_ready_tasks()
        end = self._monotonic + seconds
        while (timer := self._pop_due(end)) is not None:
            self._move_to(timer.due_at)
            timer.callback()
            await run_ready_tasks()
        self._move_to(end)
        await run_ready_tasks()

    def step_wall_clock(self, seconds: float) -> None:
        """Set the wall clock forwards or back; timers do not depend on it."""
        self._wall += timedelta(seconds=seconds)

    @property
    def pending(self) -> int:
        """The number of pending timers and sleeps."""
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
    """Return once every task that can run without I/O has run."""
    for _ in range(_LOOP_TURNS):
        await asyncio.sleep(0)
