"""Tells people what happened, as Events beside the object; the same news again is one Event with a count.

Telling never holds up the work: `normal` and `warning` only note it, `run` sends. Too many waiting: the oldest go.
"""

import asyncio
import logging
import socket
from collections import OrderedDict
from dataclasses import dataclass, field

from paddle_operator.kube import metrics
from paddle_operator.kube.backoff import Backoff
from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock, SystemClock, Timer
from paddle_operator.kube.errors import KubeError, NotFound, Refused, ServerFault, TooManyRequests
from paddle_operator.kube.objects import EVENTS, Key, Manifest

log = logging.getLogger(__name__)

LONGEST_NOTE = 1024  # the API server's own limit
MOST_WAITING = 1000
MOST_REMEMBERED = 4096
SERIES_SECONDS = 600.0  # news that comes again within this long is the same series
RECOUNT_SECONDS = 30.0  # a series is written again at most this often


@dataclass(frozen=True)
class Reference:
    """The object that an Event is about."""

    api_version: str
    kind: str
    key: Key
    uid: str


@dataclass(frozen=True)
class _News:
    regarding: Reference
    type: str
    reason: str
    note: str
    action: str


@dataclass
class _Series:
    key: Key  # of the Event object
    count: int = 1
    told: int = 0  # how many of them the server knows
    last_at: float = 0.0
    told_at: float = field(default=float("-inf"))


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
        self._flushing = False

    def normal(self, regarding: Reference, reason: str, note: str, action: str = "Reconcile") -> None:
        self._tell(_News(regarding, "Normal", reason, note[:LONGEST_NOTE], action))

    def warning(self, regarding: Reference, reason: str, note: str, action: str = "Reconcile") -> None:
        self._tell(_News(regarding, "Warning", reason, note[:LONGEST_NOTE], action))

    def _tell(self, news: _News) -> None:
        now = self._clock.monotonic()
        series = self._series.get(news)
        if series is None or now - series.last_at > SERIES_SECONDS:
            self._series[news] = series = _Series(self._event_key(news))
        else:
            series.count += 1
        series.last_at = now
        self._series.move_to_end(news)
        self._untold[news] = None
        self._bound()
        self._news.set()

    def _bound(self) -> None:
        while len(self._untold) > MOST_WAITING:
            self._untold.popitem(last=False)
            metrics.count_dropped_event()
        while len(self._series) > MOST_REMEMBERED:
            forgotten, _ = self._series.popitem(last=False)
            self._untold.pop(forgotten, None)

    def _event_key(self, news: _News) -> Key:
        about = news.regarding.key
        moment = int(self._clock.now().timestamp() * 1e9)
        return Key(about.namespace or "default", f"{about.name[:200]}.{moment:x}{hash(news) & 0xFFFF:04x}")

    async def run(self) -> None:
        """Send what is told until cancelled; an unreachable server is waited for."""
        backoff = Backoff(self._clock)
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
            if self._timer:
                self._timer.cancel()
            if next_at is not None:
                self._timer = self._clock.call_later(max(next_at - self._clock.monotonic(), 0), self._news.set)

    async def flush(self) -> None:
        """Send all that waits, counts included, before the process ends. Raises what stands against it."""
        self._flushing = True
        await self._send_due()

    async def _send_due(self) -> float | None:
        """Send what may be sent now; the answer is when the next one may."""
        next_at: float | None = None
        for news in list(self._untold):
            series = self._series[news]
            due_at = series.told_at + RECOUNT_SECONDS
            if due_at > self._clock.monotonic() and not self._flushing:
                next_at = due_at if next_at is None else min(next_at, due_at)
                continue
            count = series.count
            await self._send(news, series)
            series.told, series.told_at = count, self._clock.monotonic()
            if series.count == count:
                self._untold.pop(news, None)
        return next_at

    async def _send(self, news: _News, series: _Series) -> None:
        """Write one Event; one that the server refuses for good is let go, it is only news."""
        try:
            if series.told:
                await self._recount(news, series)
            else:
                await self._client.create(EVENTS, self._manifest(news, series))
        except (TooManyRequests, ServerFault):
            raise
        except Refused as error:
            log.debug("the server does not want this event", extra={"key": str(news.regarding.key), "why": str(error)})

    async def _recount(self, news: _News, series: _Series) -> None:
        times = {"count": series.count, "lastObservedTime": self._micro_time()}
        try:
            await self._client.merge(EVENTS, series.key, {"series": times})
        except NotFound:  # the server keeps events for an hour
            series.key = self._event_key(news)
            await self._client.create(EVENTS, self._manifest(news, series))

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
            manifest["series"] = {"count": series.count, "lastObservedTime": self._micro_time()}
        return manifest

    def _micro_time(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
