"""A Kubernetes API server's verbs: Structs in and out. Outside kube/ nothing sees JSON, URLs or HTTP statuses."""

import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import msgspec

from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.config.server import ServerConfig
from paddle_operator.kube.decoding import (
    Page,
    Unreadable,
    read_changes,
    read_manifest,
    read_manifests,
    read_one,
    read_page,
)
from paddle_operator.kube.objects import Change, Key, Manifest, Object, Resource, T
from paddle_operator.kube.round_trip import Call, RoundTripper
from paddle_operator.kube.watch_throttle import WatchThrottle

MERGE_PATCH = "application/merge-patch+json"

PAGE_SIZE = 500  # 10,000 pods peak at 83 MB in pages of 500, at 194 MB in one list
MAX_IN_FLIGHT = 32
RESPONSE_SECONDS = 65.0  # the server's own request timeout is 60
IDLE_SECONDS = 100.0  # the API server sends a bookmark about every minute: idle for longer is a dead connection


@dataclass(frozen=True)
class Scope:
    """Which objects of a kind: all, or those of a namespace and of selectors."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def params(self) -> dict[str, str]:
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in selectors.items() if value}

    def __str__(self) -> str:
        return self.namespace or "all namespaces"


EVERYTHING = Scope()


class Client:
    """One API server as one user. Every call raises APIStatusError (by reason), Unreachable or Misconfigured.

    `fence` is called right before each write is sent; it raises Fenced if this process may not write any more.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        response_timeout: float = RESPONSE_SECONDS,
        fence: Callable[[], None] | None = None,
        clock: Clock | None = None,
        user_agent: str = "paddle-operator",
        round_tripper: Callable[..., RoundTripper] = RoundTripper,
    ) -> None:
        self.config = config
        self._open = partial(
            round_tripper,
            config,
            max_in_flight=max_in_flight,
            response_timeout=response_timeout,
            fence=fence,
            clock=clock or SystemClock(),
            user_agent=user_agent,
        )
        self._round_tripper: RoundTripper | None = None

    async def __aenter__(self) -> Self:
        self._round_tripper = self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sender.close()

    @property
    def _sender(self) -> RoundTripper:
        assert self._round_tripper, "a Client is used inside `async with`"
        return self._round_tripper

    # Reading

    async def get(self, kind: Resource[T], key: Key) -> T:
        about = f"get {kind} {key}"
        return read_one(kind, await self._sender.send(Call(about, "GET", kind.path(key))))

    async def get_manifest(self, kind: Resource[Any], key: Key) -> Manifest:
        """The object with all its fields, to be shown."""
        body = await self._sender.send(Call(f"get {kind} {key}", "GET", kind.path(key)))
        return read_manifest(body)

    async def list_manifests(self, kind: Resource[Any], scope: Scope = EVERYTHING) -> list[Manifest]:
        """All objects with all their fields, in one response: to be shown, not cached."""
        about = f"list {kind} in {scope}"
        path = kind.path(namespace=scope.namespace)
        return read_manifests(await self._sender.send(Call(about, "GET", path, scope.params)))

    async def list_pages(
        self, kind: Resource[T], scope: Scope = EVERYTHING, size: int = PAGE_SIZE
    ) -> AsyncGenerator[Page[T]]:
        """All objects of one version, a page at a time. Raises Expired if it is compacted between two pages."""
        about = f"list {kind} in {scope}"
        params = scope.params | ({"limit": str(size)} if size else {})
        while True:
            path = kind.path(namespace=scope.namespace)
            body = await self._sender.send(Call(about, "GET", path, params))
            page, more = read_page(kind, body)
            yield page
            if not more:
                return
            params = params | {"continue": more}

    async def list_all(self, kind: Resource[T], scope: Scope = EVERYTHING) -> list[T]:
        return [item async for page in self.list_pages(kind, scope) for item in page.items]

    async def watch(
        self,
        kind: Resource[T],
        scope: Scope = EVERYTHING,
        *,
        since: str = "",
        idle_seconds: float = IDLE_SECONDS,
    ) -> AsyncGenerator[Sequence[Change[T] | Unreadable]]:
        """Changes after version `since`, in batches as they were read. Ends when the server ends the watch.

        The first batch is empty: the server has accepted the watch.
        Raises Unreachable if the connection breaks or is idle for `idle_seconds`.
        """
        params = scope.params | {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": since}
        # The server ends a watch after this long; jitter, so that clients do not all reconnect at the same moment.
        params["timeoutSeconds"] = str(random.randint(300, 600))  # noqa: S311
        about = f"watch {kind} in {scope}"
        call = Call(about, "GET", kind.path(namespace=scope.namespace), params)
        partial_line = b""
        async with self._sender.stream(call, idle_seconds) as response:
            yield []
            throttle = WatchThrottle(response)
            async for chunk in response.stream():
                lines = partial_line + chunk if partial_line else chunk
                end = lines.rfind(b"\n")
                partial_line = lines[end + 1 :]
                if end >= 0:
                    changes = read_changes(kind, memoryview(lines)[:end])
                    yield changes
                    await throttle.wait(len(changes), len(chunk))

    async def read_log(
        self, key: Key, *, container: str = "", follow: bool = False, previous: bool = False, tail: int | None = None
    ) -> AsyncGenerator[bytes]:
        """The lines of a pod's log, without line ends."""
        options = {"container": container, "tailLines": "" if tail is None else str(tail)}
        params = {name: value for name, value in options.items() if value}
        params |= {name: "true" for name, is_set in (("follow", follow), ("previous", previous)) if is_set}
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log"
        idle_seconds = None if follow else IDLE_SECONDS  # a program may print nothing for an hour
        partial_line = b""
        call = Call(f"get the log of {key}", "GET", path, params)
        async with self._sender.stream(call, idle_seconds) as response:
            async for chunk in response.stream():
                *lines, partial_line = (partial_line + chunk).split(b"\n")
                for line in lines:
                    yield line
        if partial_line:
            yield partial_line

    # Writing

    async def create(self, kind: Resource[T], manifest: Manifest, *, dry_run: bool = False, strict: bool = False) -> T:
        """The object as stored. Raises AlreadyExists, or the refusal of quota, admission or schema.

        With `strict` unknown fields are refused instead of dropped.
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
        """The object as stored. Raises Conflict if the manifest's resourceVersion is not the newest."""
        return await self._write("update", kind, _key_of(kind, manifest), "PUT", manifest)

    async def merge(self, kind: Resource[T], key: Key, change: Manifest, *, subresource: str = "") -> T:
        """A JSON merge patch; a uid or resourceVersion in its metadata is a precondition (Conflict)."""
        return await self._write("patch", kind, key, "PATCH", change, content_type=MERGE_PATCH, subresource=subresource)

    async def merge_status(self, kind: Resource[T], key: Key, status: Manifest) -> T:
        return await self.merge(kind, key, {"status": status}, subresource="status")

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
        """The object with a deletion timestamp if it still exists, otherwise None.

        Raises NotFound, or Conflict if the object of that name has another uid or version.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {name: value for name, value in preconditions.items() if value} or None,
            "gracePeriodSeconds": grace_seconds,
            "propagationPolicy": propagation or None,
        }
        body = msgspec.json.encode({name: value for name, value in options.items() if value is not None})
        call = Call(f"delete {kind} {key}", "DELETE", kind.path(key), body=body, writes=True)
        response = await self._sender.send(call)
        left = msgspec.json.decode(response, type=Object).metadata
        exists = left.uid and left.deletion_timestamp and left.resource_version  # a pod deleted at once has no version
        return read_one(kind, response) if exists else None

    async def delete_all(self, kind: Resource[T], scope: Scope, *, propagation: str = "Background") -> list[T]:
        """Delete all objects in the scope by one request; returns them as they were before."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        about = f"delete {kind} {scope.labels or 'all'} in {scope.namespace}"
        path = kind.path(namespace=scope.namespace)
        body = msgspec.json.encode(options)
        deleted = await self._sender.send(Call(about, "DELETE", path, scope.params, body, writes=True))
        return read_page(kind, deleted)[0].items

    async def evict(self, key: Key, *, grace_seconds: int | None = None) -> None:
        """Evict a pod, as a drain does. Raises TooManyRequests if a disruption budget forbids it."""
        options = {} if grace_seconds is None else {"deleteOptions": {"gracePeriodSeconds": grace_seconds}}
        metadata = {"name": key.name, "namespace": key.namespace}
        body = msgspec.json.encode({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata} | options)
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/eviction"
        await self._sender.send(Call(f"evict pods {key}", "POST", path, body=body, writes=True), obey_retry_after=False)

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
        call = Call(
            f"{verb} {kind}{'/' + subresource if subresource else ''} {key}",
            method,
            path or kind.path(key, subresource=subresource),
            {**(params or {}), **({"dryRun": "All"} if dry_run else {})},
            msgspec.json.encode(content),
            content_type,
            repeatable,
            writes=True,
        )
        return read_one(kind, await self._sender.send(call))


def _key_of(kind: Resource[Any], manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    name = metadata.get("name") or f"{metadata['generateName']}…"
    return Key(metadata.get("namespace", "") if kind.namespaced else "", name)
