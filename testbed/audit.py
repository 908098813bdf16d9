"""Who has sent which writes to the API server between two moments? The API server's own audit log tells it.

Exact, since the log is written in blocking mode: the line of a request is in the file before its client has read the
end of the reply (the last chunk leaves when the handlers, of which auditing is one, have returned).
"""

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

WRITE_VERBS = ("create", "update", "patch", "delete", "deletecollection")
# One line for each write, at its end: ResponseComplete, or Panic in its stead. The two stages left out would be further
# lines for the same request: RequestReceived for all, ResponseStarted for those that stream, such as exec.
POLICY = json.dumps(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "Metadata", "verbs": list(WRITE_VERBS)}, {"level": "None"}],
    }
)
LINE_WITHIN_SECONDS = 60.0
POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Moment:
    """A point in the API server's time: when it received the marker, and where the log ended before that."""

    received_at: datetime
    offset: int


@dataclass(frozen=True)
class Write:
    """One request that could change something, with the API server's answer."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    received_at: datetime
    completed_at: datetime

    @property
    def target(self) -> str:
        """As RBAC spells it: pods, pods/status."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def may_have_acted(self) -> bool:
        """It was granted; or its sender was gone before the answer, of which the log says 504 either way."""
        return self.code < 300 or self.code == 504


class Writes(list[Write]):
    """Writes in the order in which the API server received them."""

    def by(self, *users: str) -> "Writes":
        return Writes(write for write in self if write.user in users)

    def to(self, *targets: str) -> "Writes":
        """Those to some targets; a target is spelled pods or pods/status, and pods alone does not mean pods/status."""
        return Writes(write for write in self if write.target in targets)

    def counted(self) -> Counter[tuple[str, str, str]]:
        """How many of each (user, verb, target)."""
        return Counter((write.user, write.verb, write.target) for write in self)


class AuditLog:
    """The log file, and a way to send a marker: a write with a given id by the marker's own user."""

    def __init__(self, path: Path, marker_user: str, send_marker: Callable[[str], None]) -> None:
        self._path = path
        self._marker_user = marker_user
        self._send_marker = send_marker

    async def mark(self) -> Moment:
        """Now. Every write that was answered before is in the log when this returns. Raises TimeoutError."""
        marker = uuid.uuid4().hex
        offset = self._path.stat().st_size
        await asyncio.to_thread(self._send_marker, marker)
        deadline = time.monotonic() + LINE_WITHIN_SECONDS
        while time.monotonic() < deadline:
            for event in self._events_after(offset):
                if marker in event.request_uri:
                    return Moment(event.request_received_timestamp, offset)
            await asyncio.sleep(POLL_SECONDS)
        raise TimeoutError(f"marker {marker} is not in the audit log {self._path} after {LINE_WITHIN_SECONDS:.0f} s")

    async def between(self, start: Moment, end: Moment) -> Writes:
        """The writes that the API server received between two moments, markers left out.

        One that is still being answered has no line yet: let a test's clients come to rest before it marks the end.
        """
        events = await asyncio.to_thread(self._events_after, start.offset)
        inside = (
            event.write()
            for event in events
            if start.received_at < event.request_received_timestamp < end.received_at
            and event.user.username != self._marker_user
        )
        return Writes(sorted(inside, key=lambda write: write.received_at))

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[Writes]:
        """An empty list that, when the block is left, holds the writes that were received during it."""
        writes = Writes()
        start = await self.mark()
        yield writes
        writes.extend(await self.between(start, await self.mark()))

    def _events_after(self, offset: int) -> list["_Event"]:
        with self._path.open("rb") as log:
            log.seek(offset)
            whole_lines, _, _ = log.read().rpartition(b"\n")  # the server may be in the middle of a line
        return _DECODER.decode_lines(whole_lines)


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Target(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of audit.k8s.io/v1 Event that we read."""

    verb: str
    user: _User
    request_received_timestamp: datetime
    stage_timestamp: datetime
    request_uri: str = msgspec.field(name="requestURI", default="")
    object_ref: _Target = _Target()
    response_status: _Status = _Status()

    def write(self) -> Write:
        return Write(
            user=self.user.username,
            verb=self.verb,
            resource=self.object_ref.resource,
            subresource=self.object_ref.subresource,
            namespace=self.object_ref.namespace,
            name=self.object_ref.name,
            code=self.response_status.code,
            received_at=self.request_received_timestamp,
            completed_at=self.stage_timestamp,
        )


_DECODER = msgspec.json.Decoder(_Event)
