"""One connection to a server: a request goes out, its answer comes in, whole or as it arrives.

Not aiohttp's client, though its server stays: with TLS, and all that our client does beside, a small request costs
215 µs of CPU this way and 315 that way, and requests were the larger half of what the operator cost under load.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

from paddle_operator.kube.http_parser import RemoteProtocolError, ResponseParser

MUCH = 256 * 1024  # bytes of a stream that its reader has not taken: the server is kept waiting


class Lost(Exception):
    """The connection broke after the request was sent, so that nobody knows whether it was heard."""


class HTTPConnection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: ResponseParser | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._enough: Callable[[], bool] = lambda: False
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._flows = True
        self.idle_since = 0.0
        self.most_waiting = float("inf")
        self.lost: asyncio.Future[None] = self._loop.create_future()

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport
        return self._transport

    def use(self, transport: asyncio.Transport) -> None:
        """From now on through this one, which speaks TLS over the former."""
        self._transport = transport

    @property
    def reusable(self) -> bool:
        return self._error is None and self._answer is not None and self._answer.reusable

    @property
    def broken(self) -> bool:
        return self._error is not None or self.transport.is_closing()

    def abort(self) -> None:
        if self._transport:
            self._transport.abort()

    async def ask(self, request: bytes, read_timeout: float | None, *, tunnel: bool = False) -> "Reply":
        """The answer as soon as its head is here. Raises Lost, or TimeoutError after so long a silence."""
        self._answer = answer = ResponseParser(tunnel=tunnel)
        self.most_waiting = float("inf")
        self.resume_reading()
        self.transport.write(request)
        await self.until(lambda: answer.status > 0, read_timeout)
        return Reply(self, answer, read_timeout)

    async def until(self, enough: Callable[[], bool], read_timeout: float | None) -> None:
        """Wait until enough of the answer is here. Raises Lost or TimeoutError."""
        if enough():
            return
        if self._error:
            raise self._error
        self._enough, self._waiter = enough, self._loop.create_future()
        self._heard_at = self._loop.time()
        if read_timeout is not None:
            self._timer = self._loop.call_later(read_timeout, self._listen, read_timeout)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._timer:
                self._timer.cancel()

    def hold(self) -> None:
        """Let what comes wait in the kernel."""
        if self._flows and not self.broken:
            self._flows = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._flows:
            self._flows = True
            if not self.broken:
                self.transport.resume_reading()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.complete:
            self._fail(Lost("the server spoke unasked"))
            return
        self._heard_at = self._loop.time()
        try:
            self._answer.feed(data)
        except RemoteProtocolError as error:
            self._fail(Lost(str(error)))
            return
        if self._answer.buffered > self.most_waiting:
            self.hold()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.complete:
            try:
                self._answer.feed_eof()
            except RemoteProtocolError as problem:
                self._fail(Lost(str(error or problem)))
        self._error = self._error or Lost("Server disconnected")
        self._wake()
        if not self.lost.done():
            self.lost.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            if self._enough():
                self._waiter.set_result(None)
            elif self._error:
                self._waiter.set_exception(self._error)

    def _listen(self, read_timeout: float) -> None:
        """The timer of who waits has rung: was the server silent for so long?"""
        if not self._waiter or self._waiter.done():
            return
        left = self._heard_at + read_timeout - self._loop.time()
        if left <= 0:
            self._waiter.set_exception(TimeoutError())
        else:
            self._timer = self._loop.call_later(left, self._listen, read_timeout)


class Reply:
    """What the server answers; the body may still be on its way."""

    def __init__(self, channel: HTTPConnection, answer: ResponseParser, read_timeout: float | None) -> None:
        self._channel, self._answer, self._silence_seconds = channel, answer, read_timeout
        self.status, self.reason, self.header = answer.status, answer.reason, answer.header

    @property
    def content_type(self) -> str:
        return self.header("content-type").partition(";")[0].strip().lower() or "application/octet-stream"

    async def read(self) -> bytes:
        """The whole body. Raises Lost or TimeoutError."""
        answer = self._answer
        if not answer.complete:
            await self._channel.until(lambda: answer.complete, self._silence_seconds)
        return answer.take()

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes, as much at once as there is. Raises Lost or TimeoutError."""
        answer, self._channel.most_waiting = self._answer, MUCH
        while True:
            await self._channel.until(lambda: answer.complete or answer.buffered > 0, self._silence_seconds)
            if answer.buffered:
                self._channel.resume_reading()
                yield answer.take()
            elif answer.complete:
                return

    def hold(self) -> None:
        """Nobody takes parts for a while: let them wait in the kernel."""
        self._channel.hold()

    def resume_reading(self) -> None:
        self._channel.resume_reading()
