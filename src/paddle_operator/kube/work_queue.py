"""client-go's work queue: a key waits once, is processed by one worker at a time, and is not lost.

Keys of high priority go first, since a user waits for them. One key in eight is still of low priority, so that a busy
cluster does not starve those.
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

FIRST_REQUEUE_SECONDS = 0.05
MAX_REQUEUE_SECONDS = 60.0
RETRIES_PER_SECOND = 50.0  # of all keys together: a thousand failing keys must not flood the API server
RETRY_BURST = 100
LOW_PRIORITY_SHARE = 8  # one key in so many is of low priority
SHORT_DELAY_SECONDS = 60.0  # a longer delay is a deadline


class Priority(Enum):
    LIVE = "live"
    LOW = "low"


class Closed(Exception):  # not an error
    """The queue was closed: it neither takes nor gives keys."""


class Queue(Generic[K]):
    """`take` a key, process it, then call `done`. A key that is added meanwhile is processed exactly once more."""

    def __init__(self, name: str, clock: Clock | None = None, *, max_low_priority: int | None = None) -> None:
        """At most `max_low_priority` keys of low priority are processed at once.

        Otherwise all workers could wait for the API server with such keys, and none be free for high priority.
        """
        self._clock = clock or SystemClock()
        self._max_low_priority = max_low_priority
        self._low_in_work: set[K] = set()
        # key -> added at
        self._waiting: dict[Priority, OrderedDict[K, float]] = {priority: OrderedDict() for priority in Priority}
        self._in_work: dict[K, float] = {}  # key -> taken at
        self._dirty: dict[K, Priority] = {}  # added while in work
        self._timers: dict[K, tuple[float, Timer]] = {}
        self._short_delays: set[K] = set()  # keys of timers that cancel_add_after() must not cancel
        self._failures: dict[K, int] = {}
        self._retry_slot_at = 0.0
        self._takers: deque[asyncio.Future[None]] = deque()
        self._taken = 0
        self._closed = False
        self._metrics = QueueMetrics(name, self._unfinished_seconds, self.longest_in_work_seconds)

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._waiting.values())

    def add(self, key: K, priority: Priority = Priority.LIVE) -> None:
        """Never blocks. A key that already waits keeps its position, unless the new priority is higher."""
        if self._closed:
            return
        if key in self._in_work:
            if self._dirty.get(key) is not Priority.LIVE:
                self._dirty[key] = priority
            return
        live, low = self._waiting[Priority.LIVE], self._waiting[Priority.LOW]
        if key in live or (key in low and priority is Priority.LOW):
            return
        added_at = low.pop(key, None)
        self._waiting[priority][key] = self._clock.monotonic() if added_at is None else added_at
        if added_at is None:
            self._metrics.adds.inc()
            self._metrics.depth.set(len(self))
        self._wake_one()

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.LIVE) -> None:
        """Add the key later; of two delays the one that ends earlier counts."""
        if seconds <= 0:
            self.add(key, priority)
            return
        if self._closed:
            return
        when = self._clock.monotonic() + seconds
        if earlier := self._timers.get(key):
            if earlier[0] <= when:
                if seconds <= SHORT_DELAY_SECONDS:
                    self._short_delays.add(key)  # this short delay shares the earlier timer
                return
            earlier[1].cancel()
        self._timers[key] = (when, self._clock.call_later(seconds, lambda: self._timer_fired(key, priority)))
        (self._short_delays.add if seconds <= SHORT_DELAY_SECONDS else self._short_delays.discard)(key)

    def cancel_add_after(self, key: K) -> None:
        """Cancel a delayed add that is not needed any more: finished objects hold no timer until their old deadline.

        Delays up to SHORT_DELAY_SECONDS stay: they may be about something that has just happened.
        """
        if key in self._timers and key not in self._short_delays:
            self._timers.pop(key)[1].cancel()

    def retry(self, key: K) -> float:
        """Add the key after its own backoff, within the queue's retry rate; returns the seconds until then."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = exponential(failures, FIRST_REQUEUE_SECONDS, MAX_REQUEUE_SECONDS)
        now = self._clock.monotonic()
        self._retry_slot_at = max(self._retry_slot_at, now - RETRY_BURST / RETRIES_PER_SECOND) + 1 / RETRIES_PER_SECOND
        seconds = max(seconds, self._retry_slot_at - now)
        self._metrics.retries.inc()
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """The key was processed without error: reset its backoff."""
        self._failures.pop(key, None)

    async def take(self) -> K:
        """The next key; no other worker gets it until `done`. Raises Closed."""
        while not self._closed and not self._has_next:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled():
                    self._wake_one()  # another worker takes the key that this one was woken for
                raise
        if self._closed:
            raise Closed
        return self._pop()

    def done(self, key: K) -> None:
        started_at = self._in_work.pop(key)
        if key in self._low_in_work:
            self._low_in_work.discard(key)
            if self._waiting[Priority.LOW]:
                self._wake_one()
        self._metrics.worked.observe(self._clock.monotonic() - started_at)
        if priority := self._dirty.pop(key, None):
            self.add(key, priority)

    def close(self) -> None:
        """Take and give no more keys; those in work may be finished."""
        self._closed = True
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._short_delays.clear()
        while self._takers:
            self._wake_one()

    def longest_in_work_seconds(self) -> float:
        return max((self._clock.monotonic() - at for at in self._in_work.values()), default=0.0)

    def _unfinished_seconds(self) -> float:
        return sum(self._clock.monotonic() - at for at in self._in_work.values())

    @property
    def _has_next(self) -> bool:
        return bool(self._waiting[Priority.LIVE]) or self._has_low_priority

    @property
    def _has_low_priority(self) -> bool:
        is_below_limit = self._max_low_priority is None or len(self._low_in_work) < self._max_low_priority
        return bool(self._waiting[Priority.LOW]) and is_below_limit

    def _pop(self) -> K:
        self._taken += 1
        live, low = self._waiting[Priority.LIVE], self._waiting[Priority.LOW]
        is_low = self._has_low_priority and (not live or self._taken % LOW_PRIORITY_SHARE == 0)
        key, added_at = (low if is_low else live).popitem(last=False)
        if is_low:
            self._low_in_work.add(key)
        now = self._in_work[key] = self._clock.monotonic()
        self._metrics.waited.observe(now - added_at)
        self._metrics.depth.set(len(self))
        return key

    def _timer_fired(self, key: K, priority: Priority) -> None:
        del self._timers[key]
        self._short_delays.discard(key)
        self.add(key, priority)

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return
