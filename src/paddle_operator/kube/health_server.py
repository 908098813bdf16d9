"""Answers those who watch over the process: /healthz (restart me?), /readyz (am I of use?), /metrics.

All three are answered by the loop that does the work: while it is stuck, kubelet's probe gets no answer, which is true.
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

from paddle_operator.kube.errors import in_words
from paddle_operator.kube.metrics import REGISTRY

log = logging.getLogger(__name__)

Complaints = Callable[[], Iterable[str]]
"""Sentences about what is wrong right now; none means well."""

Address = tuple[str, int]


def _probe(complaints: Complaints) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        wrong = list(complaints())
        return web.Response(text="\n".join(wrong or ["ok"]) + "\n", status=503 if wrong else 200)

    return answer


@dataclass(frozen=True)
class MetricsAuth:
    """How metrics are kept from those whom they do not concern: TLS, a token, both or none.

    Files may be replaced while we run, as a mounted Secret is: the token is read at each request, the certificate at
    each handshake where it is another.
    """

    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None


class _Certificate:
    """The newest one, whoever asks: a client that trusts only the new one must not be shown the old one first."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Raises OSError where it cannot be read."""
        self._certificate, self._key = certificate, key
        self._loaded_at = 0.0
        self._load()
        self.context = self._newest
        self.context.sni_callback = self._greet  # called in every handshake, with a name or without

    def _load(self) -> None:
        if (changed_at := self._certificate.stat().st_mtime) != self._loaded_at:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                context.load_cert_chain(self._certificate, self._key)
            except OSError as problem:  # OpenSSL names no file
                files = f"{self._certificate} with the key {self._key or 'in it'}"
                raise OSError(f"the certificate {files} cannot be used: {problem.strerror or problem}") from None
            self._newest, self._loaded_at = context, changed_at

    def _greet(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        try:
            self._load()
        except OSError as problem:  # half of it is written, perhaps: the old one serves until the next handshake
            log.warning("the certificate of /metrics cannot be read, the old one stays", extra={"why": str(problem)})
        connection.context = self._newest


class _Figures:
    def __init__(self, protection: MetricsAuth) -> None:
        """Raises OSError where a certificate or the token cannot be read."""
        self._protection = protection
        if protection.token:
            protection.token.read_text()  # or each who asks would be told of a defect, and nobody of the file
        self.certificate = _Certificate(protection.certificate, protection.key) if protection.certificate else None

    async def answer(self, request: web.Request) -> web.Response:
        if self._protection.token and not self._knows(request, self._protection.token):
            return web.Response(text="a token is needed: Authorization: Bearer …\n", status=401)
        return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _knows(self, request: web.Request, token: Path) -> bool:
        known = f"Bearer {token.read_text().strip()}"
        told = request.headers.get("Authorization", "").encode(errors="surrogateescape")  # anybody may send any bytes
        return hmac.compare_digest(told, known.encode())


def _listener(address: str) -> tuple[str | None, int]:
    """`:8080` is every address, as in Go's flags. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(
            f'the address "{address}" has no port from 0 to 65535: write host:port, :port, or 0 to serve nothing'
        )
    return host.strip("[]") or None, int(port)


@asynccontextmanager
async def serving(
    health_address: str,
    metrics_address: str,
    healthy: Complaints,
    ready: Complaints,
    protection: MetricsAuth | None = None,
) -> AsyncIterator[list[Address]]:
    """Serve probes and metrics, and tell where; an address of "0" serves nothing.

    Raises ValueError for what is no address, OSError where it cannot be listened on, or where a file of the protection
    cannot be used.
    """
    told = _Figures(protection or MetricsAuth())
    probes, figures = web.Application(), web.Application()
    probes.router.add_get("/healthz", _probe(healthy))
    probes.router.add_get("/readyz", _probe(ready))
    figures.router.add_get("/metrics", told.answer)
    runners = []
    try:
        for app, address in ((probes, health_address), (figures, metrics_address)):
            if address in ("", "0"):
                continue
            host, port = _listener(address)
            runner = web.AppRunner(app, access_log=None)
            runners.append(runner)
            await runner.setup()
            try:
                context = told.certificate.context if told.certificate and app is figures else None
                await web.TCPSite(runner, host, port, ssl_context=context).start()
            except OSError as problem:
                raise OSError(f"cannot listen on {address}: {in_words(problem)}; choose another address") from None
        yield [address for runner in runners for address in runner.addresses]
    finally:
        for runner in runners:
            await runner.cleanup()
