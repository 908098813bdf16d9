"""The two API servers that must agree, behind one face: a Client, and requests as they go over the wire."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from paddle_operator.api.crd import crd
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import PlainConnection
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import KINDS
from paddle_operator.local.apiserver.scheme.custom_resource import kind_from_crd
from paddle_operator.local.apiserver.scheme.kind import Kind, accept_all
from testbed.control_plane import ControlPlane

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TOKEN = "token-of-the-embedded-server"


def served_kinds() -> tuple[Kind, ...]:
    return (*KINDS, kind_from_crd(crd(PADDLE_JOB), accept_all))


@dataclass(frozen=True)
class Reply:
    code: int
    headers: Any
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def version(self) -> int:
        return int(self.body["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Of a watch that has ended: what happened to whom."""
        lines = [json.loads(line) for line in self.text.splitlines()]
        return [(line["type"], line["object"].get("metadata", {}).get("name", "")) for line in lines]


@dataclass
class Server:
    name: str  # cluster or embedded
    client: Client
    namespace: str
    http: aiohttp.ClientSession = field(repr=False)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def jobs(self) -> str:
        return f"/apis/batch.paddlepaddle.org/v1/namespaces/{self.namespace}/paddlejobs"

    @property
    def new_events(self) -> str:
        return f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        text: bytes | None = None,
        **headers: str,
    ) -> Reply:
        """`path` may begin with `core/`, `jobs/` …: the collections of this test's own namespace."""
        data = text if text is not None else None if body is None else json.dumps(body).encode()
        sent = self.headers | ({"Content-Type": content_type} if data is not None else {}) | headers
        async with self.http.request(
            method, URL(self.url + self.whole(path), encoded=True), data=data, headers=sent
        ) as reply:
            return Reply(reply.status, reply.headers, await reply.text())

    def whole(self, path: str) -> str:
        head, slash, rest = path.partition("/")
        known = {"core": self.core, "jobs": self.jobs, "new_events": self.new_events, "leases": self.leases}
        head, query_mark, query = head.partition("?")
        return known[head] + query_mark + query + slash + rest if head in known else path

    async def done(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """The body of an answer that must be good."""
        reply = await self.ask(method, path, body, **options)
        assert reply.code < 300, f"{method} {path}: {reply.code} {reply.text}"
        return reply.body

    async def create(self, path: str, manifest: object) -> Any:
        return await self.done("POST", path, manifest)

    async def patch(self, path: str, change: object, content_type: str = MERGE) -> Any:
        return await self.done("PATCH", path, change, content_type=content_type)

    async def read(self, path: str) -> Any:
        return await self.done("GET", path)

    async def list_(self, path: str, **parameters: str) -> Reply:
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        return await self.ask("GET", f"{path}?{query}")


@asynccontextmanager
async def cluster_server(control_plane: ControlPlane, prefix: str) -> AsyncIterator[Server]:
    namespace = await control_plane.make_namespace(prefix)
    connection = control_plane.connection()
    connector = aiohttp.TCPConnector(ssl=control_plane.trust)
    async with Client(connection) as client, aiohttp.ClientSession(connector=connector) as http:
        yield Server("cluster", client, namespace, http, connection.server, dict(await connection.headers()))
    await control_plane.delete_namespace(namespace)


@asynccontextmanager
async def embedded_server(directory: Path, prefix: str) -> AsyncIterator[Server]:
    async with ApiServer(directory, served_kinds(), token=TOKEN) as api:
        connection = PlainConnection(api.url, TOKEN)
        async with Client(connection) as client, aiohttp.ClientSession() as http:
            server = Server("embedded", client, prefix, http, api.url, dict(await connection.headers()))
            await server.create("/api/v1/namespaces", {"metadata": {"name": prefix}})
            yield server
