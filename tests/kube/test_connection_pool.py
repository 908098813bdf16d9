"""Connections that are kept, closed, broken and held up, against a server that does what the test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from paddle_operator.kube import connection_pool as module
from paddle_operator.kube.connection_pool import CannotConnect, CannotReachProxy, ConnectionPool, Origin, ProxyRefused
from paddle_operator.kube.http_connection import MUCH, HTTPConnection, Lost, Reply

ASK = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OPEN_ENDED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

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

    def way(self, context: ssl.SSLContext | None = None, proxy: str | None = None) -> Origin:
        return Origin(self.url, context, None, proxy)


async def answer_always(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(ANSWER)


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
async def channels() -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool()
    yield made
    await made.close()


@asynccontextmanager
async def asked(channels: ConnectionPool, way: Origin, read_timeout: float | None = None) -> AsyncIterator[Reply]:
    channel = await channels.take(way)
    try:
        yield await channel.ask(ASK, read_timeout)
    finally:
        channels.give_back(way, channel)


async def read(channels: ConnectionPool, way: Origin, read_timeout: float | None = None) -> bytes:
    async with asked(channels, way, read_timeout) as reply:
        return await reply.read()


async def test_one_connection_serves_one_request_after_another(channels: ConnectionPool) -> None:
    async with Server(answer_always) as server:
        for _ in range(3):
            assert await read(channels, server.way()) == b"{}"
        assert server.connections == 1
        await asyncio.gather(*(read(channels, server.way()) for _ in range(3)))
        assert server.connections == 3


async def test_who_comes_another_way_does_not_share_a_connection(channels: ConnectionPool) -> None:
    async with Server(answer_always) as server:
        await read(channels, server.way())
        await read(channels, Origin(server.url, None, "another.example", None))
        assert server.connections == 2


async def test_what_is_idle_is_closed_after_a_while(channels: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_SECONDS", 0.05)
    async with Server(answer_always) as server:
        await asyncio.gather(*(read(channels, server.way()) for _ in range(2)))
        await server.until_open(0)
        assert await read(channels, server.way()) == b"{}"


async def test_a_connection_that_the_server_has_closed_is_not_used_again(channels: ConnectionPool) -> None:
    async with Server(says(ANSWER)) as server:
        for number in (1, 2):
            assert await read(channels, server.way()) == b"{}"
            assert server.connections == number
            await until_all_kept_are_broken(channels, server.way())


async def test_a_server_that_speaks_unasked_is_left(channels: ConnectionPool) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answered.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await reader.read()

    answered = asyncio.Event()
    async with Server(says(ANSWER, then=speak)) as server:
        assert await read(channels, server.way()) == b"{}"
        answered.set()
        await until_all_kept_are_broken(channels, server.way())
        answered.clear()
        assert await read(channels, server.way()) == b"{}"
        assert server.connections == 2


async def until_all_kept_are_broken(channels: ConnectionPool, way: Origin) -> None:
    while any(not channel.broken for channel in channels._free.get(way, [])):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "Server disconnected"),
        (ANSWER[:-1], "Server disconnected"),
        (OPEN_ENDED + b"5\r\nabc", "Server disconnected"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "invalid HTTP response: Expected HTTP/"),
    ],
)
async def test_an_answer_that_breaks_off_is_told_as_lost(channels: ConnectionPool, text: bytes, words: str) -> None:
    async with Server(says(text)) as server:
        with pytest.raises(Lost, match=words):
            await read(channels, server.way())
        await server.until_open(0)


async def test_silence_ends_the_wait_and_the_connection(channels: ConnectionPool) -> None:
    async with Server(says(OPEN_ENDED, b"2\r\nab\r\n", then=stay)) as server:
        with pytest.raises(TimeoutError):
            await read(channels, server.way(), read_timeout=0.05)
        await server.until_open(0)


async def test_a_server_that_speaks_now_and_then_is_not_silent() -> None:
    loop, channel = asyncio.get_running_loop(), HTTPConnection()
    waiting = asyncio.ensure_future(channel.until(lambda: False, 3600))
    await asyncio.sleep(0)
    channel._heard_at = loop.time() - 1800
    channel._listen(3600)  # the timer rings, but half an hour ago there was a word
    await asyncio.sleep(0)
    assert not waiting.done()
    channel._heard_at = loop.time() - 3600
    channel._listen(3600)
    with pytest.raises(TimeoutError):
        await waiting


async def test_who_gives_up_takes_the_connection_along(channels: ConnectionPool) -> None:
    async with Server(says(OPEN_ENDED, then=stay)) as server:
        asking = asyncio.ensure_future(read(channels, server.way()))
        await server.until_open(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.until_open(0)


async def test_who_leaves_a_stream_takes_the_connection_along(channels: ConnectionPool) -> None:
    async with Server(says(OPEN_ENDED, b"1\r\na\r\n", then=stay)) as server:
        async with asked(channels, server.way()) as reply:
            assert await anext(aiter(reply.parts())) == b"a"
        await server.until_open(0)


async def test_a_reader_that_takes_its_time_keeps_the_server_waiting(channels: ConnectionPool) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()
            sent += 0x10000

    async with Server(says(OPEN_ENDED, then=flood)) as server, asked(channels, server.way()) as reply:
        parts = aiter(reply.parts())
        taken = len(await anext(parts))
        before = -1
        while before != sent:  # until the server's own buffers are full
            before = sent
            await asyncio.sleep(0.2)
        held = sent
        while taken <= held:  # it goes on when what waited was taken
            part = await anext(parts)
            assert len(part) <= 2 * MUCH
            taken += len(part)


async def test_a_large_answer_comes_whole_where_a_stream_was_read_before(channels: ConnectionPool) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (8 * MUCH) + b"x" * 8 * MUCH)
        await reader.read()

    async with Server(says(OPEN_ENDED, b"1\r\na\r\n0\r\n\r\n", then=answer)) as server:
        async with asked(channels, server.way()) as reply:
            assert [part async for part in reply.parts()] == [b"a"]
            reply.hold()
        assert len(await read(channels, server.way())) == 8 * MUCH
        assert server.connections == 1


async def test_a_connection_that_nothing_was_sent_on_is_not_kept(channels: ConnectionPool) -> None:
    async with Server(stay) as server:
        channels.give_back(server.way(), await channels.take(server.way()))
        async with server.changed:
            await server.changed.wait_for(lambda: (server.connections, server.open) == (1, 0))


async def test_closing_leaves_no_connection_and_fails_who_still_asks() -> None:
    channels = ConnectionPool()
    async with Server(says(OPEN_ENDED, then=stay)) as server:
        asking = asyncio.ensure_future(read(channels, server.way()))
        await server.until_open(1)
        await channels.close()
        with pytest.raises((Lost, CannotConnect)):
            await asking
        await server.until_open(0)


async def test_nobody_there_and_nobody_who_answers_are_told(
    channels: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotConnect) as refused:
        await read(channels, Origin("http://127.0.0.1:1", None, None, None))
    assert isinstance(refused.value.reason, ConnectionRefusedError)
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.05)
    async with Server(stay) as deaf:  # never says a word of TLS
        way = Origin(deaf.url.replace("http:", "https:"), ssl.create_default_context(), None, None)
        with pytest.raises(CannotConnect, match="no answer in time"):
            await read(channels, way)
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
            writer.write(ANSWER)
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
    channels: ConnectionPool, trust: tuple[ssl.SSLContext, ssl.SSLContext], proxy_speaks_tls: bool
) -> None:
    served, trusting = trust
    async with (
        Server(answer_always, served) as server,
        a_proxy(served if proxy_speaks_tls else None) as (proxy, heads),
    ):
        for _ in range(2):
            assert await read(channels, server.way(trusting, proxy)) == b"{}"
        (head,) = heads
        assert head.startswith(b"CONNECT " + server.url.removeprefix("https://").encode())
        assert PROOF in head


async def test_a_plain_request_is_for_the_proxy_to_pass_on(channels: ConnectionPool) -> None:
    async with a_proxy() as (proxy, _):
        way = Origin("http://far.example/base", None, None, proxy)
        assert await read(channels, way) == b"{}"
        assert (way.base, way.proxy_proof.encode()) == ("http://far.example/base", PROOF)


async def test_a_proxy_that_refuses_or_is_not_there_is_told(
    channels: ConnectionPool, trust: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    async with a_proxy(status=b"407 Proxy Authentication Required") as (proxy, _):
        with pytest.raises(ProxyRefused, match=r"Proxy Authentication Required \(407\)"):
            await read(channels, Origin("https://127.0.0.1:1", trust[1], None, proxy))
    with pytest.raises(CannotReachProxy):
        await read(channels, Origin("https://far.example", trust[1], None, "http://127.0.0.1:1"))
    async with Server(says(b"")) as mute:
        with pytest.raises(CannotReachProxy, match="Server disconnected"):
            await read(channels, Origin("https://far.example", trust[1], None, mute.url))


@pytest.mark.parametrize("through_proxy", [False, True])
async def test_a_server_whom_nobody_vouches_for_is_not_spoken_to(
    trust: tuple[ssl.SSLContext, ssl.SSLContext], through_proxy: bool
) -> None:
    channels = ConnectionPool()
    async with Server(answer_always, trust[0]) as server, a_proxy() as (proxy, _):
        with pytest.raises(ssl.SSLCertVerificationError):
            await read(channels, server.way(ssl.create_default_context(), proxy if through_proxy else None))
        await channels.close()


def test_a_token_is_never_sent_in_the_clear_to_a_server_that_speaks_tls() -> None:
    with pytest.raises(AssertionError):
        Origin("https://far.example", None, None, None)
