"""How is the local API server reached? Over HTTP on the loopback address, with a bearer token.

This process uses plain HTTP; a stock kubectl needs TLS, which is optional. The server runs on the caller's event loop.
There is no await between reading a request and its response, except for watches and logs, which are streams.
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
from paddle_operator.kube.errors import describe_os_error
from paddle_operator.local.apiserver import serving_cert
from paddle_operator.local.apiserver.api_errors import StatusError, bad_request
from paddle_operator.local.apiserver.discovery import discovery_documents
from paddle_operator.local.apiserver.handlers import APIRequest, Handlers
from paddle_operator.local.apiserver.openapi import openapi_documents
from paddle_operator.local.apiserver.registry.pod_subresources import PodLogRequest, PodLogs
from paddle_operator.local.apiserver.registry.resource import APIResponse
from paddle_operator.local.apiserver.registry.watch import Watch
from paddle_operator.local.apiserver.request_info import JSON_MEDIA_TYPE, parse_request_path
from paddle_operator.local.apiserver.scheme.kind import Kind
from paddle_operator.local.apiserver.storage.sqlite import StorageError
from paddle_operator.local.container_logs import LogError

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 3 * 1024 * 1024  # as kube-apiserver
MAX_REQUEST_LINE_BYTES = 64 * 1024  # selectors can be long
SHUTDOWN_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 3600.0  # longer than any client's, so the client closes a connection first
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
JSON_HEADERS = {"Content-Type": JSON_MEDIA_TYPE}

__all__ = ["ApiServer", "PodLogs", "StorageError"]


class ApiServer:
    """`async with ApiServer(directory, kinds, token=…) as server`: serves at `server.url` until the block ends."""

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
        """Port 0 is any free port. Without `secure_port` there is no TLS, `secure_url` and `certificate`."""
        if not token:
            raise ValueError(
                "an API server needs a token: without one, every user of this machine could run programs through it"
            )
        self.url = ""
        self.secure_url = ""
        self.certificate: Path | None = None  # with its key; a kubeconfig gets serving_cert.certificate_pem
        self._directory = directory
        self._kinds = tuple(kinds)
        self._documents = (discovery_documents(self._kinds), openapi_documents(self._kinds))
        self._bearer = f"Bearer {token}".encode()
        self._logs = logs
        self._port = port
        self._secure_port = secure_port
        self._clock = clock or SystemClock()
        self._streams: set[asyncio.Task[Any]] = set()
        self._watches: set[Watch] = set()
        self._closing = False

    async def __aenter__(self) -> Self:
        """Raises StorageError if the directory cannot be used, OSError if the port cannot."""
        self.api = Handlers(self._directory, self._kinds, self._clock)
        server = web.Server(
            self._respond,
            request_factory=_create_request,
            access_log=None,
            handler_cancellation=True,  # a disconnected watch ends at once
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            max_line_size=MAX_REQUEST_LINE_BYTES,
            max_field_size=MAX_REQUEST_LINE_BYTES,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        try:
            self.url = f"http://{await self._listen(self._port, None)}"
            if self._secure_port is not None:
                self.secure_url = f"https://{await self._listen(self._secure_port, self._tls_context())}"
        except OSError:
            await self._runner.cleanup()
            self.api.store.close()
            raise
        self._garbage_collection = asyncio.create_task(self.api.garbage_collector.run(), name="garbage collector")
        return self

    async def _listen(self, port: int, tls: ssl.SSLContext | None) -> str:
        site = web.TCPSite(self._runner, LOOPBACK, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise OSError(
                f"cannot listen on {LOOPBACK}:{port}: {describe_os_error(error)}; choose another port"
            ) from None
        return f"{LOOPBACK}:{self._runner.addresses[-1][1]}"

    def _tls_context(self) -> ssl.SSLContext:
        self.certificate = serving_cert.ensure_certificate(self._directory, self._clock.now())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        return context

    async def __aexit__(self, *_: object) -> None:
        """End all watches and logs, finish pending responses, and close the store."""
        self._closing = True
        for watch in self._watches:
            watch.end()
        for stream in tuple(self._streams):
            stream.cancel()
        await self._runner.cleanup()
        self._garbage_collection.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._garbage_collection
        self.api.store.close()

    # Requests

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._dispatch(request)
        except StatusError as error:
            return _error_response(error)
        except StorageError as error:
            return _error_response(StatusError(500, str(error)))
        except web.HTTPRequestEntityTooLarge:
            return _error_response(StatusError(413, f"Request entity too large: limit is {MAX_BODY_BYTES}"))
        except ConnectionError:
            return web.Response()  # the client disconnected; raised, it would be logged as a bug
        except Exception as error:
            log.exception("unexpected error in a request", extra={"path": request.path, "method": request.method})
            message = f"unexpected error in the local cluster: {type(error).__name__}: {error}; see its log"
            return _error_response(StatusError(500, message))

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in HEALTH_PATHS and request.method == "GET":
            return web.Response(text="ok")
        authorization = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(authorization, self._bearer):
            raise StatusError(401, "Unauthorized")
        if request.method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            raise StatusError(405, f"the local cluster does not support the method {request.method}")
        info = parse_request_path(path)
        if info is None:
            return self._serve_document(request)
        result = self.api.handle(
            APIRequest(
                request.method,
                info,
                dict(request.query),
                await request.read() if request.can_read_body else b"",
                request.headers.get("Content-Type", "").partition(";")[0].strip(),
                request.headers.get("Accept", ""),
            )
        )
        if isinstance(result, APIResponse):
            return _http_response(result)
        if isinstance(result, Watch):
            return await self._stream_watch(request, result)
        return await self._stream_log(request, result)

    def _serve_document(self, request: web.BaseRequest) -> web.Response:
        """Discovery and OpenAPI."""
        path = request.path.rstrip("/")
        for find_document in self._documents:
            document = find_document(path, request.query_string, request.headers.get("Accept", ""))
            if document is None:
                continue
            if request.method != "GET":
                raise StatusError(405, f"{path} is read-only: use GET")
            if request.headers.get("If-None-Match") == document.headers["ETag"]:
                return web.Response(status=304, headers=document.headers)
            return web.Response(body=document.body, headers=document.headers | {"Content-Type": document.media_type})
        raise StatusError(
            404, f"the local cluster serves nothing at {request.path}: `kubectl api-resources` lists its resources"
        )

    # Streams

    async def _stream_watch(self, request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers=JSON_HEADERS)
        self._watches.add(watch)
        lines = watch.lines()
        try:
            await response.prepare(request)
            if self._closing:
                watch.end()
            async for chunk in lines:
                await response.write(chunk)
            await response.write_eof()
        finally:
            self._watches.discard(watch)
            await lines.aclose()  # type: ignore[attr-defined]
        return response

    async def _stream_log(self, request: web.BaseRequest, log_request: PodLogRequest) -> web.StreamResponse:
        if self._logs is None:
            raise StatusError(404, "this local cluster has no logs: it runs without a node")
        chunks = self._logs.stream(log_request.pod, log_request.uid, log_request.options)
        try:
            first = await anext(chunks, b"")  # raises before the header is sent if there is no such log
        except LogError as error:
            raise bad_request(str(error)) from None
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        task = asyncio.current_task()
        assert task
        self._streams.add(task)
        try:
            await response.prepare(request)
            await response.write(first)
            async for chunk in chunks:
                await response.write(chunk)
        except asyncio.CancelledError:
            if not self._closing:
                raise
        finally:
            self._streams.discard(task)
            await _close(chunks)
        await response.write_eof()
        return response


async def _close(chunks: AsyncIterator[bytes]) -> None:
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()


def _create_request(*arguments: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = arguments
    return web.BaseRequest(message, payload, protocol, writer, task, protocol._loop, client_max_size=MAX_BODY_BYTES)


def _http_response(response: APIResponse) -> web.Response:
    headers = CIMultiDict(JSON_HEADERS)
    for warning in response.warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        headers.add("Warning", f'299 - "{quoted}"')
    return web.Response(body=response.body, status=response.code, headers=headers)


def _error_response(error: StatusError) -> web.Response:
    return web.Response(body=msgspec.json.encode(error.status), status=error.code, headers=JSON_HEADERS)
