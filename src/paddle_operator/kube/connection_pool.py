"""The connections to a server: made when needed, through a proxy where one is in between, and kept for a while.

One that nobody uses is closed after 15 s: load balancers forget idle ones after a minute or more, without a word.
"""

import asyncio
import base64
import socket
import ssl
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote, urlsplit

import aiohappyeyeballs

from paddle_operator.kube.http_connection import HTTPConnection, Lost

CONNECT_SECONDS = 10.0
KEPT_SECONDS = 15.0
OTHER_ADDRESS_SECONDS = 0.25  # a name may have an address that answers nobody: then the next is tried beside it


class CannotConnect(Exception):
    """Nothing was sent."""

    def __init__(self, reason: OSError | None) -> None:
        """No reason means that there was no answer in time."""
        super().__init__(str(reason or "no answer in time"))
        self.reason = reason


class CannotReachProxy(CannotConnect):
    pass


class ProxyRefused(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} ({status})")
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Origin:
    """How a server is reached; what differs in any of it does not share connections."""

    server: str  # the base URL
    context: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None

    def __post_init__(self) -> None:
        assert self.context or self.server.startswith("http://"), "a token would be sent for everybody to read"

    @cached_property
    def address(self) -> tuple[str, int]:
        return _address(self.server)

    @cached_property
    def host(self) -> str:
        """As the server is called in a request."""
        return _host(self.server)

    @cached_property
    def base(self) -> str:
        """What stands before a path in a request: a proxy that passes on plain requests is told where to."""
        prefix = f"http://{self.host}" if self.proxy and self.context is None else ""
        return prefix + urlsplit(self.server).path

    @cached_property
    def proxy_proof(self) -> str:
        """The header line that shows the proxy who we are, if it wants to know."""
        parts = urlsplit(self.proxy or "")
        if parts.username is None:
            return ""
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"


class ConnectionPool:
    """Call close() at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._free: dict[Origin, list[HTTPConnection]] = {}
        self._all: set[HTTPConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def take(self, way: Origin) -> HTTPConnection:
        """One that is free, to be given back. Raises CannotConnect, ProxyRefused or ssl.SSLError."""
        return self._kept(way) or await self._connected(way)

    def give_back(self, way: Origin, channel: HTTPConnection) -> None:
        """It is used again if it was asked, and what it answered was read to the end."""
        if channel.reusable and not self._closed:
            self._keep(way, channel)
        else:
            channel.abort()

    async def close(self) -> None:
        self._closed = True
        if self._sweep:
            self._sweep.cancel()
        left, self._all = self._all, set()
        self._free.clear()
        for channel in left:
            channel.abort()
        await asyncio.gather(*(channel.lost for channel in left))

    # Connections that are kept

    def _kept(self, way: Origin) -> HTTPConnection | None:
        """The one that was used last: the others may go when little is to do."""
        free = self._free.get(way, [])
        while free:
            channel = free.pop()
            if not channel.broken:
                return channel
        return None

    def _keep(self, way: Origin, channel: HTTPConnection) -> None:
        channel.idle_since = self._loop.time()
        self._free.setdefault(way, []).append(channel)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEPT_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        latest = self._loop.time() - KEPT_SECONDS
        for way, free in list(self._free.items()):
            for channel in free:
                if channel.idle_since <= latest:
                    channel.abort()
            self._free[way] = [channel for channel in free if channel.idle_since > latest]
            if not self._free[way]:
                del self._free[way]
        oldest = min((channel.idle_since for free in self._free.values() for channel in free), default=None)
        self._sweep = None if oldest is None else self._loop.call_at(oldest + KEPT_SECONDS, self._close_idle)

    # New connections

    async def _connected(self, way: Origin) -> HTTPConnection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if way.proxy:
                    return await self._through_proxy(way, way.proxy)
                return await self._open(way.address, way.context, way.server_name)
        except ssl.SSLError:
            raise
        except TimeoutError:
            raise CannotConnect(None) from None
        except OSError as error:
            raise CannotConnect(error) from error

    async def _through_proxy(self, way: Origin, proxy: str) -> HTTPConnection:
        try:
            channel = await self._open(_address(proxy), way.context if proxy.startswith("https://") else None, None)
        except ssl.SSLError:
            raise
        except OSError as error:
            raise CannotReachProxy(error) from error
        try:
            if way.context:
                await self._tunnel(way, way.context, channel)
        except BaseException:
            channel.abort()
            raise
        return channel

    async def _tunnel(self, way: Origin, context: ssl.SSLContext, channel: HTTPConnection) -> None:
        target = "{}:{}".format(*way.address)
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{way.proxy_proof}\r\n".encode()
        try:
            reply = await channel.ask(request, None, tunnel=True)
        except Lost as error:
            raise CannotReachProxy(OSError(str(error))) from error
        if reply.status != 200:
            raise ProxyRefused(reply.status, reply.reason)
        name = way.server_name or way.address[0]
        transport = await self._loop.start_tls(channel.transport, channel, context, server_hostname=name)
        assert transport
        channel.use(transport)

    async def _open(
        self, address: tuple[str, int], context: ssl.SSLContext | None, server_name: str | None
    ) -> HTTPConnection:
        host, port = address
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        connected = await aiohappyeyeballs.start_connection(
            found, happy_eyeballs_delay=OTHER_ADDRESS_SECONDS, interleave=1, loop=self._loop
        )
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = (server_name or host) if context else None
        _, channel = await self._loop.create_connection(
            HTTPConnection, sock=connected, ssl=context, server_hostname=name
        )
        if self._closed:  # while we knocked
            channel.abort()
            raise CannotConnect(OSError("this client was closed"))
        self._all.add(channel)
        channel.lost.add_done_callback(lambda _: self._all.discard(channel))
        return channel


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    name = parts.hostname or ""
    host = name if ":" in name else name.encode("idna").decode()
    return host, parts.port or (443 if parts.scheme == "https" else 80)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].encode("idna").decode()
