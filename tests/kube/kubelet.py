"""A kubelet that can do one thing: give the API server a container's log, as slowly as the test prints it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trustme
from aiohttp import web

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from tests.kube.objects import NODES


class Kubelet:
    def __init__(self, node: str) -> None:
        self.node = node
        self.asked: dict[str, str] = {}
        self._printed: asyncio.Queue[bytes | None] = asyncio.Queue()

    def print(self, text: bytes) -> None:
        self._printed.put_nowait(text)

    def exit(self) -> None:
        self._printed.put_nowait(None)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked = dict(request.query)
        response = web.StreamResponse()
        await response.prepare(request)
        while (text := await self._printed.get()) is not None:
            await response.write(text)
        return response


@asynccontextmanager
async def running_kubelet(client: Client, node: str) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(node)
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", kubelet.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)  # the API server of the bed trusts any kubelet
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
