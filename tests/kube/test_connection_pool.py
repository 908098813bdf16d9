"""Connections that are kept, closed, broken and held up, against a server that does what the test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from paddle_operator.kube import connection_pool as module
from paddle_operator.kube.connection_pool import ConnectError, ConnectionPool, Origin, ProxyConnectError, ProxyRefused
from paddle_operator.kube.http_connection import MAX_BUFFERED_BYTES, ConnectionLost, HTTPConnection, HTTPResponse

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Calls `serve` for each connection, and knows how many there were and how many are open."""

    def __init__(self, serve: Serve, context: ssl.SSLContext | None = None) -> None:
        self._serve, self._context = serve, context
        self.connections = 0
        self.open = 0
        self.changed = asyncio.Condition()
        self.url = ""

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._one, "127.0.0.1", 0, ssl=self._context)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._context else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._count(1)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            await self._count(-1)

    async def _count(self, change: int) -> None:
        async with self.changed:
            self.connections += max(change, 0)
            self.open += change
            self.changed.notify_all()

    async def until_open(self, number: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.open == number)

    def origin(self, context: ssl.SSLContext | None = None, proxy: str | None = None) -> Origin:
        return Origin(self.url, context, None, proxy)


async def answer_always(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(RESPONSE)


def says(*portions: bytes, then: Serve | None = None) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for portion in portions:
            writer.write(portion)
            await writer.drain()
        if then:
            await then(reader, writer)

    return serve


async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool()
    yield made
    await made.close()


@asynccontextmanager
async def asked(pool: ConnectionPool, origin: Origin, read_timeout: float | None = None) -> AsyncIterator[HTTPResponse]:
    connection = await pool.acquire(origin)
    try:
        yield await connection.request(REQUEST, read_timeout)
    finally:
        pool.release(origin, connection)


async def read(pool: ConnectionPool, origin: Origin, read_timeout: float | None = None) -> bytes:
    async with asked(pool, origin, read_timeout) as response:
        return await response.read()


async def test_one_connection_serves_one_request_after_another(pool: ConnectionPool) -> None:
    async with Server(answer_always) as server:
        for _ in range(3):
            assert await read(pool, server.origin()) == b"{}"
        assert server.connections == 1
        await asyncio.gather(*(read(pool, server.origin()) for _ in range(3)))
        assert server.connections == 3


async def test_who_comes_another_way_does_not_share_a_connection(pool: ConnectionPool) -> None:
    async with Server(answer_always) as server:
        await read(pool, server.origin())
        await read(pool, Origin(server.url, None, "another.example", None))
        assert server.connections == 2


async def test_what_is_idle_is_closed_after_a_while(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_CONNECTION_SECONDS", 0.05)
    async with Server(answer_always) as server:
        await asyncio.gather(*(read(pool, server.origin()) for _ in range(2)))
        await server.until_open(0)
        assert await read(pool, server.origin()) == b"{}"


async def test_connection_closed_by_the_server_is_not_reused(pool: ConnectionPool) -> None:
    async with Server(says(RESPONSE)) as server:
        for number in (1, 2):
            assert await read(pool, server.origin()) == b"{}"
            assert server.connections == number
            await until_all_kept_are_broken(pool, server.origin())


async def test_a_server_that_speaks_unasked_is_left(pool: ConnectionPool) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answered.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await reader.read()

    answered = asyncio.Event()
    async with Server(says(RESPONSE, then=speak)) as server:
        assert await read(pool, server.origin()) == b"{}"
        answered.set()
        await until_all_kept_are_broken(pool, server.origin())
        answered.clear()
        assert await read(pool, server.origin()) == b"{}"
        assert server.connections == 2


async def until_all_kept_are_broken(pool: ConnectionPool, origin: Origin) -> None:
    while any(not connection.broken for connection in pool._idle.get(origin, [])):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "Server disconnected"),
        (RESPONSE[:-1], "Server disconnected"),
        (ENDLESS + b"5\r\nabc", "Server disconnected"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "invalid HTTP response: Expected HTTP/"),
    ],
)
async def test_an_answer_that_breaks_off_is_told_as_lost(pool: ConnectionPool, text: bytes, words: str) -> None:
    async with Server(says(text)) as server:
        with pytest.raises(ConnectionLost, match=words):
            await read(pool, server.origin())
        await server.until_open(0)


async def test_silence_ends_the_wait_and_the_connection(pool: ConnectionPool) -> None:
    async with Server(says(ENDLESS, b"2\r\nab\r\n", then=stay)) as server:
        with pytest.raises(TimeoutError):
            await read(pool, server.origin(), read_timeout=0.05)
        await server.until_open(0)


async def test_a_server_that_speaks_now_and_then_is_not_silent() -> None:
    loop, connection = asyncio.get_running_loop(), HTTPConnection()
    waiting = asyncio.ensure_future(connection.wait_for(lambda: False, 3600))
    await asyncio.sleep(0)
    connection._received_at = loop.time() - 1800
    connection._check_read_timeout(3600)  # the timer rings, but half an hour ago there was a word
    await asyncio.sleep(0)
    assert not waiting.done()
    connection._received_at = loop.time() - 3600
    connection._check_read_timeout(3600)
    with pytest.raises(TimeoutError):
        await waiting


async def test_who_gives_up_takes_the_connection_along(pool: ConnectionPool) -> None:
    async with Server(says(ENDLESS, then=stay)) as server:
        asking = asyncio.ensure_future(read(pool, server.origin()))
        await server.until_open(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.until_open(0)


async def test_who_leaves_a_stream_takes_the_connection_along(pool: ConnectionPool) -> None:
    async with Server(says(ENDLESS, b"1\r\na\r\n", then=stay)) as server:
        async with asked(pool, server.origin()) as response:
            assert await anext(aiter(response.stream())) == b"a"
        await server.until_open(0)


async def test_a_reader_that_takes_its_time_keeps_the_server_waiting(pool: ConnectionPool) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()
            sent += 0x10000

    async with Server(says(ENDLESS, then=flood)) as server, asked(pool, server.origin()) as response:
        parts = aiter(response.stream())
        taken = len(await anext(parts))
        before = -1
        while before != sent:  # until the server's own buffers are full
            before = sent
            await asyncio.sleep(0.2)
        held = sent
        while taken <= held:  # it goes on when what waited was taken
            part = await anext(parts)
            assert len(part) <= 2 * MAX_BUFFERED_BYTES
            taken += len(part)


async def test_large_response_after_a_stream_is_complete(pool: ConnectionPool) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (8 * MAX_BUFFERED_BYTES) + b"x" * 8 * MAX_BUFFERED_BYTES
        )
        await reader.read()

    async with Server(says(ENDLESS, b"1\r\na\r\n0\r\n\r\n", then=answer)) as server:
        async with asked(pool, server.origin()) as response:
            assert [part async for part in response.stream()] == [b"a"]
            response.pause_reading()
        assert len(await read(pool, server.origin())) == 8 * MAX_BUFFERED_BYTES
        assert server.connections == 1


async def test_a_connection_that_nothing_was_sent_on_is_not_kept(pool: ConnectionPool) -> None:
    async with Server(stay) as server:
        pool.release(server.origin(), await pool.acquire(server.origin()))
        async with server.changed:
            await server.changed.wait_for(lambda: (server.connections, server.open) == (1, 0))


async def test_closing_leaves_no_connection_and_fails_who_still_asks() -> None:
    pool = ConnectionPool()
    async with Server(says(ENDLESS, then=stay)) as server:
        asking = asyncio.ensure_future(read(pool, server.origin()))
        await server.until_open(1)
        await pool.close()
        with pytest.raises((ConnectionLost, ConnectError)):
            await asking
        await server.until_open(0)


async def test_nobody_there_and_nobody_who_answers_are_told(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConnectError) as refused:
        await read(pool, Origin("http://127.0.0.1:1", None, None, None))
    assert isinstance(refused.value.reason, ConnectionRefusedError)
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.05)
    async with Server(stay) as deaf:  # never says a word of TLS
        origin = Origin(deaf.url.replace("http:", "https:"), ssl.create_default_context(), None, None)
        with pytest.raises(ConnectError, match="timed out"):
            await read(pool, origin)
        await deaf.until_open(0)


# Proxies


@asynccontextmanager
async def a_proxy(
    context: ssl.SSLContext | None = None, status: bytes = b"200 OK"
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Its URL with a password, and the heads that it was sent; it opens tunnels and answers plain requests itself."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head := await reader.readuntil(b"\r\n\r\n"))
        if not head.startswith(b"CONNECT"):
            writer.write(RESPONSE)
            return
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n")
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        finally:
            far_writer.transport.abort()

    async with Server(serve, context) as server:
        yield server.url.replace("://", "://me:p%40ss@"), heads


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while some := await reader.read(65536):
        writer.write(some)
    writer.transport.abort()


PROOF = b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n"  # me:p@ss


@pytest.fixture
def trust() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the server and for the client."""
    authority = trustme.CA()
    served, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    authority.configure_trust(trusting)
    return served, trusting


@pytest.mark.parametrize("proxy_speaks_tls", [False, True])
async def test_a_server_is_reached_through_a_proxys_tunnel(
    pool: ConnectionPool, trust: tuple[ssl.SSLContext, ssl.SSLContext], proxy_speaks_tls: bool
) -> None:
    served, trusting = trust
    async with (
        Server(answer_always, served) as server,
        a_proxy(served if proxy_speaks_tls else None) as (proxy, heads),
    ):
        for _ in range(2):
            assert await read(pool, server.origin(trusting, proxy)) == b"{}"
        (head,) = heads
        assert head.startswith(b"CONNECT " + server.url.removeprefix("https://").encode())
        assert PROOF in head


async def test_a_plain_request_is_for_the_proxy_to_pass_on(pool: ConnectionPool) -> None:
    async with a_proxy() as (proxy, _):
        origin = Origin("http://far.example/base", None, None, proxy)
        assert await read(pool, origin) == b"{}"
        assert (origin.target_prefix, origin.proxy_authorization.encode()) == ("http://far.example/base", PROOF)


async def test_a_proxy_that_refuses_or_is_not_there_is_told(
    pool: ConnectionPool, trust: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    async with a_proxy(status=b"407 Proxy Authentication Required") as (proxy, _):
        with pytest.raises(ProxyRefused, match=r"Proxy Authentication Required \(407\)"):
            await read(pool, Origin("https://127.0.0.1:1", trust[1], None, proxy))
    with pytest.raises(ProxyConnectError):
        await read(pool, Origin("https://far.example", trust[1], None, "http://127.0.0.1:1"))
    async with Server(says(b"")) as mute:
        with pytest.raises(ProxyConnectError, match="Server disconnected"):
            await read(pool, Origin("https://far.example", trust[1], None, mute.url))


@pytest.mark.parametrize("through_proxy", [False, True])
async def test_a_server_whom_nobody_vouches_for_is_not_spoken_to(
    trust: tuple[ssl.SSLContext, ssl.SSLContext], through_proxy: bool
) -> None:
    pool = ConnectionPool()
    async with Server(answer_always, trust[0]) as server, a_proxy() as (proxy, _):
        with pytest.raises(ssl.SSLCertVerificationError):
            await read(pool, server.origin(ssl.create_default_context(), proxy if through_proxy else None))
        await pool.close()


def test_https_without_tls_context_is_refused() -> None:
    with pytest.raises(AssertionError):
        Origin("https://far.example", None, None, None)
