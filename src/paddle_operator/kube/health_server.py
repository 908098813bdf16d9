"""Serves /healthz (liveness), /readyz (readiness) and /metrics.

All three run in the event loop that does the work: if it is blocked, kubelet's probe times out, as it should.
"""

import hmac
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from paddle_operator.kube.errors import describe_os_error
from paddle_operator.kube.metrics import REGISTRY

log = logging.getLogger(__name__)

Check = Callable[[], Iterable[str]]
"""Describes what is wrong now; healthy if it yields nothing."""

Address = tuple[str, int]


def _probe(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(_: web.Request) -> web.Response:
        problems = list(check())
        return web.Response(text="\n".join(problems or ["ok"]) + "\n", status=503 if problems else 200)

    return respond


@dataclass(frozen=True)
class MetricsAuth:
    """How /metrics is protected: TLS, a token, both or none.

    Files may be replaced at any time, as those of a mounted Secret are: the token is read at each request, the
    certificate at each handshake if it has changed.
    """

    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None


class _Certificate:
    """Presents the newest certificate in every handshake: a client may trust only that one."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Raises OSError if it cannot be read."""
        self._certificate, self._key = certificate, key
        self._loaded_at = 0.0
        self._load()
        self.context = self._newest
        self.context.sni_callback = self._present_newest  # called in every handshake, with a name or without

    def _load(self) -> None:
        if (changed_at := self._certificate.stat().st_mtime) != self._loaded_at:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                context.load_cert_chain(self._certificate, self._key)
            except OSError as problem:  # OpenSSL names no file
                files = f"{self._certificate} with the key {self._key or 'in it'}"
                raise OSError(f"the certificate {files} cannot be used: {problem.strerror or problem}") from None
            self._newest, self._loaded_at = context, changed_at

    def _present_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        try:
            self._load()
        except OSError as problem:  # perhaps half written: present the previous one until the next handshake
            log.warning(
                "cannot read the certificate of /metrics; using the previous one", extra={"error": str(problem)}
            )
        connection.context = self._newest


class _MetricsEndpoint:
    def __init__(self, auth: MetricsAuth) -> None:
        """Raises OSError if the certificate or the token cannot be read."""
        self._auth = auth
        if auth.token:
            auth.token.read_text()  # fail at start, not at each request
        self.certificate = _Certificate(auth.certificate, auth.key) if auth.certificate else None

    async def respond(self, request: web.Request) -> web.Response:
        if self._auth.token and not self._is_authorized(request, self._auth.token):
            return web.Response(text="unauthorized: send Authorization: Bearer <token>\n", status=401)
        return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _is_authorized(self, request: web.Request, token: Path) -> bool:
        expected = f"Bearer {token.read_text().strip()}"
        sent = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        return hmac.compare_digest(sent, expected.encode())


def _parse_address(address: str) -> tuple[str | None, int]:
    """`:8080` is all addresses, as in Go's flags. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(
            f'the address "{address}" has no port from 0 to 65535: write host:port, :port, or 0 to serve nothing'
        )
    return host.strip("[]") or None, int(port)


@asynccontextmanager
async def serve(
    health_address: str,
    metrics_address: str,
    healthy: Check,
    ready: Check,
    auth: MetricsAuth | None = None,
) -> AsyncIterator[list[Address]]:
    """Serve probes and metrics; yields the addresses. An address of "0" serves nothing.

    Raises ValueError for an invalid address; OSError if it cannot be listened on, or if a file of `auth` is unusable.
    """
    endpoint = _MetricsEndpoint(auth or MetricsAuth())
    probes, metrics = web.Application(), web.Application()
    probes.router.add_get("/healthz", _probe(healthy))
    probes.router.add_get("/readyz", _probe(ready))
    metrics.router.add_get("/metrics", endpoint.respond)
    runners = []
    try:
        for app, address in ((probes, health_address), (metrics, metrics_address)):
            if address in ("", "0"):
                continue
            host, port = _parse_address(address)
            runner = web.AppRunner(app, access_log=None)
            runners.append(runner)
            await runner.setup()
            try:
                context = endpoint.certificate.context if endpoint.certificate and app is metrics else None
                await web.TCPSite(runner, host, port, ssl_context=context).start()
            except OSError as problem:
                raise OSError(
                    f"cannot listen on {address}: {describe_os_error(problem)}; choose another address"
                ) from None
        yield [address for runner in runners for address in runner.addresses]
    finally:
        for runner in runners:
            await runner.cleanup()
