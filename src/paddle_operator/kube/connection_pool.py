"""Connections to API servers: opened when needed, through a proxy if one is configured, and reused.

An idle connection is closed after 15 s: load balancers drop idle ones after a minute or more, without closing them.
"""

import asyncio
import base64
import socket
import ssl
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote, urlsplit

import aiohappyeyeballs

from paddle_operator.kube.http_connection import ConnectionLost, HTTPConnection

CONNECT_SECONDS = 10.0
IDLE_CONNECTION_SECONDS = 15.0
HAPPY_EYEBALLS_SECONDS = 0.25  # then the next address of a name is tried beside the first


class ConnectError(Exception):
    """The connection could not be opened: nothing was sent."""

    def __init__(self, reason: OSError | None) -> None:
        """Without a reason it timed out."""
        super().__init__(str(reason or "timed out"))
        self.reason = reason


class ProxyConnectError(ConnectError):
    pass


class ProxyRefused(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} ({status})")
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Origin:
    """How a server is reached. Only requests with an equal origin share connections."""

    server: str  # the base URL
    context: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None

    def __post_init__(self) -> None:
        assert self.context or self.server.startswith("http://"), "without TLS a token would be sent in clear text"

    @cached_property
    def address(self) -> tuple[str, int]:
        return _host_and_port(self.server)

    @cached_property
    def host(self) -> str:
        """The Host header."""
        return _host_header(self.server)

    @cached_property
    def target_prefix(self) -> str:
        """What precedes the path in a request line: a forwarding proxy needs the absolute URL."""
        prefix = f"http://{self.host}" if self.proxy and self.context is None else ""
        return prefix + urlsplit(self.server).path

    @cached_property
    def proxy_authorization(self) -> str:
        """The header line with the proxy's user and password, empty if it has none."""
        parts = urlsplit(self.proxy or "")
        if parts.username is None:
            return ""
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"


class ConnectionPool:
    """Open connections by origin. Call close() at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Origin, list[HTTPConnection]] = {}
        self._all: set[HTTPConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def acquire(self, origin: Origin) -> HTTPConnection:
        """An idle or new connection, to be released. Raises ConnectError, ProxyRefused or ssl.SSLError."""
        return self._take_idle(origin) or await self._connect(origin)

    def release(self, origin: Origin, connection: HTTPConnection) -> None:
        """Keep the connection for reuse if its response was read to the end, otherwise close it."""
        if connection.reusable and not self._closed:
            self._add_idle(origin, connection)
        else:
            connection.abort()

    async def close(self) -> None:
        self._closed = True
        if self._sweep:
            self._sweep.cancel()
        remaining, self._all = self._all, set()
        self._idle.clear()
        for connection in remaining:
            connection.abort()
        await asyncio.gather(*(connection.closed for connection in remaining))

    # Idle connections

    def _take_idle(self, origin: Origin) -> HTTPConnection | None:
        """The most recently used one, so that the others time out when there are few requests."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if not connection.broken:
                return connection
        return None

    def _add_idle(self, origin: Origin, connection: HTTPConnection) -> None:
        connection.idle_since = self._loop.time()
        self._idle.setdefault(origin, []).append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_CONNECTION_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        latest = self._loop.time() - IDLE_CONNECTION_SECONDS
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since <= latest:
                    connection.abort()
            self._idle[origin] = [connection for connection in idle if connection.idle_since > latest]
            if not self._idle[origin]:
                del self._idle[origin]
        oldest = min((connection.idle_since for idle in self._idle.values() for connection in idle), default=None)
        self._sweep = None if oldest is None else self._loop.call_at(oldest + IDLE_CONNECTION_SECONDS, self._close_idle)

    # New connections

    async def _connect(self, origin: Origin) -> HTTPConnection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if origin.proxy:
                    return await self._connect_through_proxy(origin, origin.proxy)
                return await self._open(origin.address, origin.context, origin.server_name)
        except ssl.SSLError:
            raise
        except TimeoutError:
            raise ConnectError(None) from None
        except OSError as error:
            raise ConnectError(error) from error

    async def _connect_through_proxy(self, origin: Origin, proxy: str) -> HTTPConnection:
        try:
            connection = await self._open(
                _host_and_port(proxy), origin.context if proxy.startswith("https://") else None, None
            )
        except ssl.SSLError:
            raise
        except OSError as error:
            raise ProxyConnectError(error) from error
        try:
            if origin.context:
                await self._open_tunnel(origin, origin.context, connection)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _open_tunnel(self, origin: Origin, context: ssl.SSLContext, connection: HTTPConnection) -> None:
        target = "{}:{}".format(*origin.address)
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{origin.proxy_authorization}\r\n".encode()
        try:
            response = await connection.request(request, None, tunnel=True)
        except ConnectionLost as error:
            raise ProxyConnectError(OSError(str(error))) from error
        if response.status != 200:
            raise ProxyRefused(response.status, response.reason)
        name = origin.server_name or origin.address[0]
        transport = await self._loop.start_tls(connection.transport, connection, context, server_hostname=name)
        assert transport
        connection.replace_transport(transport)

    async def _open(
        self, address: tuple[str, int], context: ssl.SSLContext | None, server_name: str | None
    ) -> HTTPConnection:
        host, port = address
        addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        sock = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=HAPPY_EYEBALLS_SECONDS, interleave=1, loop=self._loop
        )
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = (server_name or host) if context else None
        _, connection = await self._loop.create_connection(HTTPConnection, sock=sock, ssl=context, server_hostname=name)
        if self._closed:  # while this one connected
            connection.abort()
            raise ConnectError(OSError("this client was closed"))
        self._all.add(connection)
        connection.closed.add_done_callback(lambda _: self._all.discard(connection))
        return connection


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    name = parts.hostname or ""
    host = name if ":" in name else name.encode("idna").decode()
    return host, parts.port or (443 if parts.scheme == "https" else 80)


def _host_header(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].encode("idna").decode()
