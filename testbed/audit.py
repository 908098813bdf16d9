"""Which user sent which writes to the API server between two positions of its audit log?

Exact, since the log is written in blocking mode: the line of a request is in the file before its client has read the
end of the response (the last chunk is sent when all handlers, auditing among them, have returned).
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
# One line per write, at its end: ResponseComplete, or Panic. The omitted stages would add lines for the same request:
# RequestReceived for all, ResponseStarted for streams such as exec.
POLICY = json.dumps(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "Metadata", "verbs": list(WRITE_VERBS)}, {"level": "None"}],
    }
)
MARKER_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.005


@dataclass(frozen=True)
class LogPosition:
    """When the API server received a marker, and the size of the log before that."""

    received_at: datetime
    offset: int


@dataclass(frozen=True)
class AuditedWrite:
    """One mutating request and its response code."""

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
        """As in RBAC rules: pods, pods/status."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def may_have_acted(self) -> bool:
        """It succeeded; or its client disconnected before the response, which is logged as 504 in any case."""
        return self.code < 300 or self.code == 504


class AuditedWrites(list[AuditedWrite]):
    """Writes in the order in which the API server received them."""

    def by(self, *users: str) -> "AuditedWrites":
        return AuditedWrites(write for write in self if write.user in users)

    def to(self, *targets: str) -> "AuditedWrites":
        """The writes to some targets, spelled pods or pods/status; pods does not include pods/status."""
        return AuditedWrites(write for write in self if write.target in targets)

    def counts(self) -> Counter[tuple[str, str, str]]:
        """The number of writes per (user, verb, target)."""
        return Counter((write.user, write.verb, write.target) for write in self)


class AuditLog:
    """Reads the log file. `send_marker` sends a write with a given id as the marker user."""

    def __init__(self, path: Path, marker_user: str, send_marker: Callable[[str], None]) -> None:
        self._path = path
        self._marker_user = marker_user
        self._send_marker = send_marker

    async def mark(self) -> LogPosition:
        """Mark the present. All earlier responses are in the log when this returns. Raises TimeoutError."""
        marker = uuid.uuid4().hex
        offset = self._path.stat().st_size
        await asyncio.to_thread(self._send_marker, marker)
        deadline = time.monotonic() + MARKER_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            for event in self._events_after(offset):
                if marker in event.request_uri:
                    return LogPosition(event.request_received_timestamp, offset)
            await asyncio.sleep(POLL_SECONDS)
        raise TimeoutError(f"marker {marker} is not in the audit log {self._path} after {MARKER_TIMEOUT_SECONDS:.0f} s")

    async def between(self, start: LogPosition, end: LogPosition) -> AuditedWrites:
        """The writes that the API server received between two positions, without markers.

        A pending request has no line yet: wait until the clients of the test are idle before marking the end.
        """
        events = await asyncio.to_thread(self._events_after, start.offset)
        inside = (
            event.write()
            for event in events
            if start.received_at < event.request_received_timestamp < end.received_at
            and event.user.username != self._marker_user
        )
        return AuditedWrites(sorted(inside, key=lambda write: write.received_at))

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[AuditedWrites]:
        """An empty list that is filled at the end of the block with the writes received during it."""
        writes = AuditedWrites()
        start = await self.mark()
        yield writes
        writes.extend(await self.between(start, await self.mark()))

    def _events_after(self, offset: int) -> list["_Event"]:
        with self._path.open("rb") as log:
            log.seek(offset)
            complete_lines, _, _ = log.read().rpartition(b"\n")  # the last line may be incomplete
        return _DECODER.decode_lines(complete_lines)


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
    """The decoded fields of audit.k8s.io/v1 Event."""

    verb: str
    user: _User
    request_received_timestamp: datetime
    stage_timestamp: datetime
    request_uri: str = msgspec.field(name="requestURI", default="")
    object_ref: _Target = _Target()
    response_status: _Status = _Status()

    def write(self) -> AuditedWrite:
        return AuditedWrite(
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
