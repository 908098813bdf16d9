"""Which key is next? client-go's work queue: a key waits once, is in one worker's hands at a time, and is not lost.

Live changes go before what a relist brings, since a person waits for them; yet one key in eight comes from the relist,
so that a busy cluster does not starve it.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

from paddle_operator.kube.backoff import exponential
from paddle_operator.kube.clock import Clock, SystemClock, Timer
from paddle_operator.kube.metrics import QueueMetrics

K = TypeVar("K", bound=Hashable)

FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 60.0
RETRIES_PER_SECOND = 50.0  # of all keys together, so that a thousand failing keys are no storm
RETRIES_AT_ONCE = 100
RELIST_SHARE = 8
SOON_SECONDS = 60.0  # who sleeps for longer waits for a deadline


class Priority(Enum):
    LIVE = "live"
    LOW = "relist"


class Closed(Exception):  # not an error: the queue was told to end
    """The queue takes and gives no more keys."""


class Queue(Generic[K]):
    """`take` a key, work on it, then `done`. A key that is added while in work comes exactly once more."""

    def __init__(self, name: str, clock: Clock | None = None, *, max_low_priority: int | None = None) -> None:
        """Of what can wait, Lane.RELIST, at most `most_patient` keys are in work at once: workers that wait for the API
        server's answers are no use to who has just come.
        """
        self._clock = clock or SystemClock()
        self._most_patient = max_low_priority
        self._patient: set[K] = set()  # keys of that lane that are in work
        self._waiting: dict[Priority, OrderedDict[K, float]] = {
            lane: OrderedDict() for lane in Priority
        }  # key -> added at
        self._in_work: dict[K, float] = {}  # key -> taken at
        self._again: dict[K, Priority] = {}
        self._timers: dict[K, tuple[float, Timer]] = {}
        self._soon: set[K] = set()  # those of them that were set for a short time
        self._failures: dict[K, int] = {}
        self._retry_slot_at = 0.0
        self._takers: deque[asyncio.Future[None]] = deque()
        self._taken = 0
        self._closed = False
        self._metrics = QueueMetrics(name, self._unfinished_seconds, self.longest_in_work_seconds)

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._waiting.values())

    @property
    def delayed(self) -> int:
        """How many keys are to be woken at a time."""
        return len(self._timers)

    def add(self, key: K, lane: Priority = Priority.LIVE) -> None:
        """Never waits. A key that waits already keeps its place, unless the new lane is faster."""
        if self._closed:
            return
        if key in self._in_work:
            if self._again.get(key) is not Priority.LIVE:
                self._again[key] = lane
            return
        live, relist = self._waiting[Priority.LIVE], self._waiting[Priority.LOW]
        if key in live or (key in relist and lane is Priority.LOW):
            return
        added_at = relist.pop(key, None)
        self._waiting[lane][key] = self._clock.monotonic() if added_at is None else added_at
        if added_at is None:
            self._metrics.adds.inc()
            self._metrics.depth.set(len(self))
        self._wake_one()

    def add_after(self, key: K, seconds: float, lane: Priority = Priority.LIVE) -> None:
        """Add the key later; of two such wishes the earlier one counts."""
        if seconds <= 0:
            self.add(key, lane)
            return
        if self._closed:
            return
        when = self._clock.monotonic() + seconds
        if earlier := self._timers.get(key):
            if earlier[0] <= when:
                if seconds <= SOON_SECONDS:
                    self._soon.add(key)  # it is this wish's timer, too: who has no deadline any more must not undo it
                return
            earlier[1].cancel()
        self._timers[key] = (when, self._clock.call_later(seconds, lambda: self._timer_rang(key, lane)))
        (self._soon.add if seconds <= SOON_SECONDS else self._soon.discard)(key)

    def cancel_add_after(self, key: K) -> None:
        """No deadline is ahead any more, though there was one: of jobs that end early, thousands would be kept in mind
        until theirs. A short time may be about something that has just happened, and stays.
        """
        if key in self._timers and key not in self._soon:
            self._timers.pop(key)[1].cancel()

    def retry(self, key: K) -> float:
        """Add the key after its own back-off and not before the queue's turn; returns the seconds until then."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = exponential(failures, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        now = self._clock.monotonic()
        self._retry_slot_at = (
            max(self._retry_slot_at, now - RETRIES_AT_ONCE / RETRIES_PER_SECOND) + 1 / RETRIES_PER_SECOND
        )
        seconds = max(seconds, self._retry_slot_at - now)
        self._metrics.retries.inc()
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """The key did well: its next failure starts the back-off anew."""
        self._failures.pop(key, None)

    async def take(self) -> K:
        """The next key, which is the caller's alone until `done`. Raises Closed."""
        while not self._closed and not self._has_one:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled():
                    self._wake_one()  # the key that we were woken for is for somebody else then
                raise
        if self._closed:
            raise Closed
        return self._hand_out()

    def done(self, key: K) -> None:
        started_at = self._in_work.pop(key)
        if key in self._patient:
            self._patient.discard(key)
            if self._waiting[Priority.LOW]:
                self._wake_one()
        self._metrics.worked.observe(self._clock.monotonic() - started_at)
        if lane := self._again.pop(key, None):
            self.add(key, lane)

    def close(self) -> None:
        """No key comes in or goes out any more; what is in work may be finished."""
        self._closed = True
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._soon.clear()
        while self._takers:
            self._wake_one()

    def longest_in_work_seconds(self) -> float:
        return max((self._clock.monotonic() - at for at in self._in_work.values()), default=0.0)

    def _unfinished_seconds(self) -> float:
        return sum(self._clock.monotonic() - at for at in self._in_work.values())

    @property
    def _has_one(self) -> bool:
        return bool(self._waiting[Priority.LIVE]) or self._has_patient

    @property
    def _has_patient(self) -> bool:
        few = self._most_patient is None or len(self._patient) < self._most_patient
        return bool(self._waiting[Priority.LOW]) and few

    def _hand_out(self) -> K:
        self._taken += 1
        live, relist = self._waiting[Priority.LIVE], self._waiting[Priority.LOW]
        patient = self._has_patient and (not live or self._taken % RELIST_SHARE == 0)
        key, added_at = (relist if patient else live).popitem(last=False)
        if patient:
            self._patient.add(key)
        now = self._in_work[key] = self._clock.monotonic()
        self._metrics.waited.observe(now - added_at)
        self._metrics.depth.set(len(self))
        return key

    def _timer_rang(self, key: K, lane: Priority) -> None:
        del self._timers[key]
        self._soon.discard(key)
        self.add(key, lane)

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
