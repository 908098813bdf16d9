"""Relays one request through the fault proxy and applies a fault to it.

A response is relayed chunk by chunk. The events of a stream are its lines, for watches (JSON) and for logs.
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

from testbed.request_log import ProxiedRequest

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with 0 seconds: close sends RST, as for a crashed peer
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


class StreamEnd(NamedTuple):
    """How to end a stream, and after how many more events."""

    fault: Fault
    after_events: int


class Exchange:
    """One proxied request; a fault can interrupt it while it runs."""

    def __init__(
        self, info: ProxiedRequest, request: web.BaseRequest, forward: Forward, on_response: Callable[[int], None]
    ) -> None:
        self.info = info
        self._request = request
        self._forward = forward
        self._on_response = on_response
        self._interrupted: asyncio.Future[Fault] = asyncio.get_running_loop().create_future()
        self._upstream_response: aiohttp.ClientResponse | None = None
        self._response: web.StreamResponse | None = None
        self._stream_end: StreamEnd | None = None
        self._events_left = 0
        self._inside_event = False  # the last bytes sent did not end a line

    async def run(self, fault: Fault) -> web.StreamResponse:
        """Run the fault until it is interrupted; a lost upstream connection resets the client's."""
        work = asyncio.ensure_future(fault(self))
        try:
            await asyncio.wait((work, self._interrupted), return_when=asyncio.FIRST_COMPLETED)
            if not self._interrupted.done():
                return await work
            fault = self._interrupted.result()
        except (aiohttp.ClientError, OSError):
            fault = Exchange.reset
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if self._upstream_response is not None:
                self._upstream_response.close()
        return await fault(self)

    def interrupt(self, fault: Fault) -> None:
        """Apply the fault now, whatever the exchange is doing."""
        if not self._interrupted.done():
            self._interrupted.set_result(fault)

    def schedule_end(self, stream_end: StreamEnd) -> None:
        """End the stream after some more events; a half-sent event is completed and does not count."""
        self._stream_end = stream_end
        self._events_left = stream_end.after_events + self._inside_event
        self._interrupt_if_due()

    def _interrupt_if_due(self) -> None:
        if self._stream_end is not None and self._response is not None and not self._events_left:
            self.interrupt(self._stream_end.fault)

    def _truncate(self, chunk: bytes) -> bytes:
        """The part of the chunk that may still be relayed."""
        if self._stream_end is None:
            return chunk
        end = 0
        while self._events_left and (newline := chunk.find(b"\n", end)) >= 0:
            self._events_left -= 1
            end = newline + 1
        return chunk if self._events_left else chunk[:end]

    async def forward_request(self) -> aiohttp.ClientResponse:
        """Forward the request and return once the response headers are here: by then the server has acted."""
        self._upstream_response = await self._forward(self._request, self.info.body)
        return self._upstream_response

    async def relay(self, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        """Relay each chunk as it arrives."""
        response = web.StreamResponse(
            status=upstream.status, reason=upstream.reason, headers=end_to_end_headers(upstream.headers)
        )
        response.content_length = upstream.content_length
        await response.prepare(self._request)
        self._on_response(upstream.status)
        self._response = response
        self._interrupt_if_due()
        while not self._interrupted.done() and (chunk := await upstream.content.readany()):
            piece = self._truncate(chunk)
            self._inside_event = not piece.endswith(b"\n")
            await response.write(piece)
            self._interrupt_if_due()
        return response

    async def respond(self, status: Mapping[str, object], code: int, retry_after: int | None) -> web.StreamResponse:
        """Respond instead of the server."""
        self._on_response(code)
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        body = msgspec.json.encode(status)
        return web.Response(status=code, headers=headers, body=body, content_type="application/json")

    async def reset(self) -> NoReturn:
        if self._request.transport is not None:
            reset_transport(self._request.transport)
        await self.hang_forever()

    async def hang_forever(self) -> NoReturn:
        """Send nothing; aiohttp cancels this task when the connection is closed."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable: this event is never set")

    async def end_cleanly(self) -> web.StreamResponse:
        """End a stream as the server does at its time limit."""
        assert self._response is not None
        return self._response

    async def end_expired(self) -> web.StreamResponse:
        """Send an ERROR event with 410 Expired and end the stream."""
        assert self._response is not None
        status = status_body(self.info, 410, message="too old resource version: 1 (2)")
        await self._response.write(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
        return self._response


def status_body(
    info: ProxiedRequest, code: int, *, retry_after: int | None = None, reason: str = "", message: str = ""
) -> dict[str, object]:
    """The Status object of an error response."""
    if not reason:
        reason = "AlreadyExists" if (info.verb, code) == ("create", 409) else REASONS.get(code, "")
    details: dict[str, object] = {"name": info.name, "group": info.group, "kind": info.resource}
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or f"the fault proxy returned {code} for {info.verb} {info.resource} {info.name!r}",
        "reason": reason,
        "details": {field: value for field, value in details.items() if value != ""},
        "code": code,
    }


def end_to_end_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The headers without the hop-by-hop ones."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP)


def reset_transport(transport: asyncio.BaseTransport) -> None:
    """Close a connection with RST, as the kernel of a crashed peer does."""
    assert isinstance(transport, asyncio.WriteTransport)
    if not transport.is_closing():
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    transport.abort()
