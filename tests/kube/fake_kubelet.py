"""A fake kubelet that serves container logs to the API server; the test writes each chunk."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trustme
from aiohttp import web

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from tests.kube.objects import NODES


class FakeKubelet:
    def __init__(self, node: str) -> None:
        self.node = node
        self.last_query: dict[str, str] = {}
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()

    def write_log(self, chunk: bytes) -> None:
        self._chunks.put_nowait(chunk)

    def end_log(self) -> None:
        self._chunks.put_nowait(None)

    async def serve_logs(self, request: web.Request) -> web.StreamResponse:
        self.last_query = dict(request.query)
        response = web.StreamResponse()
        await response.prepare(request)
        while (chunk := await self._chunks.get()) is not None:
            await response.write(chunk)
        return response


@asynccontextmanager
async def run_fake_kubelet(client: Client, node: str) -> AsyncIterator[FakeKubelet]:
    kubelet = FakeKubelet(node)
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", kubelet.serve_logs)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)  # the API server does not verify kubelets
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    endpoints = {"kubeletEndpoint": {"Port": port}}
    try:
        await client.merge_status(NODES, Key("", node), {"addresses": addresses, "daemonEndpoints": endpoints})
        yield kubelet
    finally:
        await client.delete(NODES, Key("", node))
        await runner.cleanup()
