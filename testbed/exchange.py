"""How does one request get through the fault proxy, and what can be done to it on its way?

An answer is passed on chunk by chunk; a stream's events are its lines, for watches in JSON as for logs.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, NoReturn

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict

from testbed.request_log import Asked

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: the close sends RST, as a crashed peer does
HOP_BY_HOP = {"connection", "content-length", "expect", "host", "keep-alive", "te", "transfer-encoding", "upgrade"}
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

Fault = Callable[["Exchange"], Awaitable[web.StreamResponse]]
Forward = Callable[[web.BaseRequest, bytes], Awaitable[aiohttp.ClientResponse]]


class Doom(NamedTuple):
    """How a stream is to end, and after how many more events."""

    ending: Fault
    after_events: int


class Exchange:
    """One request on its way, and what strikes it while it runs."""

    def __init__(self, asked: Asked, request: web.BaseRequest, forward: Forward, told: Callable[[int], None]) -> None:
        self.asked = asked
        self._request = request
        self._forward = forward
        self._told = told
        self._struck: asyncio.Future[Fault] = asyncio.get_running_loop().create_future()
        self._reply: aiohttp.ClientResponse | None = None
        self._response: web.StreamResponse | None = None
        self._doom: Doom | None = None
        self._events_left = 0
        self._inside_event = False  # the last bytes sent were no line's end

    async def run(self, fault: Fault) -> web.StreamResponse:
        """Let the fault have its way unless something strikes first; an upstream that is gone is a cut."""
        work = asyncio.ensure_future(fault(self))
        try:
            await asyncio.wait((work, self._struck), return_when=asyncio.FIRST_COMPLETED)
            if not self._struck.done():
                return await work
            ending = self._struck.result()
        except (aiohttp.ClientError, OSError):
            ending = Exchange.cut
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if self._reply is not None:
                self._reply.close()
        return await ending(self)

    def strike(self, ending: Fault) -> None:
        """End it this way now, whatever it is doing."""
        if not self._struck.done():
            self._struck.set_result(ending)

    def meet(self, doom: Doom) -> None:
        """End it this way after some more events; one that is half sent is completed and does not count."""
        self._doom = doom
        self._events_left = doom.after_events + self._inside_event
        self._strike_if_due()

    def _strike_if_due(self) -> None:
        if self._doom is not None and self._response is not None and not self._events_left:
            self.strike(self._doom.ending)

    def _before_doom(self, chunk: bytes) -> bytes:
        """As much of the chunk as may still pass."""
        if self._doom is None:
            return chunk
        end = 0
        while self._events_left and (newline := chunk.find(b"\n", end)) >= 0:
            self._events_left -= 1
            end = newline + 1
        return chunk if self._events_left else chunk[:end]

    async def ask(self) -> aiohttp.ClientResponse:
        """The server's answer up to its headers: by then it has acted."""
        self._reply = await self._forward(self._request, self.asked.body)
        return self._reply

    async def relay(self, reply: aiohttp.ClientResponse) -> web.StreamResponse:
        """Pass each chunk on as it comes."""
        response = web.StreamResponse(status=reply.status, reason=reply.reason, headers=end_to_end(reply.headers))
        response.content_length = reply.content_length
        await response.prepare(self._request)
        self._told(reply.status)
        self._response = response
        self._strike_if_due()
        while not self._struck.done() and (chunk := await reply.content.readany()):
            piece = self._before_doom(chunk)
            self._inside_event = not piece.endswith(b"\n")
            await response.write(piece)
            self._strike_if_due()
        return response

    async def refuse(self, status: Mapping[str, object], code: int, retry_after: int | None) -> web.StreamResponse:
        """Answer in the server's place."""
        self._told(code)
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        body = msgspec.json.encode(status)
        return web.Response(status=code, headers=headers, body=body, content_type="application/json")

    async def cut(self) -> NoReturn:
        if self._request.transport is not None:
            reset(self._request.transport)
        await self.fall_silent()

    async def fall_silent(self) -> NoReturn:
        """Until the connection is gone: then aiohttp cancels us."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    async def finish(self) -> web.StreamResponse:
        """End a stream as the server does."""
        assert self._response is not None
        return self._response

    async def expire(self) -> web.StreamResponse:
        """Say in the stream that its version is no longer kept, and end it."""
        assert self._response is not None
        status = status_of(self.asked, 410, message="too old resource version: 1 (2)")
        await self._response.write(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
        return self._response


def status_of(
    asked: Asked, code: int, *, retry_after: int | None = None, reason: str = "", message: str = ""
) -> dict[str, object]:
    """The Status with which a server refuses."""
    if not reason:
        reason = "AlreadyExists" if (asked.verb, code) == ("create", 409) else REASONS.get(code, "")
    details: dict[str, object] = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or f"the fault proxy answers {code} to {asked.verb} {asked.resource} {asked.name!r}",
        "reason": reason,
        "details": {word: value for word, value in details.items() if value != ""},
        "code": code,
    }


def end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The headers that are meant for the other end and not for the next hop."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP)


def reset(transport: asyncio.BaseTransport) -> None:
    """End a connection as a peer does that has crashed."""
    assert isinstance(transport, asyncio.WriteTransport)
    if not transport.is_closing():
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    transport.abort()
