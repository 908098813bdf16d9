"""Answers those who watch over the process: /healthz (restart me?), /readyz (am I of use?), /metrics.

All three are answered by the loop that does the work: while it is stuck, kubelet's probe gets no answer, which is true.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from paddle_operator.kube.errors import in_words
from paddle_operator.kube.metrics import REGISTRY

Complaints = Callable[[], Iterable[str]]
"""Sentences about what is wrong right now; none means well."""

Address = tuple[str, int]


def _probe(complaints: Complaints) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        wrong = list(complaints())
        return web.Response(text="\n".join(wrong or ["ok"]) + "\n", status=503 if wrong else 200)

    return answer


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})


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
    health_address: str, metrics_address: str, healthy: Complaints, ready: Complaints
) -> AsyncIterator[list[Address]]:
    """Serve probes and metrics, and tell where; an address of "0" serves nothing.

    Raises ValueError for what is no address, OSError where it cannot be listened on.
    """
    probes, figures = web.Application(), web.Application()
    probes.router.add_get("/healthz", _probe(healthy))
    probes.router.add_get("/readyz", _probe(ready))
    figures.router.add_get("/metrics", _metrics)
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
                await web.TCPSite(runner, host, port).start()
            except OSError as problem:
                raise OSError(f"cannot listen on {address}: {in_words(problem)}; choose another address") from None
        yield [address for runner in runners for address in runner.addresses]
    finally:
        for runner in runners:
            await runner.cleanup()
