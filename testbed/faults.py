"""A proxy in front of an API server that injects faults by rule: errors, resets, hangs, delays, expired watches.

A proxy is the network of one client; clients that must fail independently need one each. Upgrades (exec, attach) are
not relayed.
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
from testbed.exchange import Exchange, Fault, StreamEnd, end_to_end_headers, reset_transport, status_body
from testbed.request_log import (
    ProxiedRequest,
    RequestPattern,
    RequestRecord,
    parse_request,
    peak_per_second,
    token_digest,
)

MAX_RECORDED_REQUESTS = 50_000  # a few minutes at some hundred requests per second
RESET_DELAY_SECONDS = 0.01  # aiohttp's client discards unread data on a reset: let it read first


class FaultRule:
    """An active fault. It ends after `times` requests, by `remove`, or at the end of its `with` block."""

    def __init__(
        self,
        pattern: RequestPattern,
        predicate: Callable[[ProxiedRequest], bool] | None,
        fault: Fault | StreamEnd,
        times: int | None,
    ) -> None:
        self.fire_count = 0
        self.fault = fault
        self._pattern = pattern
        self._predicate = predicate
        self._times = times
        self._fired = asyncio.Event()

    @property
    def exhausted(self) -> bool:
        return self._times is not None and self.fire_count >= self._times

    def matches(self, info: ProxiedRequest) -> bool:
        if self.exhausted or (isinstance(self.fault, StreamEnd) and not info.streams):
            return False
        return self._pattern.matches(info) and (self._predicate is None or self._predicate(info))

    def record_fire(self) -> None:
        self.fire_count += 1
        self._fired.set()
        self._fired = asyncio.Event()

    def remove(self) -> None:
        """Stop matching requests; the fault still applies to those that it has matched."""
        self._times = 0

    async def wait_fired(self, times: int = 1) -> None:
        """Return once the rule has matched that many requests."""
        while self.fire_count < times:
            await self._fired.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class FaultBuilder:
    """Selects requests; each method adds a fault for them, `times` times or until its rule is removed."""

    def __init__(self, add: Callable[[Fault | StreamEnd, int | None], FaultRule]) -> None:
        self._add = add

    def respond_with(
        self,
        code: int,
        *,
        retry_after: int | None = None,
        reason: str = "",
        message: str = "",
        times: int | None = None,
    ) -> FaultRule:
        """Respond with a Status of this code and do not forward; the default reason is that of the code."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            status = status_body(exchange.info, code, retry_after=retry_after, reason=reason, message=message)
            return await exchange.respond(status, code, retry_after)

        return self._add(fault, times)

    def reset_before_server(self, *, times: int | None = None) -> FaultRule:
        """Reset the connection; the server does not receive the request."""
        return self._add(Exchange.reset, times)

    def reset_after_server(self, *, times: int | None = None) -> FaultRule:
        """Reset the connection instead of responding, after the server has acted."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await exchange.forward_request()
            await exchange.reset()

        return self._add(fault, times)

    def hang(self, *, times: int | None = None) -> FaultRule:
        """The server acts; the client receives no response."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await exchange.forward_request()
            await exchange.hang_forever()

        return self._add(fault, times)

    def delay(self, seconds: float, *, times: int | None = None) -> FaultRule:
        """Forward the request after a delay."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await asyncio.sleep(seconds)
            return await relay_unchanged(exchange)

        return self._add(fault, times)

    def hold(self, until: asyncio.Event, *, times: int | None = None) -> FaultRule:
        """Forward the request when the event is set."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await until.wait()
            return await relay_unchanged(exchange)

        return self._add(fault, times)

    def delay_response(self, seconds: float, *, times: int | None = None) -> FaultRule:
        """The server acts at once; its response is delayed."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            upstream = await exchange.forward_request()
            await asyncio.sleep(seconds)
            return await exchange.relay(upstream)

        return self._add(fault, times)

    # Faults of streams: watches and followed logs, both running and new ones.

    def reset_watch(self, *, after_events: int = 0, times: int | None = None) -> FaultRule:
        """Reset the connection in the middle of the stream."""

        async def fault(exchange: Exchange) -> web.StreamResponse:
            await asyncio.sleep(RESET_DELAY_SECONDS if after_events else 0)
            await exchange.reset()

        return self._add(StreamEnd(fault, after_events), times)

    def end_watch(self, *, after_events: int = 0, times: int | None = None) -> FaultRule:
        """End the stream cleanly, as the server does at its time limit for a watch."""
        return self._add(StreamEnd(Exchange.end_cleanly, after_events), times)

    def stall(self, *, after_events: int = 0, times: int | None = None) -> FaultRule:
        """Keep the connection open and relay nothing more, not even its end."""
        return self._add(StreamEnd(Exchange.hang_forever, after_events), times)

    def expire_watch(self, *, after_events: int = 0, times: int | None = None) -> FaultRule:
        """Send an ERROR event with 410 Expired, then end the stream cleanly."""
        return self._add(StreamEnd(Exchange.end_expired, after_events), times)


class Gate(Enum):
    """What the proxy does with a new connection."""

    OPEN = "open"
    RESET = "reset"
    BLACK_HOLE = "black hole"


class RejectedConnection(asyncio.Protocol):
    """A connection accepted while the gate was not open."""

    def __init__(self, gate: Gate, held: set[asyncio.BaseTransport]) -> None:
        self._gate = gate
        self._held = held

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._held.add(transport)
        if self._gate is Gate.RESET:
            reset_transport(transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._held.discard(self._transport)


class FaultProxy:
    """Plain HTTP on loopback in front of `upstream`. Users are tokens: client certificates are not relayed."""

    def __init__(self, upstream: ServerConfig) -> None:
        self._upstream = upstream
        self._gate = Gate.OPEN
        self._rules: list[FaultRule] = []
        self._running: dict[Exchange, None] = {}  # an ordered set
        self._held: set[asyncio.BaseTransport] = set()
        self._records: dict[int, RequestRecord] = {}
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
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept_connection, "127.0.0.1", 0, backlog=1024)
        self.url = "http://127.0.0.1:{1}".format(*self._listener.sockets[0].getsockname())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.reset_connections()
        await asyncio.sleep(0)  # a connection accepted a moment ago is not in any list yet
        self.reset_connections()
        await self._http.shutdown(timeout=5)
        await self._listener.wait_closed()
        await self._session.close()

    def connection(self, token: str = "") -> StaticServerConfig:
        """The configuration of a client that uses the proxy with this token."""
        return StaticServerConfig(self.url, token)

    def when(
        self,
        predicate: Callable[[ProxiedRequest], bool] | None = None,
        *,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        token: str | None = None,
    ) -> FaultBuilder:
        """Select requests: `proxy.when(verb="create", resource="pods").respond_with(409, times=2)`.

        Arguments may be shell patterns; an omitted one matches everything. Only the newest matching rule applies.
        """
        user = None if token is None else token_digest(token)
        pattern = RequestPattern(verb, resource, subresource, namespace, name, user)
        return FaultBuilder(lambda fault, times: self._add(FaultRule(pattern, predicate, fault, times)))

    def reset_connections(self) -> None:
        """Reset every open connection and, until `heal`, every new one."""
        self._gate = Gate.RESET
        transports = [connection.transport for connection in self._http.connections]
        for transport in (*transports, *self._held):
            if transport is not None:
                reset_transport(transport)

    def black_hole(self) -> None:
        """Send nothing to running requests, ever, and nothing to new ones until `heal`."""
        self._gate = Gate.BLACK_HOLE
        for exchange in self._running:
            exchange.interrupt(Exchange.hang_forever)

    def heal(self) -> None:
        """Accept new connections again; rules stay active."""
        self._gate = Gate.OPEN

    @property
    def requests(self) -> list[RequestRecord]:
        """The last requests, oldest first, and the rejected connections."""
        return list(self._records.values())

    def find_requests(
        self,
        *,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        token: str | None = None,
    ) -> list[RequestRecord]:
        """The recorded requests that `when` would select: `len(proxy.find_requests(verb="create"))`."""
        user = None if token is None else token_digest(token)
        pattern = RequestPattern(verb, resource, subresource, namespace, name, user)
        return [request for request in self._records.values() if pattern.matches(request)]

    def peak_per_second(self, requests: Iterable[RequestRecord] | None = None) -> int:
        """The maximum number of these requests, or of all recorded ones, in any one second."""
        return peak_per_second(self._records.values() if requests is None else requests)

    def clear_requests(self) -> None:
        """Clear the records, e.g. at the start of an outage."""
        self._records.clear()

    def _add(self, rule: FaultRule) -> FaultRule:
        self._rules = [rule, *(older for older in self._rules if not older.exhausted)]
        if isinstance(rule.fault, StreamEnd):
            for exchange in [each for each in self._running if rule.matches(each.info)]:
                if not rule.exhausted:
                    rule.record_fire()
                    exchange.schedule_end(rule.fault)
        return rule

    def _accept_connection(self) -> asyncio.Protocol:
        if self._gate is Gate.OPEN:
            return self._http()
        self._record(RequestRecord(time.monotonic(), "connect"))
        return RejectedConnection(self._gate, self._held)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        body = await request.content.read()  # request.read() refuses more than 1 MiB, which a CRD can have
        info = parse_request(request.method, request.path, request.query, token, body)
        record = RequestRecord(
            time.monotonic(), info.verb, info.resource, info.subresource, info.namespace, info.name, info.user
        )
        number = self._record(record)

        def on_response(code: int) -> None:
            if number in self._records:
                self._records[number] = msgspec.structs.replace(record, code=code)

        exchange = Exchange(info, request, self._forward, on_response)
        self._running[exchange] = None
        try:
            return await exchange.run(self._fault_for(exchange))
        finally:
            del self._running[exchange]

    def _fault_for(self, exchange: Exchange) -> Fault:
        if self._gate is Gate.RESET:  # accepted before, but not yet in aiohttp's list when the gate closed
            return Exchange.reset
        if self._gate is Gate.BLACK_HOLE:
            return Exchange.hang_forever
        for rule in self._rules:
            if rule.matches(exchange.info):
                rule.record_fire()
                if not isinstance(rule.fault, StreamEnd):
                    return rule.fault
                exchange.schedule_end(rule.fault)
                break
        return relay_unchanged

    async def _forward(self, request: web.BaseRequest, body: bytes) -> aiohttp.ClientResponse:
        return await self._session.request(
            request.method,
            URL(self._upstream.server + request.raw_path, encoded=True),
            headers=end_to_end_headers(request.headers),
            data=BytesIO(body) if body else None,  # plain bytes of more than 1 MiB make aiohttp warn
            ssl=await self._upstream.tls() or True,
            server_hostname=self._upstream.server_name,
            proxy=self._upstream.proxy,
            allow_redirects=False,
        )

    def _record(self, record: RequestRecord) -> int:
        number = next(self._numbers)
        self._records[number] = record
        if len(self._records) > MAX_RECORDED_REQUESTS:
            del self._records[next(iter(self._records))]
        return number


async def relay_unchanged(exchange: Exchange) -> web.StreamResponse:
    """Relay without a fault."""
    return await exchange.relay(await exchange.forward_request())
