"""One call to an API server: credentials, connection, fence, response, and whether the call may be repeated.

HTTP/1.1 with at most `max_in_flight` calls at once: HTTP/2 in Python costs five times as much CPU a request, and a real
API server is saturated from about eight. Each connection takes 0.2 MB.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import quote, urlencode

import msgspec

from paddle_operator.kube import metrics
from paddle_operator.kube.backoff import exponential
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.config.server import ServerConfig
from paddle_operator.kube.connection_pool import ConnectError, ConnectionPool, Origin, ProxyRefused
from paddle_operator.kube.error_messages import not_json, status_error, unreachable
from paddle_operator.kube.errors import APIStatusError, ServerFault, Unauthorized, Unreachable, Untrusted
from paddle_operator.kube.http_connection import ConnectionLost, HTTPResponse

log = logging.getLogger(__name__)

MAX_TRIES = 4
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 10.0
MAX_RETRY_AFTER_SECONDS = 30.0  # a longer Retry-After is raised to the caller, which has other work meanwhile

_NETWORK_ERRORS = (ConnectError, ProxyRefused, ConnectionLost, TimeoutError, OSError)


class Call(msgspec.Struct, frozen=True):
    """One request to the API server; `about` is the verb and the object, for messages."""

    about: str
    method: str
    path: str
    params: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    repeatable: bool = True  # sending it twice has the effect of sending it once
    writes: bool = False


class RoundTripper:
    """Sends calls to one API server as one user. Close it at the end."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        max_in_flight: int,
        response_timeout: float,
        fence: Callable[[], None] | None,
        clock: Clock,
        user_agent: str,
    ) -> None:
        self.config = config
        self.fence = fence
        self.pool = ConnectionPool()
        self._clock = clock
        self._slots = asyncio.Semaphore(max_in_flight)
        self._response_timeout = response_timeout
        self._fixed_headers = f"User-Agent: {user_agent}\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n"
        self._origin: Origin | None = None

    async def close(self) -> None:
        await self.pool.close()

    async def send(self, call: Call, *, obey_retry_after: bool = True) -> bytes:
        """The body of a successful response. Repeats the call as often as it and the errors allow."""
        renewed = False
        tries = 0
        while True:
            tries += 1
            try:
                async with self._slots:
                    return await self.send_once(call)
            except Unauthorized:
                if renewed or not await self.config.renew():
                    raise
                renewed = True
            except (APIStatusError, Unreachable) as error:
                seconds = retry_seconds(call, error, tries) if obey_retry_after else None
                if seconds is None:
                    raise
                await self._clock.sleep(seconds)

    async def send_once(self, call: Call) -> bytes:
        async with self.exchange(call, self._response_timeout) as response:
            body = await response.read()
            if response.status >= 400:
                raise status_error(call.about, self.config, response, body)
            if response.content_type != "application/json":
                raise not_json(call.about, self.config, response)
            return body

    @asynccontextmanager
    async def stream(self, call: Call, read_timeout: float | None) -> AsyncIterator[HTTPResponse]:
        """A successful response whose body is read as it arrives. The call is not repeated."""
        async with self.exchange(call, read_timeout) as response:
            if response.status >= 400:
                error = status_error(call.about, self.config, response, await response.read())
                if isinstance(error, Unauthorized):
                    await self.config.renew()  # the caller repeats the call, then with renewed credentials
                raise error
            yield response

    def exchange(self, call: Call, read_timeout: float | None) -> AbstractAsyncContextManager[HTTPResponse]:
        return _Exchange(self, call, read_timeout)

    async def origin(self) -> Origin:
        """The same object until a certificate changes."""
        context = await self.config.tls()
        if self._origin is None or context is not self._origin.context:
            self._origin = Origin(self.config.server, context, self.config.server_name, self.config.proxy)
        return self._origin

    async def encode(self, call: Call, origin: Origin) -> bytes:
        query = f"?{urlencode(call.params)}" if call.params else ""
        target = origin.target_prefix + quote(call.path, safe="/:") + query
        credentials = await self.config.headers()
        lines = "".join([f"{name}: {value}\r\n" for name, value in credentials.items()])
        if origin.proxy and origin.context is None:
            lines += origin.proxy_authorization
        if call.body is not None:
            lines += f"Content-Type: {call.content_type}\r\nContent-Length: {len(call.body)}\r\n"
        head = f"{call.method} {target} HTTP/1.1\r\nHost: {origin.host}\r\n"
        return f"{head}{self._fixed_headers}{lines}\r\n".encode() + (call.body or b"")


class _Exchange:
    """A request and its response on one connection. Not a generator: that cost 6 µs more of 110."""

    def __init__(self, sender: RoundTripper, call: Call, read_timeout: float | None) -> None:
        self._sender, self._call, self._read_timeout = sender, call, read_timeout

    async def __aenter__(self) -> HTTPResponse:
        sender, call = self._sender, self._call
        self._origin = origin = await sender.origin()
        request = await sender.encode(call, origin)
        try:
            self._connection = await sender.pool.acquire(origin)
        except _NETWORK_ERRORS as error:
            raise self._unreachable(error) from error
        try:
            if call.writes and sender.fence:
                sender.fence()  # last, since everything above may have taken time
            response = await self._connection.request(request, self._read_timeout)
        except BaseException as error:
            sender.pool.release(origin, self._connection)
            if isinstance(error, _NETWORK_ERRORS):
                raise self._unreachable(error) from error
            raise
        metrics.count_request(response.status, call.method, origin.host)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("request", extra={"method": call.method, "path": call.path, "code": response.status})
        return response

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._sender.pool.release(self._origin, self._connection)
        if isinstance(error, _NETWORK_ERRORS):
            raise self._unreachable(error) from error

    def _unreachable(self, error: BaseException) -> Unreachable:
        metrics.count_request("<error>", self._call.method, self._origin.host)
        return unreachable(self._call.about, self._sender.config, error)


def retry_seconds(call: Call, error: APIStatusError | Unreachable, tries: int) -> float | None:
    """How long to wait before the same call is sent again; None if it must not be.

    A server that sends Retry-After has not acted, so any call may be repeated. Otherwise only calls that are
    repeatable, or that never left this machine.
    """
    if tries >= MAX_TRIES:
        return None
    jitter = 1 + random.random() / 2  # noqa: S311
    if isinstance(error, APIStatusError) and error.retry_after is not None:
        return error.retry_after * jitter if error.retry_after <= MAX_RETRY_AFTER_SECONDS else None
    if isinstance(error, Untrusted):
        return None
    unsent = isinstance(error, Unreachable) and not error.sent
    transient = isinstance(error, ServerFault | Unreachable)
    if not unsent and not (transient and call.repeatable):
        return None
    return exponential(tries, FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS) * jitter
