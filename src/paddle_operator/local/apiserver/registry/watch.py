"""Which events does a watch send? The changes of the selected objects from a version on, until its timeout."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import msgspec

from paddle_operator.kube.clock import Clock
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.registry.list import Selection
from paddle_operator.local.apiserver.registry.resource import APIResource
from paddle_operator.local.apiserver.request_info import Parameters, parse_bool, parse_int, parse_version
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.storage.sqlite import ObjectStore
from paddle_operator.local.apiserver.storage.watch_cache import HistoryExpired, ObjectChange

MAX_CHANGES_PER_WRITE = 100  # also the limit of what is buffered for a client that does not read
BOOKMARK_SECONDS = 45.0
DEFAULT_TIMEOUT_SECONDS = (1800, 3600)  # a random value between these, as in kube-apiserver

Render = Callable[[bytes], bytes]
"""Converts an object's JSON to the requested representation: the object or a Table with its row."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class WatchRequest:
    selection: Selection
    since: int  # 0 starts with all existing objects, -1 with the next change
    send_initial_events: bool = False  # and a bookmark after them
    allow_bookmarks: bool = False
    timeout_seconds: float = float(DEFAULT_TIMEOUT_SECONDS[0])


def parse_watch_request(selection: Selection, parameters: Parameters) -> WatchRequest:
    """Raises StatusError."""
    since = parse_version(parameters.get("resourceVersion", ""))
    send_initial = parse_bool(parameters, "sendInitialEvents")
    if "sendInitialEvents" in parameters and not send_initial and not since:
        since = -1
    timeout = parse_int(parameters, "timeoutSeconds")
    return WatchRequest(
        selection,
        0 if send_initial else since,
        send_initial_events=send_initial,
        allow_bookmarks=parse_bool(parameters, "allowWatchBookmarks"),
        timeout_seconds=float(timeout or random.uniform(*DEFAULT_TIMEOUT_SECONDS)),  # noqa: S311
    )


class Watch:
    """One client's position in the history of a kind. `lines` ends at the timeout or after `end`."""

    def __init__(
        self, store: ObjectStore, resource: APIResource, request: WatchRequest, render: Render, clock: Clock
    ) -> None:
        """Raises StatusError if the version is no longer in the history."""
        self._store = store
        self._resource = resource
        self._request = request
        self._render = render
        self._clock = clock
        self._wakeup = asyncio.Event()
        self._ended = False
        self._bookmark_due = False
        self._initial_lines = list(self._list_initial()) if request.since == 0 else []
        try:
            history = resource.table.history
            self._position = history.position_after(request.since) if request.since > 0 else history.end
        except HistoryExpired:
            floor = resource.table.history.floor
            raise api_errors.expired(f"too old resource version: {request.since} ({floor})") from None

    def end(self) -> None:
        self._ended = True
        self._wakeup.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """Chunks of lines, each a watch event as JSON."""
        table, clock = self._resource.table, self._clock
        timers = [clock.call_later(self._request.timeout_seconds, self.end)]
        table.listeners.add(self._wakeup.set)
        if self._request.allow_bookmarks:
            timers.append(clock.call_later(BOOKMARK_SECONDS, self._request_bookmark))
        try:
            for start in range(0, len(self._initial_lines), MAX_CHANGES_PER_WRITE):
                yield b"".join(self._initial_lines[start : start + MAX_CHANGES_PER_WRITE])
            self._initial_lines = []
            while not self._ended:
                try:
                    changes = table.history.read(self._position, MAX_CHANGES_PER_WRITE)
                except HistoryExpired:
                    return  # too slow: the client reconnects, gets 410 and lists again
                self._position += len(changes)
                if lines := b"".join([line for change in changes if (line := self._event_line(change))]):
                    yield lines
                if changes:
                    continue
                if self._bookmark_due:
                    self._bookmark_due = False
                    timers[1] = clock.call_later(BOOKMARK_SECONDS, self._request_bookmark)
                    yield self._bookmark(self._store.version)
                    continue
                self._wakeup.clear()
                await self._wakeup.wait()
        finally:
            table.listeners.discard(self._wakeup.set)
            for timer in timers:
                timer.cancel()

    def _request_bookmark(self) -> None:
        self._bookmark_due = True
        self._wakeup.set()

    def _list_initial(self) -> Iterator[bytes]:
        for record in self._resource.table.in_order():
            if self._request.selection.matches(record):
                yield self._format("ADDED", self._resource.body(record))
        if self._request.send_initial_events and self._request.allow_bookmarks:
            yield self._bookmark(self._store.version, {"k8s.io/initial-events-end": "true"})

    def _event_line(self, change: ObjectChange) -> bytes:
        """Empty if the object is not selected. One that starts or stops matching is ADDED or DELETED."""
        if change.version <= self._request.since:
            return b""
        matches = self._request.selection.matches
        matched_before = change.old is not None and matches(change.old)
        if not change.deleted and matches(change.new):
            return self._format("MODIFIED" if matched_before else "ADDED", self._resource.body(change.new))
        if not matched_before:
            return b""
        return self._format("DELETED", self._last_state(change))

    def _last_state(self, change: ObjectChange) -> bytes:
        """The last state that matched, under the version of the change that removed it."""
        if change.deleted or change.old is None:
            return self._resource.body(change.new)
        manifest = self._resource.manifest(change.old)
        manifest["metadata"]["resourceVersion"] = str(change.version)
        return _encode(manifest)

    def _format(self, event_type: str, body: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (event_type.encode(), self._render(body))

    def _bookmark(self, version: int, annotations: Manifest | None = None) -> bytes:
        kind = self._resource.kind
        metadata: Manifest = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = annotations
        body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":%b}\n' % _encode(body)
