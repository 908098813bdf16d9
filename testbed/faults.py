"""What does a client do when its API server misbehaves? A proxy before a real one that misbehaves on a rule.

A proxy is one client's network: clients that shall fail apart get one each. It passes no upgrades (exec, attach) on.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from enum import Enum
from io import BytesIO
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from paddle_operator.kube.config.server import ServerConfig, StaticServerConfig
from testbed.exchange import Doom, Exchange, Fault, end_to_end, reset, status_of
from testbed.request_log import Asked, Pattern, Seen, asked, peak_per_second, user_of

KEPT_REQUESTS = 50_000  # minutes at a few hundred a second
LAST_WORDS_SECONDS = 0.01  # aiohttp's client drops what it has not read yet when a reset comes: let it read first


class Rule:
    """A fault in force: it ends after its times, when removed, or with the `with` block that it heads."""

    def __init__(
        self, pattern: Pattern, predicate: Callable[[Asked], bool] | None, deed: Fault | Doom, times: int | None
    ) -> None:
        self.fired = 0
        self.deed = deed
        self._pattern = pattern
        self._predicate = predicate
        self._times = times
        self._fires = asyncio.Event()

    @property
    def spent(self) -> bool:
        return self._times is not None and self.fired >= self._times

    def fits(self, asked: Asked) -> bool:
        if self.spent or (isinstance(self.deed, Doom) and not asked.streams):
            return False
        return self._pattern.fits(asked) and (self._predicate is None or self._predicate(asked))

    def fire(self) -> None:
        self.fired += 1
        self._fires.set()
        self._fires = asyncio.Event()

    def remove(self) -> None:
        """No more from now on; a request that it has already met is not spared."""
        self._times = 0

    async def has_fired(self, times: int = 1) -> None:
        """Wait until it has fired that often."""
        while self.fired < times:
            await self._fires.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class When:
    """The requests that are meant; each method says what befalls them, `times` times or until its rule is removed."""

    def __init__(self, add: Callable[[Fault | Doom, int | None], Rule]) -> None:
        self._add = add

    def answer(
        self,
        code: int,
        *,
        retry_after: int | None = None,
        reason: str = "",
        message: str = "",
        times: int | None = None,
    ) -> Rule:
        """A Status of this code, without asking the server; the reason is the code's own if none is given."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            status = status_of(exchange.asked, code, retry_after=retry_after, reason=reason, message=message)
            return await exchange.refuse(status, code, retry_after)

        return self._add(fault, times)

    def cut_before(self, *, times: int | None = None) -> Rule:
        """A reset instead of an answer; the server never hears of the request."""
        return self._add(Exchange.cut, times)

    def cut_after(self, *, times: int | None = None) -> Rule:
        """A reset instead of an answer, although the server has acted."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await exchange.ask()
            await exchange.cut()

        return self._add(fault, times)

    def hang(self, *, times: int | None = None) -> Rule:
        """The server acts, and its answer never comes."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await exchange.ask()
            await exchange.fall_silent()

        return self._add(fault, times)

    def delay(self, seconds: float, *, times: int | None = None) -> Rule:
        """The request reaches the server late."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await asyncio.sleep(seconds)
            return await pass_on(exchange)

        return self._add(fault, times)

    def hold(self, until: asyncio.Event, *, times: int | None = None) -> Rule:
        """The request reaches the server when the test says so."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await until.wait()
            return await pass_on(exchange)

        return self._add(fault, times)

    def delay_answer(self, seconds: float, *, times: int | None = None) -> Rule:
        """The server acts at once, and its answer comes late."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            reply = await exchange.ask()
            await asyncio.sleep(seconds)
            return await exchange.relay(reply)

        return self._add(fault, times)

    # What follows befalls only watches and followed logs: those that run already, and those to come.

    def cut_watch(self, *, after_events: int = 0, times: int | None = None) -> Rule:
        """A reset in the middle of the stream."""

        async def ending(exchange: Exchange) -> web.StreamResponse:
            await asyncio.sleep(LAST_WORDS_SECONDS if after_events else 0)
            await exchange.cut()

        return self._add(Doom(ending, after_events), times)

    def end_watch(self, *, after_events: int = 0, times: int | None = None) -> Rule:
        """A clean end, as when the server's own time limit for a watch is over."""
        return self._add(Doom(Exchange.finish, after_events), times)

    def stall(self, *, after_events: int = 0, times: int | None = None) -> Rule:
        """The connection stays open and nothing more comes through, not even its end."""
        return self._add(Doom(Exchange.fall_silent, after_events), times)

    def expire(self, *, after_events: int = 0, times: int | None = None) -> Rule:
        """An ERROR event that says 410, then a clean end."""
        return self._add(Doom(Exchange.expire, after_events), times)


class Gate(Enum):
    """What meets a new connection."""

    OPEN = "open"
    DENIES = "denies"
    SWALLOWS = "swallows"


class TurnedAway(asyncio.Protocol):
    """A connection that came while the gate was not open."""

    def __init__(self, gate: Gate, held: set[asyncio.BaseTransport]) -> None:
        self._gate = gate
        self._held = held

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._held.add(transport)
        if self._gate is Gate.DENIES:
            reset(transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._held.discard(self._transport)


class FaultProxy:
    """Plain HTTP on loopback before `upstream`, whose TLS must show no client certificate: here users are tokens."""

    def __init__(self, upstream: ServerConfig) -> None:
        self._upstream = upstream
        self._gate = Gate.OPEN
        self._rules: list[Rule] = []
        self._running: dict[Exchange, None] = {}  # a set that remembers who came first
        self._held: set[asyncio.BaseTransport] = set()
        self._seen: dict[int, Seen] = {}
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
        )
        self._http = web.Server(self._serve, handler_cancellation=True, access_log=None, auto_decompress=False)
        self._listener = await asyncio.get_running_loop().create_server(self._newcomer, "127.0.0.1", 0, backlog=1024)
        self.url = "http://127.0.0.1:{1}".format(*self._listener.sockets[0].getsockname())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.deny()
        await asyncio.sleep(0)  # a connection accepted a moment ago is not in anybody's list yet
        self.deny()
        await self._http.shutdown(timeout=5)
        await self._listener.wait_closed()
        await self._session.close()

    def connection(self, token: str = "") -> StaticServerConfig:
        """How a client with this token reaches the server through the proxy."""
        return StaticServerConfig(self.url, token)

    def when(
        self,
        predicate: Callable[[Asked], bool] | None = None,
        *,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        token: str | None = None,
    ) -> When:
        """The requests meant by a rule: `proxy.when(verb="create", resource="pods").answer(409, times=2)`.

        Words may be shell patterns, and one left out fits everything. Of the rules that fit, the newest decides alone.
        """
        user = None if token is None else user_of(token)
        pattern = Pattern(verb, resource, subresource, namespace, name, user)
        return When(lambda deed, times: self._add(Rule(pattern, predicate, deed, times)))

    def deny(self) -> None:
        """Reset every open connection and, until healed, every new one."""
        self._gate = Gate.DENIES
        transports = [connection.transport for connection in self._http.connections]
        for transport in (*transports, *self._held):
            if transport is not None:
                reset(transport)

    def black_hole(self) -> None:
        """Answer nothing, neither to what runs nor, until healed, to what comes; who was not answered then never is."""
        self._gate = Gate.SWALLOWS
        for exchange in self._running:
            exchange.strike(Exchange.fall_silent)

    def heal(self) -> None:
        """Let new connections through again; rules stay as they are."""
        self._gate = Gate.OPEN

    @property
    def requests(self) -> list[Seen]:
        """The last requests, oldest first, and the connections that were turned away."""
        return list(self._seen.values())

    def seen(
        self,
        *,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        token: str | None = None,
    ) -> list[Seen]:
        """Those that `when` would mean: `len(proxy.seen(verb="create"))`."""
        pattern = Pattern(verb, resource, subresource, namespace, name, None if token is None else user_of(token))
        return [one for one in self._seen.values() if pattern.fits(one)]

    def peak_per_second(self, requests: Iterable[Seen] | None = None) -> int:
        """The most of these requests, or of all on record, in any one second."""
        return peak_per_second(self._seen.values() if requests is None else requests)

    def forget(self) -> None:
        """Begin the record anew, as at the start of an outage."""
        self._seen.clear()

    def _add(self, rule: Rule) -> Rule:
        self._rules = [rule, *(older for older in self._rules if not older.spent)]
        if isinstance(rule.deed, Doom):
            for exchange in [one for one in self._running if rule.fits(one.asked)]:
                if not rule.spent:
                    rule.fire()
                    exchange.meet(rule.deed)
        return rule

    def _newcomer(self) -> asyncio.Protocol:
        if self._gate is Gate.OPEN:
            return self._http()
        self._note(Seen(time.monotonic(), "connect"))
        return TurnedAway(self._gate, self._held)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        body = await request.content.read()  # request.read() would refuse more than 1 MiB, which a CRD can have
        meant = asked(request.method, request.path, request.query, token, body)
        seen = Seen(
            time.monotonic(), meant.verb, meant.resource, meant.subresource, meant.namespace, meant.name, meant.user
        )
        number = self._note(seen)

        def told(code: int) -> None:
            if number in self._seen:
                self._seen[number] = msgspec.structs.replace(seen, code=code)

        exchange = Exchange(meant, request, self._forward, told)
        self._running[exchange] = None
        try:
            return await exchange.run(self._fault_for(exchange))
        finally:
            del self._running[exchange]

    def _fault_for(self, exchange: Exchange) -> Fault:
        if self._gate is Gate.DENIES:  # accepted before, but too young to be in aiohttp's list when the gate was shut
            return Exchange.cut
        if self._gate is Gate.SWALLOWS:
            return Exchange.fall_silent
        for rule in self._rules:
            if rule.fits(exchange.asked):
                rule.fire()
                if not isinstance(rule.deed, Doom):
                    return rule.deed
                exchange.meet(rule.deed)
                break
        return pass_on

    async def _forward(self, request: web.BaseRequest, body: bytes) -> aiohttp.ClientResponse:
        return await self._session.request(
            request.method,
            URL(self._upstream.server + request.raw_path, encoded=True),
            headers=end_to_end(request.headers),
            data=BytesIO(body) if body else None,  # plain bytes of more than 1 MiB make aiohttp warn
            ssl=await self._upstream.tls() or True,
            server_hostname=self._upstream.server_name,
            proxy=self._upstream.proxy,
            allow_redirects=False,
        )

    def _note(self, seen: Seen) -> int:
        number = next(self._numbers)
        self._seen[number] = seen
        if len(self._seen) > KEPT_REQUESTS:
            del self._seen[next(iter(self._seen))]
        return number


async def pass_on(exchange: Exchange) -> web.StreamResponse:
    """No fault at all."""
    return await exchange.relay(await exchange.ask())
