"""Requests to the API server under test, and small objects."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.objects import Object, Resource
from paddle_operator.local.apiserver.http_server import ApiServer

TOKEN = "a-token"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SECRETS = Resource("api/v1", "secrets", Object)
NAMESPACES = Resource("api/v1", "namespaces", Object, namespaced=False)


def client_of(server: ApiServer) -> Client:
    return Client(StaticServerConfig(server.url, TOKEN))


def make_config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "data": {"a": "b"}}


def make_pod(name: str, **metadata: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "image"}]
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {"containers": containers}}


@asynccontextmanager
async def send_request(
    server: ApiServer, path: str, method: str = "GET", **options: Any
) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = HEADERS | options.pop("headers", {})
    async with (
        aiohttp.ClientSession(server.url) as http,
        http.request(method, path, headers=headers, **options) as reply,
    ):
        yield reply


async def read_event(reply: aiohttp.ClientResponse) -> Any:
    async with asyncio.timeout(100):
        return json.loads(await reply.content.readline())


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that code of this process makes true."""
    async with asyncio.timeout(100):
        while not holds():
            await asyncio.sleep(0.005)
