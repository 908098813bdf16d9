"""Both ends of the fault proxy in plain HTTP: a server that only pretends, and a client that is not ours."""

import asyncio
import gzip

import aiohttp
import pytest
from aiohttp import web

from testbed.faults import FaultProxy

SOON_SECONDS = 60.0
NEVER_SECONDS = 0.05  # what is let through comes within a millisecond
CUT = (aiohttp.ClientError, ConnectionError)


class PretendedServer:
    """Pretends to be an API server: keeps what it was asked, and its streams say what the test tells them to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.authorizations: list[str] = []
        self.bodies: list[bytes] = []
        self.was_asked = asyncio.Event()
        self._streams: asyncio.Queue[asyncio.Queue[bytes]] = asyncio.Queue()
        self.stream_was_left = asyncio.Event()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request.method, request.raw_path))
        self.authorizations.append(request.headers.get("Authorization", ""))
        self.bodies.append(await request.content.read())
        self.was_asked.set()
        if "watch" in request.query or "follow" in request.query:
            return await self._stream(request)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=gzip.compress(b"packed"), headers={"Content-Encoding": "gzip"})
        return web.json_response({"method": request.method}, status=201, headers={"Audit-Id": "7"})

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._streams.put_nowait(pieces)
        try:
            while piece := await pieces.get():
                await response.write(piece)
        except asyncio.CancelledError:
            self.stream_was_left.set()
            raise
        return response

    async def stream(self) -> asyncio.Queue[bytes]:
        """What the next stream is going to send; an empty piece ends it."""
        return await asyncio.wait_for(self._streams.get(), SOON_SECONDS)


def a_client(proxy: FaultProxy, token: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        proxy.connection(token).server,
        headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=SOON_SECONDS),
    )


async def code_of(client: aiohttp.ClientSession, method: str, path: str, body: object = None) -> int:
    async with client.request(method, path, json=body) as reply:
        await reply.read()
        return reply.status


async def line_of(reply: aiohttp.ClientResponse) -> bytes:
    return await asyncio.wait_for(reply.content.readline(), SOON_SECONDS)


async def assert_silent(reply: aiohttp.ClientResponse) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reply.content.readany(), NEVER_SECONDS)
