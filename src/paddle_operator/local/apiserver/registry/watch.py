"""Tells a client what happens to the objects that it asked for, from a version on, until it has had enough."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import msgspec

from paddle_operator.kube.clock import Clock
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.registry.list import Selection
from paddle_operator.local.apiserver.registry.resource import Resource
from paddle_operator.local.apiserver.request_info import Parameters, number, truth, version
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.storage.sqlite import Store
from paddle_operator.local.apiserver.storage.watch_cache import Change, Forgotten

CHANGES_A_TURN = 100  # at most this much is written at once, and held in memory for a client that does not read
BOOKMARK_SECONDS = 45.0
LONGEST_SECONDS = (1800, 3600)  # as kube-apiserver: so long where the client does not say

Form = Callable[[bytes], bytes]
"""Makes of an object's JSON what the client wants to see of it: the object itself, or a table with its row."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Wish:
    """What a watch was asked for."""

    selection: Selection
    since: int  # 0 begins with every object that there is
    initial: bool = False  # and ends those with a bookmark
    bookmarks: bool = False
    seconds: float = float(LONGEST_SECONDS[0])


def wish_of(selection: Selection, parameters: Parameters) -> Wish:
    """Raises Refusal."""
    since = version(parameters.get("resourceVersion", ""))
    wants_initial = truth(parameters, "sendInitialEvents")
    if "sendInitialEvents" in parameters and not wants_initial and not since:
        since = -1  # from now on, and nothing of what is there
    return Wish(
        selection,
        0 if wants_initial else since,
        initial=wants_initial,
        bookmarks=truth(parameters, "allowWatchBookmarks"),
        seconds=float(number(parameters, "timeoutSeconds") or 0) or random.uniform(*LONGEST_SECONDS),  # noqa: S311
    )


class Watch:
    """One client's place in the history of a kind. `lines` ends when time is up, or on `end`."""

    def __init__(self, store: Store, resource: Resource, wish: Wish, form: Form, clock: Clock) -> None:
        """Raises Refusal where the version is no longer kept."""
        self._store = store
        self._resource = resource
        self._wish = wish
        self._form = form
        self._clock = clock
        self._news = asyncio.Event()
        self._ended = False
        self._bookmark_due = False
        self._first = list(self._initial()) if wish.since == 0 else []
        try:
            history = resource.table.history
            self._place = history.place_after(wish.since) if wish.since > 0 else history.end
        except Forgotten:
            floor = resource.table.history.floor
            raise api_errors.expired(f"too old resource version: {wish.since} ({floor})") from None

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """Some lines at a time, each a change as JSON."""
        table, clock = self._resource.table, self._clock
        timers = [clock.call_later(self._wish.seconds, self.end)]
        table.listeners.add(self._news.set)
        if self._wish.bookmarks:
            timers.append(clock.call_later(BOOKMARK_SECONDS, self._remind))
        try:
            for start in range(0, len(self._first), CHANGES_A_TURN):
                yield b"".join(self._first[start : start + CHANGES_A_TURN])
            self._first = []
            while not self._ended:
                try:
                    changes = table.history.read(self._place, CHANGES_A_TURN)
                except Forgotten:
                    return  # too slow: it comes back, and hears there that it must list again
                self._place += len(changes)
                if told := b"".join([line for change in changes if (line := self._line(change))]):
                    yield told
                if changes:
                    continue
                if self._bookmark_due:
                    self._bookmark_due = False
                    timers[1] = clock.call_later(BOOKMARK_SECONDS, self._remind)
                    yield self._bookmark(self._store.version)
                    continue
                self._news.clear()
                await self._news.wait()
        finally:
            table.listeners.discard(self._news.set)
            for timer in timers:
                timer.cancel()

    def _remind(self) -> None:
        self._bookmark_due = True
        self._news.set()

    def _initial(self) -> Iterator[bytes]:
        for record in self._resource.table.in_order():
            if self._wish.selection.has(record):
                yield self._told("ADDED", self._resource.body(record))
        if self._wish.initial and self._wish.bookmarks:
            yield self._bookmark(self._store.version, {"k8s.io/initial-events-end": "true"})

    def _line(self, change: Change) -> bytes:
        """Empty where the client did not ask for this object. One that begins or ceases to fit comes or goes."""
        if change.version <= self._wish.since:
            return b""
        has = self._wish.selection.has
        before = change.old is not None and has(change.old)
        now = not change.deleted and has(change.new)
        if now:
            return self._told("MODIFIED" if before else "ADDED", self._resource.body(change.new))
        if not before:
            return b""
        return self._told("DELETED", self._last_state(change))

    def _last_state(self, change: Change) -> bytes:
        """What the client knew of it, under the version of the change that took it away."""
        if change.deleted or change.old is None:
            return self._resource.body(change.new)
        manifest = self._resource.manifest(change.old)
        manifest["metadata"]["resourceVersion"] = str(change.version)
        return _encode(manifest)

    def _told(self, type_: str, body: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), self._form(body))

    def _bookmark(self, at: int, annotations: Manifest | None = None) -> bytes:
        kind = self._resource.kind
        metadata: Manifest = {"resourceVersion": str(at)}
        if annotations:
            metadata["annotations"] = annotations
        body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":%b}\n' % _encode(body)
