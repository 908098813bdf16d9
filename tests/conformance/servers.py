"""A real and a local API server behind one interface: a Client and raw requests."""

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
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import BUILTIN_KINDS
from paddle_operator.local.apiserver.scheme.custom_resource import kind_from_crd
from paddle_operator.local.apiserver.scheme.kind import Kind, accept_all
from testbed.control_plane import ControlPlane

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TOKEN = "token-of-the-embedded-server"


def served_kinds() -> tuple[Kind, ...]:
    return (*BUILTIN_KINDS, kind_from_crd(crd(PADDLE_JOB), accept_all))


@dataclass(frozen=True)
class HTTPResponse:
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
    def watch_events(self) -> list[tuple[str, str]]:
        """The type and object name of each event of a finished watch."""
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
    def events_v1(self) -> str:
        return f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        text: bytes | None = None,
        **headers: str,
    ) -> HTTPResponse:
        """`path` may start with `core/`, `jobs/` …: collections in the test's namespace."""
        data = text if text is not None else None if body is None else json.dumps(body).encode()
        all_headers = self.headers | ({"Content-Type": content_type} if data is not None else {}) | headers
        async with self.http.request(
            method, URL(self.url + self.expand_path(path), encoded=True), data=data, headers=all_headers
        ) as reply:
            return HTTPResponse(reply.status, reply.headers, await reply.text())

    def expand_path(self, path: str) -> str:
        head, slash, name = path.partition("/")
        prefixes = {"core": self.core, "jobs": self.jobs, "events_v1": self.events_v1, "leases": self.leases}
        head, query_mark, query = head.partition("?")
        return prefixes[head] + query_mark + query + slash + name if head in prefixes else path

    async def request_json(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """The body of a successful response; fails the test on an error."""
        reply = await self.request(method, path, body, **options)
        assert reply.code < 300, f"{method} {path}: {reply.code} {reply.text}"
        return reply.body

    async def create(self, path: str, manifest: object) -> Any:
        return await self.request_json("POST", path, manifest)

    async def patch(self, path: str, change: object, content_type: str = MERGE) -> Any:
        return await self.request_json("PATCH", path, change, content_type=content_type)

    async def read(self, path: str) -> Any:
        return await self.request_json("GET", path)

    async def list_(self, path: str, **parameters: str) -> HTTPResponse:
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        return await self.request("GET", f"{path}?{query}")


@asynccontextmanager
async def cluster_server(control_plane: ControlPlane, prefix: str) -> AsyncIterator[Server]:
    namespace = await control_plane.create_namespace(prefix)
    connection = control_plane.connection()
    connector = aiohttp.TCPConnector(ssl=control_plane.trust)
    async with Client(connection) as client, aiohttp.ClientSession(connector=connector) as http:
        yield Server("cluster", client, namespace, http, connection.server, dict(await connection.headers()))
    await control_plane.delete_namespace(namespace)


@asynccontextmanager
async def embedded_server(directory: Path, prefix: str) -> AsyncIterator[Server]:
    async with ApiServer(directory, served_kinds(), token=TOKEN) as api:
        connection = StaticServerConfig(api.url, TOKEN)
        async with Client(connection) as client, aiohttp.ClientSession() as http:
            server = Server("embedded", client, prefix, http, api.url, dict(await connection.headers()))
            await server.create("/api/v1/namespaces", {"metadata": {"name": prefix}})
            yield server
