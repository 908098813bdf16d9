"""One HTTP/1.1 connection: sends a request, returns its response whole or as it arrives.

Not aiohttp's client, though we use its server. With TLS and everything else that our client does, a small request costs
215 µs of CPU instead of 315, and requests were over half of the operator's CPU under load.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

from paddle_operator.kube.http_parser import RemoteProtocolError, ResponseParser

MAX_BUFFERED_BYTES = 256 * 1024  # of a streamed body that was not taken yet; then reading pauses


class ConnectionLost(Exception):
    """The connection broke after the request was sent: the server may or may not have acted."""


class HTTPConnection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: ResponseParser | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._condition: Callable[[], bool] = lambda: False
        self._timer: asyncio.TimerHandle | None = None
        self._received_at = 0.0
        self._is_reading = True
        self.idle_since = 0.0
        self.max_buffered_bytes = float("inf")
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport
        return self._transport

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Use this transport from now on: TLS over the previous one."""
        self._transport = transport

    @property
    def reusable(self) -> bool:
        return self._error is None and self._parser is not None and self._parser.reusable

    @property
    def broken(self) -> bool:
        return self._error is not None or self.transport.is_closing()

    def abort(self) -> None:
        if self._transport:
            self._transport.abort()

    async def request(self, request: bytes, read_timeout: float | None, *, tunnel: bool = False) -> "HTTPResponse":
        """Return the response as soon as its head has arrived. Raises ConnectionLost, or TimeoutError if idle."""
        self._parser = parser = ResponseParser(tunnel=tunnel)
        self.max_buffered_bytes = float("inf")
        self.resume_reading()
        self.transport.write(request)
        await self.wait_for(lambda: parser.status > 0, read_timeout)
        return HTTPResponse(self, parser, read_timeout)

    async def wait_for(self, condition: Callable[[], bool], read_timeout: float | None) -> None:
        """Return when received bytes make the condition true. Raises ConnectionLost, or TimeoutError if idle."""
        if condition():
            return
        if self._error:
            raise self._error
        self._condition, self._waiter = condition, self._loop.create_future()
        self._received_at = self._loop.time()
        if read_timeout is not None:
            self._timer = self._loop.call_later(read_timeout, self._check_read_timeout, read_timeout)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._timer:
                self._timer.cancel()

    def pause_reading(self) -> None:
        """Leave received bytes in the kernel, so that the server has to wait."""
        if self._is_reading and not self.broken:
            self._is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            if not self.broken:
                self.transport.resume_reading()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._parser.complete:
            self._fail(ConnectionLost("the server sent bytes without a request"))
            return
        self._received_at = self._loop.time()
        try:
            self._parser.feed(data)
        except RemoteProtocolError as error:
            self._fail(ConnectionLost(str(error)))
            return
        if self._parser.buffered > self.max_buffered_bytes:
            self.pause_reading()
        self._wake_waiter()

    def connection_lost(self, error: Exception | None) -> None:
        if self._parser is not None and not self._parser.complete:
            try:
                self._parser.feed_eof()
            except RemoteProtocolError as incomplete:
                self._fail(ConnectionLost(str(error or incomplete)))
        self._error = self._error or ConnectionLost("Server disconnected")
        self._wake_waiter()
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self.abort()
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter and not self._waiter.done():
            if self._condition():
                self._waiter.set_result(None)
            elif self._error:
                self._waiter.set_exception(self._error)

    def _check_read_timeout(self, read_timeout: float) -> None:
        """Fail the waiter if nothing was received for so long; otherwise check again at the new deadline."""
        if not self._waiter or self._waiter.done():
            return
        left = self._received_at + read_timeout - self._loop.time()
        if left <= 0:
            self._waiter.set_exception(TimeoutError())
        else:
            self._timer = self._loop.call_later(left, self._check_read_timeout, read_timeout)


class HTTPResponse:
    """A response whose head has arrived; the body may still be incomplete."""

    def __init__(self, connection: HTTPConnection, parser: ResponseParser, read_timeout: float | None) -> None:
        self._connection, self._parser, self._read_timeout = connection, parser, read_timeout
        self.status, self.reason, self.header = parser.status, parser.reason, parser.header

    @property
    def content_type(self) -> str:
        return self.header("content-type").partition(";")[0].strip().lower() or "application/octet-stream"

    async def read(self) -> bytes:
        """The whole body. Raises ConnectionLost or TimeoutError."""
        parser = self._parser
        if not parser.complete:
            await self._connection.wait_for(lambda: parser.complete, self._read_timeout)
        return parser.take()

    async def stream(self) -> AsyncIterator[bytes]:
        """The body as it arrives, all buffered bytes at once. Raises ConnectionLost or TimeoutError."""
        parser, self._connection.max_buffered_bytes = self._parser, MAX_BUFFERED_BYTES
        while True:
            await self._connection.wait_for(lambda: parser.complete or parser.buffered > 0, self._read_timeout)
            if parser.buffered:
                self._connection.resume_reading()
                yield parser.take()
            elif parser.complete:
                return

    def pause_reading(self) -> None:
        self._connection.pause_reading()

    def resume_reading(self) -> None:
        self._connection.resume_reading()
