"""Records Kubernetes Events; an event that happens again is one Event with a count.

Recording never blocks: `normal` and `warning` only queue the event, `run` sends it. If too many wait, the oldest are
dropped.
"""

import asyncio
import hashlib
import logging
import socket
from collections import OrderedDict
from dataclasses import dataclass, field

from paddle_operator.kube import metrics
from paddle_operator.kube.backoff import Backoff
from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock, SystemClock, Timer, within
from paddle_operator.kube.errors import (
    AlreadyExists,
    APIStatusError,
    KubeError,
    NotFound,
    ServerFault,
    TooManyRequests,
    Unauthorized,
)
from paddle_operator.kube.objects import EVENTS, Key, Manifest

log = logging.getLogger(__name__)

MAX_NOTE_BYTES = 1024  # the API server's limit, in bytes
MAX_PENDING = 1000
MAX_SERIES = 1024  # 0.8 kB each
SEND_SECONDS = 1.0  # how long `emit` waits
SERIES_SECONDS = 30.0  # the count of a series is written at most this often


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an Event is about."""

    api_version: str
    kind: str
    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class _Event:
    regarding: ObjectReference
    type: str
    reason: str
    note: str
    action: str


@dataclass(slots=True)
class _Series:
    key: Key  # of the Event object
    count: int = 1
    written: int = 0  # the count that the server has
    written_at: float = field(default=float("-inf"))
    sending: bool = False


class Recorder:
    def __init__(self, client: Client, *, reporter: str, clock: Clock | None = None) -> None:
        self._client = client
        self._reporter = reporter
        self._instance = f"{reporter}-{socket.gethostname()}"[:128]
        self._clock = clock or SystemClock()
        self._series: OrderedDict[_Event, _Series] = OrderedDict()
        self._pending: OrderedDict[_Event, None] = OrderedDict()
        self._wake = asyncio.Event()
        self._timer: Timer | None = None
        self._sending = asyncio.Lock()  # a flush beside `run` would write a series twice
        self._flushing = False

    def normal(self, regarding: ObjectReference, reason: str, note: str, action: str = "Reconcile") -> None:
        self._queue(_Event(regarding, "Normal", reason, _truncate(note), action))

    def warning(self, regarding: ObjectReference, reason: str, note: str, action: str = "Reconcile") -> None:
        self._queue(_Event(regarding, "Warning", reason, _truncate(note), action))

    async def emit(self, regarding: ObjectReference, reason: str, note: str, *, warning: bool = False) -> None:
        """Return when the server has the event, so that what is written next cannot survive a crash without it.

        A server that does not respond within a second is not waited for: `run` retries.
        """
        event = _Event(regarding, "Warning" if warning else "Normal", reason, _truncate(note), "Reconcile")
        self._queue(event)
        series = self._series[event]
        if series.written or series.sending:
            return  # it is written already; the count follows
        series.sending = True  # set already here: `run` is awake, too
        try:
            await within(self._clock, SEND_SECONDS, self._send(event, series))
        except (KubeError, TimeoutError) as error:
            log.debug("event not sent at once; queued", extra={"error": str(error) or "timed out"})
            self._wake.set()
        finally:
            series.sending = False

    def _queue(self, event: _Event) -> None:
        series = self._series.get(event)
        if series is None:
            self._series[event] = _Series(_event_key(event))
        else:
            series.count += 1
        self._series.move_to_end(event)
        self._pending[event] = None
        self._drop_oldest()
        self._wake.set()

    def _drop_oldest(self) -> None:
        while len(self._pending) > MAX_PENDING:
            self._drop(next(iter(self._pending)))
        while len(self._series) > MAX_SERIES:
            oldest, _ = self._series.popitem(last=False)
            if oldest in self._pending:
                self._drop(oldest)

    def _drop(self, event: _Event) -> None:
        del self._pending[event]
        metrics.count_dropped_event()

    async def run(self) -> None:
        """Send queued events until cancelled; retries while the server is unreachable."""
        backoff = Backoff(self._clock)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                backoff.begin()
                try:
                    next_at = await self._send_due()
                except KubeError as error:
                    log.debug("cannot send events; retrying", extra={"error": str(error)})
                    await backoff.pause()
                    self._wake.set()
                    continue
                backoff = Backoff(self._clock)  # all are sent: the next error starts again
                self._wake_at(next_at)
        finally:
            self._wake_at(None)

    async def flush(self) -> None:
        """Send all pending events and counts before the process ends. Raises KubeError."""
        self._flushing = True
        await self._send_due()

    def _wake_at(self, instant: float | None) -> None:
        if self._timer:
            self._timer.cancel()
        wait = None if instant is None else max(instant - self._clock.monotonic(), 0)
        self._timer = None if wait is None else self._clock.call_later(wait, self._wake.set)

    async def _send_due(self) -> float | None:
        """Send what is due now; returns when the next one is."""
        next_at: float | None = None
        async with self._sending:
            for event in list(self._pending):
                if event not in self._pending:  # dropped while another one was sent
                    continue
                series = self._series[event]
                if series.sending:
                    continue
                due_at = series.written_at + SERIES_SECONDS
                if due_at > self._clock.monotonic() and not self._flushing:
                    next_at = due_at if next_at is None else min(next_at, due_at)
                    continue
                await self._send(event, series)
        return next_at

    async def _send(self, event: _Event, series: _Series) -> None:
        """Write one Event; one that the server refuses permanently is dropped."""
        count, series.sending = series.count, True
        try:
            await (self._update_count(event, series) if series.written else self._create(event, series))
            series.written = count
        except (TooManyRequests, ServerFault, Unauthorized):
            if event in self._pending:
                self._pending.move_to_end(event)  # the error may be about this one alone: try the others first
            raise
        except APIStatusError as error:
            log.debug("event refused; dropped", extra={"key": str(event.regarding.key), "error": str(error)})
        finally:
            series.sending = False
        series.written_at = self._clock.monotonic()
        if series.count == count:
            self._pending.pop(event, None)

    async def _create(self, event: _Event, series: _Series) -> None:
        try:
            await self._client.create(EVENTS, self._manifest(event, series))
        except AlreadyExists:  # the response to an earlier try was lost, or an earlier process wrote it
            if series.count > 1:
                await self._client.merge(EVENTS, series.key, {"series": self._series_field(series)})

    async def _update_count(self, event: _Event, series: _Series) -> None:
        try:
            await self._client.merge(EVENTS, series.key, {"series": self._series_field(series)})
        except NotFound:  # the server keeps events for an hour
            series.written = 0
            await self._create(event, series)

    def _series_field(self, series: _Series) -> Manifest:
        return {"count": series.count, "lastObservedTime": self._micro_time()}

    def _manifest(self, event: _Event, series: _Series) -> Manifest:
        about = event.regarding
        manifest = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.key.name, "namespace": series.key.namespace},
            "eventTime": self._micro_time(),
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
            "type": event.type,
            "reason": event.reason,
            "note": event.note,
            "action": event.action,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.key.namespace,
                "name": about.key.name,
                "uid": about.uid,
            },
        }
        if series.count > 1:
            manifest["series"] = self._series_field(series)
        return manifest

    def _micro_time(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _event_key(event: _Event) -> Key:
    """An equal event has an equal name: a process restarted after a crash does not write it twice."""
    about = event.regarding.key
    text = "\n".join((event.regarding.uid, event.type, event.reason, event.action, event.note))
    stem = about.name[:200].rstrip("-.")  # no part of a Kubernetes name may end with a dash
    return Key(about.namespace or "default", f"{stem}.{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def _truncate(note: str) -> str:
    """As much of the note as an Event may have."""
    encoded = note.encode(errors="replace")
    if len(encoded) <= MAX_NOTE_BYTES:
        return encoded.decode()
    return encoded[: MAX_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"
