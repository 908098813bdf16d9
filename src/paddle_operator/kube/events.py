"""Tells people what happened, as Events beside the object; the same news again is one Event with a count.

Telling never holds up the work: `normal` and `warning` only note it, `run` sends. Too many waiting: the oldest go.
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

LONGEST_NOTE_BYTES = 1024  # the API server's own limit, and it counts bytes
MOST_WAITING = 1000
MOST_REMEMBERED = 1024  # 0.8 kB each
PATIENCE_SECONDS = 1.0
RECOUNT_SECONDS = 30.0  # a series is written again at most this often


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an Event is about."""

    api_version: str
    kind: str
    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class _News:
    regarding: Reference
    type: str
    reason: str
    note: str
    action: str


@dataclass(slots=True)
class _Series:
    key: Key  # of the Event object
    count: int = 1
    told: int = 0  # how many of them the server knows
    told_at: float = field(default=float("-inf"))
    sending: bool = False


class Recorder:
    def __init__(self, client: Client, *, reporter: str, clock: Clock | None = None) -> None:
        self._client = client
        self._reporter = reporter
        self._instance = f"{reporter}-{socket.gethostname()}"[:128]
        self._clock = clock or SystemClock()
        self._series: OrderedDict[_News, _Series] = OrderedDict()
        self._untold: OrderedDict[_News, None] = OrderedDict()
        self._news = asyncio.Event()
        self._timer: Timer | None = None
        self._one_at_a_time = asyncio.Lock()  # a flush while `run` is in the middle of a series would write it twice
        self._flushing = False

    def normal(self, regarding: Reference, reason: str, note: str, action: str = "Reconcile") -> None:
        self._note(_News(regarding, "Normal", reason, _cut(note), action))

    def warning(self, regarding: Reference, reason: str, note: str, action: str = "Reconcile") -> None:
        self._note(_News(regarding, "Warning", reason, _cut(note), action))

    async def tell(self, regarding: Reference, reason: str, note: str, *, warning: bool = False) -> None:
        """Return when the server has the news, so that what is written next cannot outlive it in a crash.

        A server that does not take it within a second is not waited for: `run` goes on trying.
        """
        news = _News(regarding, "Warning" if warning else "Normal", reason, _cut(note), "Reconcile")
        self._note(news)
        series = self._series[news]
        if series.told or series.sending:
            return  # it is known already; the count follows
        series.sending = True  # already now: `run` has heard of it, too
        try:
            await within(self._clock, PATIENCE_SECONDS, self._send(news, series))
        except (KubeError, TimeoutError) as error:
            log.debug("could not send an event at once", extra={"why": str(error) or "no answer"})
            self._news.set()
        finally:
            series.sending = False

    def _note(self, news: _News) -> None:
        series = self._series.get(news)
        if series is None:
            self._series[news] = _Series(_event_key(news))
        else:
            series.count += 1
        self._series.move_to_end(news)
        self._untold[news] = None
        self._bound()
        self._news.set()

    def _bound(self) -> None:
        while len(self._untold) > MOST_WAITING:
            self._drop(next(iter(self._untold)))
        while len(self._series) > MOST_REMEMBERED:
            forgotten, _ = self._series.popitem(last=False)
            if forgotten in self._untold:
                self._drop(forgotten)

    def _drop(self, news: _News) -> None:
        del self._untold[news]
        metrics.count_dropped_event()

    async def run(self) -> None:
        """Send what is told until cancelled; an unreachable server is waited for."""
        backoff = Backoff(self._clock)
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                backoff.begin()
                try:
                    next_at = await self._send_due()
                except KubeError as error:
                    log.debug("could not send events, trying again", extra={"why": str(error)})
                    await backoff.pause()
                    self._news.set()
                    continue
                backoff = Backoff(self._clock)  # everything is sent: the next trouble is another one
                self._wake_at(next_at)
        finally:
            self._wake_at(None)

    async def flush(self) -> None:
        """Send all that waits, counts included, before the process ends. Raises what stands against it."""
        self._flushing = True
        await self._send_due()

    def _wake_at(self, instant: float | None) -> None:
        if self._timer:
            self._timer.cancel()
        wait = None if instant is None else max(instant - self._clock.monotonic(), 0)
        self._timer = None if wait is None else self._clock.call_later(wait, self._news.set)

    async def _send_due(self) -> float | None:
        """Send what may be sent now; the answer is when the next one may."""
        next_at: float | None = None
        async with self._one_at_a_time:
            for news in list(self._untold):
                if news not in self._untold:  # dropped while another one was on its way
                    continue
                series = self._series[news]
                if series.sending:
                    continue
                due_at = series.told_at + RECOUNT_SECONDS
                if due_at > self._clock.monotonic() and not self._flushing:
                    next_at = due_at if next_at is None else min(next_at, due_at)
                    continue
                await self._send(news, series)
        return next_at

    async def _send(self, news: _News, series: _Series) -> None:
        """Write one Event; one that the server refuses for good is let go, it is only news."""
        count, series.sending = series.count, True
        try:
            await (self._recount(news, series) if series.told else self._create(news, series))
            series.told = count
        except (TooManyRequests, ServerFault, Unauthorized):
            if news in self._untold:
                self._untold.move_to_end(news)  # the trouble may be with this one alone: the others have their turn
            raise
        except APIStatusError as error:
            log.debug("the server does not want this event", extra={"key": str(news.regarding.key), "why": str(error)})
        finally:
            series.sending = False
        series.told_at = self._clock.monotonic()
        if series.count == count:
            self._untold.pop(news, None)

    async def _create(self, news: _News, series: _Series) -> None:
        try:
            await self._client.create(EVENTS, self._manifest(news, series))
        except AlreadyExists:  # the answer to an earlier try was lost, or an earlier process told it
            if series.count > 1:
                await self._client.merge(EVENTS, series.key, {"series": self._count_of(series)})

    async def _recount(self, news: _News, series: _Series) -> None:
        try:
            await self._client.merge(EVENTS, series.key, {"series": self._count_of(series)})
        except NotFound:  # the server keeps events for an hour
            series.told = 0
            await self._create(news, series)

    def _count_of(self, series: _Series) -> Manifest:
        return {"count": series.count, "lastObservedTime": self._micro_time()}

    def _manifest(self, news: _News, series: _Series) -> Manifest:
        about = news.regarding
        manifest = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.key.name, "namespace": series.key.namespace},
            "eventTime": self._micro_time(),
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
            "type": news.type,
            "reason": news.reason,
            "note": news.note,
            "action": news.action,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.key.namespace,
                "name": about.key.name,
                "uid": about.uid,
            },
        }
        if series.count > 1:
            manifest["series"] = self._count_of(series)
        return manifest

    def _micro_time(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _event_key(news: _News) -> Key:
    """The same news has the same name: a process that is started again after a crash does not tell it twice."""
    about = news.regarding.key
    text = "\n".join((news.regarding.uid, news.type, news.reason, news.action, news.note))
    stem = about.name[:200].rstrip("-.")  # a name of Kubernetes has no part that ends with a dash
    return Key(about.namespace or "default", f"{stem}.{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def _cut(note: str) -> str:
    """The note, or as much of its beginning as an Event can hold."""
    whole = note.encode(errors="replace")
    if len(whole) <= LONGEST_NOTE_BYTES:
        return whole.decode()
    return whole[: LONGEST_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"
