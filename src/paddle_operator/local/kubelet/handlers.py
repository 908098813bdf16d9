"""Asks a container something, as probes and hooks do: a command inside it, an HTTP request, a connection, a pause."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from paddle_operator.kube.clock import Clock, within
from paddle_operator.kube.errors import in_words
from paddle_operator.local.cri import StartError
from paddle_operator.local.kubelet.pod import ContainerSpec, Handler, HttpGet, Port, TcpSocket

LONGEST_ANSWER = 1024


@dataclass(frozen=True)
class Answer:
    good: bool
    message: str = ""


@dataclass(frozen=True)
class Target:
    """A container that runs: where it is, and how to run something beside it."""

    container: ContainerSpec
    address: str
    execute: Callable[[Sequence[str]], Awaitable[tuple[int, str]]]
    clock: Clock


async def ask(target: Target, handler: Handler, seconds: float) -> Answer:
    """Never raises for what a container does; silence for so many seconds is a bad answer."""
    try:
        return await within(target.clock, seconds, _asked(target, handler))
    except TimeoutError:
        return Answer(False, f"no answer within {seconds:g} s")
    except StartError as error:
        return Answer(False, str(error))
    except OSError as error:
        return Answer(False, in_words(error))


async def _asked(target: Target, handler: Handler) -> Answer:
    if handler.exec:
        code, output = await target.execute(handler.exec.command)
        return Answer(code == 0, output.strip()[:LONGEST_ANSWER] or f"exit code {code}")
    if handler.http_get:
        return await _http(target, handler.http_get)
    if handler.tcp_socket:
        return await _tcp(target, handler.tcp_socket)
    if handler.sleep:
        await target.clock.sleep(handler.sleep.seconds)
        return Answer(True)
    return Answer(False, "local mode asks by exec, httpGet and tcpSocket only: use one of these")


async def _http(target: Target, wanted: HttpGet) -> Answer:
    port = _number(target.container, wanted.port)
    if port is None:
        return Answer(False, f"couldn't find port: {wanted.port} in {target.container.name}")
    path = wanted.path if wanted.path.startswith("/") else f"/{wanted.path}"
    url = f"{wanted.scheme.lower()}://{wanted.host or target.address}:{port}{path}"
    headers = {"User-Agent": "kube-probe/1.36", "Accept": "*/*"} | {
        each.name: each.value for each in wanted.http_headers
    }
    try:
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            # Kubelet does not check certificates either: a probe asks for life, not for identity.
            session.get(url, headers=headers, ssl=False, allow_redirects=False) as reply,
        ):
            return Answer(200 <= reply.status < 400, f"HTTP probe failed with statuscode: {reply.status}")
    except (aiohttp.ClientError, ValueError) as error:
        why = in_words(error) if isinstance(error, OSError) else str(error)
        return Answer(False, f'Get "{url}": {why} ({urlsplit(url).netloc})')


async def _tcp(target: Target, wanted: TcpSocket) -> Answer:
    port = _number(target.container, wanted.port)
    if port is None:
        return Answer(False, f"couldn't find port: {wanted.port} in {target.container.name}")
    host = wanted.host or target.address
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return Answer(False, f"dial tcp {host}:{port}: {in_words(error).lower()}")
    writer.close()
    return Answer(True)


def _number(container: ContainerSpec, port: Port) -> int | None:
    if isinstance(port, int) or port.isdigit():
        return int(port)
    return next((each.container_port for each in container.ports if each.name == port), None)
