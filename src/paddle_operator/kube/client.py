"""Speaks to an API server: bytes in, Structs out; outside kube/ nobody sees JSON, a URL or an HTTP status.

HTTP/1.1 with at most `in_flight` requests at once: HTTP/2 in Python costs five times as much a request, and a real API
server is saturated from about eight (python-stack.md 2b, testbed.md). Each connection takes 0.2 MB.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, urlencode

import msgspec

from paddle_operator.kube import metrics
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.config.server import Connection
from paddle_operator.kube.connection_pool import CannotConnect, ConnectionPool, Origin, ProxyRefused
from paddle_operator.kube.decoding import (
    Page,
    Unreadable,
    read_changes,
    read_manifest,
    read_manifests,
    read_one,
    read_page,
)
from paddle_operator.kube.error_messages import foreign, refused, unreachable
from paddle_operator.kube.errors import APIStatusError, ServerFault, Unauthorized, Unreachable, Untrusted
from paddle_operator.kube.http_connection import Lost, Reply
from paddle_operator.kube.objects import Change, Key, Manifest, Object, Resource, T
from paddle_operator.kube.watch_throttle import WatchThrottle

log = logging.getLogger(__name__)

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

PAGE_SIZE = 500  # 10,000 pods peak at 83 MB in pages of 500, at 194 MB in one list (python-stack.md 2a)
TRIES = 4
FIRST_PAUSE_SECONDS = 0.1
LONGEST_OBEYED_SECONDS = 30.0  # a longer Retry-After is told to the caller, who has other work meanwhile
ANSWER_SECONDS = 65.0  # the server itself gives up after 60
IDLE_SECONDS = 100.0  # the API server sends a bookmark about every minute: silence for longer is a dead connection

_BROKEN = (CannotConnect, ProxyRefused, Lost, TimeoutError, OSError)


@dataclass(frozen=True)
class Scope:
    """Which objects of a kind are meant: everything, or what a namespace and selectors leave."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def params(self) -> dict[str, str]:
        chosen = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in chosen.items() if value}


EVERYTHING = Scope()


class _Call(msgspec.Struct, frozen=True):
    verb: str
    about: str
    method: str
    path: str
    params: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    repeatable: bool = True  # doing it twice is doing it once
    writes: bool = False


class Client:
    """One API server as one user. Every call raises Refused (by reason), Unreachable or Misconfigured.

    `fence` is asked right before each write is sent and raises Fenced where we may not write any more.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        in_flight: int = 32,
        answer_seconds: float = ANSWER_SECONDS,
        fence: Callable[[], None] | None = None,
        clock: Clock | None = None,
        user_agent: str = "paddle-operator",
    ) -> None:
        self.connection = connection
        self._fence = fence
        self._clock = clock or SystemClock()
        self._slots = asyncio.Semaphore(in_flight)
        self._answer_seconds = answer_seconds
        self._fixed_headers = f"User-Agent: {user_agent}\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n"
        self._way: Origin | None = None
        self._channels: ConnectionPool | None = None

    async def __aenter__(self) -> Self:
        self._channels = ConnectionPool()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._channels:
            await self._channels.close()

    # Reading

    async def get(self, kind: Resource[T], key: Key) -> T:
        about = f"get {kind} {key}"
        return read_one(kind, await self._send(_Call("get", about, "GET", kind.path(key))))

    async def manifest(self, kind: Resource[Any], key: Key) -> Manifest:
        """The object with everything that it has, for who wants to show it."""
        body = await self._send(_Call("get", f"get {kind} {key}", "GET", kind.path(key)))
        return read_manifest(body)

    async def manifests(self, kind: Resource[Any], scope: Scope = EVERYTHING) -> list[Manifest]:
        """All objects with everything that they have; in one piece, so for people and not for caches."""
        about = f"list {kind} in {scope.namespace or 'all namespaces'}"
        path = kind.path(namespace=scope.namespace)
        return read_manifests(await self._send(_Call("list", about, "GET", path, scope.params)))

    async def pages(
        self, kind: Resource[T], scope: Scope = EVERYTHING, size: int = PAGE_SIZE
    ) -> AsyncGenerator[Page[T]]:
        """All objects, a page at a time, all of one version. Raises Expired where it took the server's patience."""
        about = f"list {kind} in {scope.namespace or 'all namespaces'}"
        params = scope.params | ({"limit": str(size)} if size else {})
        while True:
            path = kind.path(namespace=scope.namespace)
            body = await self._send(_Call("list", about, "GET", path, params))
            page, more = read_page(kind, body)
            yield page
            if not more:
                return
            params = params | {"continue": more}

    async def list_all(self, kind: Resource[T], scope: Scope = EVERYTHING) -> list[T]:
        return [item async for page in self.pages(kind, scope) for item in page.items]

    async def watch(
        self,
        kind: Resource[T],
        scope: Scope = EVERYTHING,
        *,
        since: str = "",
        initial: bool = False,
        idle_seconds: float = IDLE_SECONDS,
    ) -> AsyncGenerator[Sequence[Change[T] | Unreadable]]:
        """Changes after version `since`, as many at once as one read brought; ends when the server ends it.

        The first batch is empty and says that the server has accepted.
        With `initial` the stream begins with every object that exists, and a bookmark says where that list ends.
        Raises Unreachable where the connection breaks or is silent for `idle_seconds`.
        """
        params = scope.params | {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": since}
        # The server ends a watch after this long; the jitter keeps a crowd from coming back at the same moment.
        params["timeoutSeconds"] = str(random.randint(300, 600))  # noqa: S311
        if initial:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        about = f"watch {kind} in {scope.namespace or 'all namespaces'}"
        call = _Call("watch", about, "GET", kind.path(namespace=scope.namespace), params)
        rest = b""
        async with self._streamed(call, idle_seconds) as reply:
            yield []
            pace = WatchThrottle(reply)
            async for chunk in reply.parts():
                text = rest + chunk if rest else chunk
                end = text.rfind(b"\n")
                rest = text[end + 1 :]
                if end >= 0:
                    changes = read_changes(kind, memoryview(text)[:end])
                    yield changes
                    await pace.rest(len(changes), len(chunk))

    async def logs(
        self, key: Key, *, container: str = "", follow: bool = False, previous: bool = False, tail: int | None = None
    ) -> AsyncGenerator[bytes]:
        """A pod's log, line by line without the line's end."""
        chosen = {"container": container, "tailLines": "" if tail is None else str(tail)}
        params = {name: value for name, value in chosen.items() if value}
        params |= {name: "true" for name, wanted in (("follow", follow), ("previous", previous)) if wanted}
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log"
        idle_seconds = None if follow else IDLE_SECONDS  # a program may well print nothing for an hour
        rest = b""
        async with self._streamed(_Call("get", f"get the log of {key}", "GET", path, params), idle_seconds) as reply:
            async for chunk in reply.parts():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
        if rest:
            yield rest

    # Writing

    async def create(self, kind: Resource[T], manifest: Manifest, *, dry_run: bool = False, strict: bool = False) -> T:
        """The object as stored. Raises AlreadyExists, or what quota, admission and schema have to say.

        With `strict` a field that the server does not know is refused, and not dropped.
        """
        key = _key_of(kind, manifest)
        return await self._write(
            "create",
            kind,
            key,
            "POST",
            manifest,
            path=kind.path(namespace=key.namespace),
            params={"fieldValidation": "Strict"} if strict else None,
            dry_run=dry_run,
            repeatable=False,
        )

    async def replace(self, kind: Resource[T], manifest: Manifest) -> T:
        """The object as stored. Raises Conflict where the manifest's resourceVersion is not the newest."""
        return await self._write("update", kind, _key_of(kind, manifest), "PUT", manifest)

    async def merge(self, kind: Resource[T], key: Key, change: Manifest, *, subresource: str = "") -> T:
        """A JSON merge patch; a uid or resourceVersion in its metadata is a precondition (Conflict)."""
        return await self._write("patch", kind, key, "PATCH", change, content_type=MERGE, subresource=subresource)

    async def merge_status(self, kind: Resource[T], key: Key, status: Manifest) -> T:
        return await self.merge(kind, key, {"status": status}, subresource="status")

    async def json_patch(self, kind: Resource[T], key: Key, operations: list[Manifest], *, subresource: str = "") -> T:
        """Raises Invalid where a `test` operation does not hold."""
        return await self._write(
            "patch", kind, key, "PATCH", operations, content_type=JSON, subresource=subresource, repeatable=False
        )

    async def apply(
        self, kind: Resource[T], manifest: Manifest, *, manager: str, force: bool = False, subresource: str = ""
    ) -> T:
        """Server-side apply. Raises Conflict where another manager owns a field and `force` is not set."""
        params = {"fieldManager": manager, "force": str(force).lower()}
        return await self._write(
            "apply",
            kind,
            _key_of(kind, manifest),
            "PATCH",
            manifest,
            content_type=APPLY,
            subresource=subresource,
            params=params,
        )

    async def delete(
        self,
        kind: Resource[T],
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> T | None:
        """What is left of the object: itself with a deletion timestamp, or None.

        Raises NotFound, or Conflict where the object of that name has another uid or version.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        wishes = {
            "preconditions": {name: value for name, value in preconditions.items() if value} or None,
            "gracePeriodSeconds": grace_seconds,
            "propagationPolicy": propagation or None,
        }
        options = {"apiVersion": "v1", "kind": "DeleteOptions"} | {k: v for k, v in wishes.items() if v is not None}
        body = msgspec.json.encode(options)
        call = _Call("delete", f"delete {kind} {key}", "DELETE", kind.path(key), body=body, writes=True)
        reply = await self._send(call)
        left = msgspec.json.decode(reply, type=Object).metadata
        stays = left.uid and left.deletion_timestamp and left.resource_version  # a pod that goes at once has no version
        return read_one(kind, reply) if stays else None

    async def delete_all(self, kind: Resource[T], scope: Scope, *, propagation: str = "Background") -> list[T]:
        """The objects that the scope selects, as they were before this one request deleted them all."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        about = f"delete {kind} {scope.labels or 'all'} in {scope.namespace}"
        path = kind.path(namespace=scope.namespace)
        body = msgspec.json.encode(options)
        reply = await self._send(_Call("deletecollection", about, "DELETE", path, scope.params, body, writes=True))
        return read_page(kind, reply)[0].items

    async def evict(self, key: Key, *, grace_seconds: int | None = None) -> None:
        """Ask for a pod's end by the disruption budgets. Raises TooManyRequests where they forbid it now."""
        options = {} if grace_seconds is None else {"deleteOptions": {"gracePeriodSeconds": grace_seconds}}
        metadata = {"name": key.name, "namespace": key.namespace}
        body = msgspec.json.encode({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata} | options)
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/eviction"
        await self._send(
            _Call("evict", f"evict pods {key}", "POST", path, body=body, writes=True), obey_retry_after=False
        )

    async def _write(
        self,
        verb: str,
        kind: Resource[T],
        key: Key,
        method: str,
        content: object,
        *,
        path: str = "",
        subresource: str = "",
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        dry_run: bool = False,
        repeatable: bool = True,
    ) -> T:
        call = _Call(
            verb,
            f"{verb} {kind}{'/' + subresource if subresource else ''} {key}",
            method,
            path or kind.path(key, subresource=subresource),
            {**(params or {}), **({"dryRun": "All"} if dry_run else {})},
            msgspec.json.encode(content),
            content_type,
            repeatable,
            writes=True,
        )
        return read_one(kind, await self._send(call))

    # Sending

    async def _send(self, call: _Call, *, obey_retry_after: bool = True) -> bytes:
        """The body of a good answer, after as many tries as the call and the refusals allow."""
        renewed = False
        tries = 0
        while True:
            tries += 1
            try:
                async with self._slots:
                    return await self._once(call)
            except Unauthorized:
                if renewed or not await self.connection.renew():
                    raise
                renewed = True
            except (APIStatusError, Unreachable) as error:
                pause = _pause_before_retry(call, error, tries) if obey_retry_after else None
                if pause is None:
                    raise
                await self._clock.sleep(pause)

    async def _once(self, call: _Call) -> bytes:
        async with self._reply(call, self._answer_seconds) as reply:
            body = await reply.read()
            if reply.status >= 400:
                raise refused(call.about, self.connection, reply, body)
            if reply.content_type != "application/json":
                raise foreign(call.about, self.connection, reply)
            return body

    @asynccontextmanager
    async def _streamed(self, call: _Call, idle_seconds: float | None) -> AsyncIterator[Reply]:
        async with self._reply(call, idle_seconds) as reply:
            if reply.status >= 400:
                error = refused(call.about, self.connection, reply, await reply.read())
                if isinstance(error, Unauthorized):
                    await self.connection.renew()  # the caller comes back anyway; next time with something newer
                raise error
            yield reply

    def _reply(self, call: _Call, read_timeout: float | None) -> AbstractAsyncContextManager[Reply]:
        return _Exchange(self, call, read_timeout)

    async def _way_now(self) -> Origin:
        """The same as long as the certificates are."""
        context = await self.connection.tls()
        if self._way is None or context is not self._way.context:
            self._way = Origin(self.connection.server, context, self.connection.server_name, self.connection.proxy)
        return self._way

    async def _request(self, call: _Call, way: Origin) -> bytes:
        target = way.base + quote(call.path, safe="/:") + (f"?{urlencode(call.params)}" if call.params else "")
        proof = await self.connection.headers()
        lines = "".join([f"{name}: {value}\r\n" for name, value in proof.items()])
        if way.proxy and way.context is None:
            lines += way.proxy_proof
        if call.body is not None:
            lines += f"Content-Type: {call.content_type}\r\nContent-Length: {len(call.body)}\r\n"
        head = f"{call.method} {target} HTTP/1.1\r\nHost: {way.host}\r\n"
        return f"{head}{self._fixed_headers}{lines}\r\n".encode() + (call.body or b"")


class _Exchange:
    """A request and its answer, on a connection that is given back. No generator: as one it cost 6 µs more of 110."""

    def __init__(self, client: Client, call: _Call, read_timeout: float | None) -> None:
        self._client, self._call, self._silence_seconds = client, call, read_timeout

    async def __aenter__(self) -> Reply:
        client, call = self._client, self._call
        assert client._channels, "a Client is used inside `async with`"
        self._channels = client._channels
        self._way = way = await client._way_now()
        request = await client._request(call, way)
        try:
            self._channel = await self._channels.take(way)
        except _BROKEN as error:
            raise self._trouble(error) from error
        try:
            if call.writes and client._fence:
                client._fence()  # last, since everything above may have taken time
            reply = await self._channel.ask(request, self._silence_seconds)
        except BaseException as error:
            self._channels.give_back(way, self._channel)
            if isinstance(error, _BROKEN):
                raise self._trouble(error) from error
            raise
        metrics.count_request(reply.status, call.method, way.host)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("asked", extra={"method": call.method, "path": call.path, "code": reply.status})
        return reply

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._channels.give_back(self._way, self._channel)
        if isinstance(error, _BROKEN):
            raise self._trouble(error) from error

    def _trouble(self, error: BaseException) -> Unreachable:
        metrics.count_request("<error>", self._call.method, self._way.host)
        return unreachable(self._call.about, self._client.connection, error)


def _key_of(kind: Resource[Any], manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    name = metadata.get("name") or f"{metadata['generateName']}…"
    return Key(metadata.get("namespace", "") if kind.namespaced else "", name)


def _pause_before_retry(call: _Call, error: APIStatusError | Unreachable, tries: int) -> float | None:
    """How long to wait before the same call is sent again, or None where it must not be.

    A server that says when to come back has not acted, so that anything may be sent again; otherwise only what can be
    done twice, or what never left this machine.
    """
    if tries >= TRIES:
        return None
    jitter = 1 + random.random() / 2  # noqa: S311
    if isinstance(error, APIStatusError) and error.retry_after is not None:
        return error.retry_after * jitter if error.retry_after <= LONGEST_OBEYED_SECONDS else None
    if isinstance(error, Untrusted):
        return None
    unsent = isinstance(error, Unreachable) and not error.sent
    transient = isinstance(error, ServerFault | Unreachable)
    return FIRST_PAUSE_SECONDS * 2.0 ** (tries - 1) * jitter if unsent or (transient and call.repeatable) else None
