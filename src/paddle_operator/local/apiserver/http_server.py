"""The embedded API server over HTTP: on the loopback address only, for whoever has the token.

Plain for the rest of this process, which is always there; also with TLS where a stock kubectl shall be served.
All of it runs on the caller's event loop. Between reading a request and answering it nothing else runs, except for
watches and logs, which are streams.
"""

import asyncio
import contextlib
import hmac
import logging
import ssl
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Self

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.errors import in_words
from paddle_operator.local.apiserver import discovery, openapi, serving_cert
from paddle_operator.local.apiserver.answers import Answer
from paddle_operator.local.apiserver.api_errors import Refusal, bad_request
from paddle_operator.local.apiserver.handlers import Api, Request
from paddle_operator.local.apiserver.registry.pod_subresources import LogRequest, PodLogs
from paddle_operator.local.apiserver.registry.watch import Watch
from paddle_operator.local.apiserver.request_info import target_of
from paddle_operator.local.apiserver.scheme.kind import Kind
from paddle_operator.local.apiserver.storage.sqlite import StoreError
from paddle_operator.local.container_logs import LogError

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
LARGEST_BODY = 3 * 1024 * 1024  # as kube-apiserver
LONGEST_LINE = 64 * 1024  # selectors can be long
SHUTDOWN_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 3600.0  # longer than any client keeps a connection, so that it is never we who close it first
HEALTH = ("/healthz", "/livez", "/readyz")
JSON_HEADERS = {"Content-Type": "application/json"}

__all__ = ["ApiServer", "PodLogs", "StoreError"]


class ApiServer:
    """`async with ApiServer(folder, kinds, token=…) as server`: answers at `server.url` until the block is left."""

    def __init__(
        self,
        directory: Path,
        kinds: Iterable[Kind],
        *,
        token: str,
        logs: PodLogs | None = None,
        port: int = 0,
        secure_port: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A port of 0 is any free one; without a `secure_port` there is no TLS, nor `secure_url` and `certificate`."""
        if not token:
            raise ValueError("an API server needs a token: without one, every user of this machine could run programs")
        self.url = ""
        self.secure_url = ""
        self.certificate: Path | None = None  # with its key; serving_cert.certificate_pem is what a kubeconfig gets
        self._directory = directory
        self._kinds = tuple(kinds)
        self._documents = (discovery.documents(self._kinds), openapi.documents(self._kinds))
        self._bearer = f"Bearer {token}".encode()
        self._logs = logs
        self._port = port
        self._secure_port = secure_port
        self._clock = clock or SystemClock()
        self._streams: set[asyncio.Task[Any]] = set()
        self._watches: set[Watch] = set()
        self._closing = False

    async def __aenter__(self) -> Self:
        """Raises StoreError where the folder cannot be used, OSError where the port cannot."""
        self.api = Api(self._directory, self._kinds, self._clock)
        server = web.Server(
            self._handle,
            request_factory=_request,
            access_log=None,
            handler_cancellation=True,  # a watcher that leaves is noticed at once
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        try:
            self.url = f"http://{await self._listen(self._port, None)}"
            if self._secure_port is not None:
                self.secure_url = f"https://{await self._listen(self._secure_port, self._secured())}"
        except OSError:
            await self._runner.cleanup()
            self.api.store.close()
            raise
        self._garbage = asyncio.create_task(self.api.garbage.run(), name="garbage collector")
        return self

    async def _listen(self, port: int, secured: ssl.SSLContext | None) -> str:
        site = web.TCPSite(self._runner, LOOPBACK, port, ssl_context=secured)
        try:
            await site.start()
        except OSError as problem:
            raise OSError(f"cannot listen on {LOOPBACK}:{port}: {in_words(problem)}; choose another port") from None
        return f"{LOOPBACK}:{self._runner.addresses[-1][1]}"

    def _secured(self) -> ssl.SSLContext:
        self.certificate = serving_cert.ensure_certificate(self._directory, self._clock.now())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        return context

    async def __aexit__(self, *_: object) -> None:
        """End all watches and logs as a server does that goes, finish what is being answered, and close the file."""
        self._closing = True
        for watch in self._watches:
            watch.end()
        for stream in tuple(self._streams):
            stream.cancel()
        await self._runner.cleanup()
        self._garbage.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._garbage
        self.api.store.close()

    # Requests

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._respond(request)
        except Refusal as refusal:
            return _refused(refusal)
        except StoreError as problem:
            return _refused(Refusal(500, str(problem)))
        except web.HTTPRequestEntityTooLarge:
            return _refused(Refusal(413, f"Request entity too large: limit is {LARGEST_BODY}"))
        except ConnectionError:
            return web.Response()  # the client has gone, and nobody reads this; raised, it would be told as a defect
        except Exception as defect:
            log.exception("could not answer a request", extra={"path": request.path, "method": request.method})
            sentence = f"the local cluster has a defect here: {type(defect).__name__}: {defect}; its log has more"
            return _refused(Refusal(500, sentence))

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in HEALTH and request.method == "GET":
            return web.Response(text="ok")
        sent = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(sent, self._bearer):
            raise Refusal(401, "Unauthorized")
        if request.method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            raise Refusal(405, f"the local cluster does not know the method {request.method}: use GET")
        target = target_of(path)
        if target is None:
            return self._document(request)
        outcome = self.api.answer(
            Request(
                request.method,
                target,
                dict(request.query),
                await request.read() if request.can_read_body else b"",
                request.headers.get("Content-Type", "").partition(";")[0].strip(),
                request.headers.get("Accept", ""),
            )
        )
        if isinstance(outcome, Answer):
            return _answered(outcome)
        if isinstance(outcome, Watch):
            return await self._watched(request, outcome)
        return await self._logged(request, outcome)

    def _document(self, request: web.BaseRequest) -> web.Response:
        """What the server tells of itself."""
        path = request.path.rstrip("/")
        for find in self._documents:
            found = find(path, request.query_string, request.headers.get("Accept", ""))
            if found is None:
                continue
            if request.method != "GET":
                raise Refusal(405, f"{path} can only be read: use GET")
            if request.headers.get("If-None-Match") == found.headers["ETag"]:
                return web.Response(status=304, headers=found.headers)
            return web.Response(body=found.body, headers=found.headers | {"Content-Type": found.media_type})
        raise Refusal(
            404, f"the local cluster has nothing at {request.path}: `kubectl api-resources` tells what it has"
        )

    # Streams

    async def _watched(self, request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers=JSON_HEADERS)
        self._watches.add(watch)
        lines = watch.lines()
        try:
            await response.prepare(request)
            if self._closing:
                watch.end()
            async for some in lines:
                await response.write(some)
            await response.write_eof()
        finally:
            self._watches.discard(watch)
            await lines.aclose()  # type: ignore[attr-defined]
        return response

    async def _logged(self, request: web.BaseRequest, wanted: LogRequest) -> web.StreamResponse:
        if self._logs is None:
            raise Refusal(404, "this local cluster keeps no logs: it runs without a node")
        pieces = self._logs.stream(wanted.pod, wanted.uid, wanted.options)
        try:
            first = await anext(pieces, b"")  # whether there is such a log is known now, before the head is sent
        except LogError as problem:
            raise bad_request(str(problem)) from None
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        task = asyncio.current_task()
        assert task
        self._streams.add(task)
        try:
            await response.prepare(request)
            await response.write(first)
            async for piece in pieces:
                await response.write(piece)
        except asyncio.CancelledError:
            if not self._closing:
                raise
        finally:
            self._streams.discard(task)
            await _closed(pieces)
        await response.write_eof()
        return response


async def _closed(pieces: AsyncIterator[bytes]) -> None:
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()


def _request(*arguments: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = arguments
    return web.BaseRequest(message, payload, protocol, writer, task, protocol._loop, client_max_size=LARGEST_BODY)


def _answered(answer: Answer) -> web.Response:
    headers = CIMultiDict(JSON_HEADERS)
    for warning in answer.warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        headers.add("Warning", f'299 - "{quoted}"')
    return web.Response(body=answer.body, status=answer.code, headers=headers)


def _refused(refusal: Refusal) -> web.Response:
    return web.Response(body=msgspec.json.encode(refusal.status), status=refusal.code, headers=JSON_HEADERS)
