"""A stub server and an aiohttp client for both ends of the fault proxy, in plain HTTP."""

import asyncio
import gzip

import aiohttp
import pytest
from aiohttp import web

from testbed.faults import FaultProxy

WAIT_TIMEOUT_SECONDS = 60.0
NO_DATA_SECONDS = 0.05  # relayed data arrives within a millisecond
CONNECTION_ERRORS = (aiohttp.ClientError, ConnectionError)


class StubServer:
    """A stub of an API server: it records requests, and the test writes the chunks of its streams."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.authorizations: list[str] = []
        self.bodies: list[bytes] = []
        self.request_received = asyncio.Event()
        self._streams: asyncio.Queue[asyncio.Queue[bytes]] = asyncio.Queue()
        self.stream_closed = asyncio.Event()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.raw_path))
        self.authorizations.append(request.headers.get("Authorization", ""))
        self.bodies.append(await request.content.read())
        self.request_received.set()
        if "watch" in request.query or "follow" in request.query:
            return await self._stream(request)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=gzip.compress(b"packed"), headers={"Content-Encoding": "gzip"})
        return web.json_response({"method": request.method}, status=201, headers={"Audit-Id": "7"})

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._streams.put_nowait(chunks)
        try:
            while chunk := await chunks.get():
                await response.write(chunk)
        except asyncio.CancelledError:
            self.stream_closed.set()
            raise
        return response

    async def next_stream(self) -> asyncio.Queue[bytes]:
        """The queue of chunks of the next stream; an empty chunk ends it."""
        return await asyncio.wait_for(self._streams.get(), WAIT_TIMEOUT_SECONDS)


def make_client(proxy: FaultProxy, token: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        proxy.connection(token).server,
        headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=WAIT_TIMEOUT_SECONDS),
    )


async def request_status(client: aiohttp.ClientSession, method: str, path: str, body: object = None) -> int:
    async with client.request(method, path, json=body) as response:
        await response.read()
        return response.status


async def read_line(response: aiohttp.ClientResponse) -> bytes:
    return await asyncio.wait_for(response.content.readline(), WAIT_TIMEOUT_SECONDS)


async def assert_no_data(response: aiohttp.ClientResponse) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(response.content.readany(), NO_DATA_SECONDS)
