"""Runs probes and hooks: is a container started, alive, ready? A result counts after enough of its kind in a row."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from paddle_operator.kube.clock import Clock, within
from paddle_operator.kube.errors import describe_os_error
from paddle_operator.local.cri import StartError
from paddle_operator.local.kubelet.pod import (
    ContainerSpec,
    HTTPGetAction,
    LifecycleHandler,
    Port,
    Probe,
    TCPSocketAction,
)

MAX_OUTPUT_CHARS = 1024


@dataclass(frozen=True)
class ProbeResult:
    success: bool
    message: str = ""


@dataclass(frozen=True)
class ProbeTarget:
    """A running container: its address, and how to run a command in it."""

    container: ContainerSpec
    address: str
    run_command: Callable[[Sequence[str]], Awaitable[tuple[int, str]]]
    clock: Clock


class ProbeCounter:
    """Counts equal results in a row and compares them with the probe's thresholds."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._last: bool | None = None
        self._run_length = 0

    def observe(self, success: bool) -> bool | None:
        """The decided result, or None below the threshold."""
        self._run_length = self._run_length + 1 if success is self._last else 1
        self._last = success
        threshold = self._probe.success_threshold if success else self._probe.failure_threshold
        return success if self._run_length >= threshold else None


async def run_probe(
    probe: Probe,
    check: Callable[[], Awaitable[ProbeResult]],
    clock: Clock,
    on_decision: Callable[[bool], bool],
    on_failure: Callable[[str], None],
) -> None:
    """Probe until `on_decision`, called with each decided result, returns False."""
    counter = ProbeCounter(probe)
    await clock.sleep(probe.initial_delay_seconds)
    while True:
        result = await check()
        if not result.success:
            on_failure(result.message)
        decision = counter.observe(result.success)
        if decision is not None and not on_decision(decision):
            return
        await clock.sleep(probe.period_seconds)


async def run_handler(target: ProbeTarget, handler: LifecycleHandler, timeout_seconds: float) -> ProbeResult:
    """Run a probe's or a hook's handler once. Never raises for what the container does."""
    try:
        return await within(target.clock, timeout_seconds, _run_handler(target, handler))
    except TimeoutError:
        return ProbeResult(False, f"no response within {timeout_seconds:g} s")
    except StartError as error:
        return ProbeResult(False, str(error))
    except OSError as error:
        return ProbeResult(False, describe_os_error(error))


async def _run_handler(target: ProbeTarget, handler: LifecycleHandler) -> ProbeResult:
    if handler.exec:
        code, output = await target.run_command(handler.exec.command)
        return ProbeResult(code == 0, output.strip()[:MAX_OUTPUT_CHARS] or f"exit code {code}")
    if handler.http_get:
        return await _get_http(target, handler.http_get)
    if handler.tcp_socket:
        return await _connect_tcp(target, handler.tcp_socket)
    if handler.sleep:
        await target.clock.sleep(handler.sleep.seconds)
        return ProbeResult(True)
    return ProbeResult(False, "local mode supports only exec, httpGet and tcpSocket: use one of these")


async def _get_http(target: ProbeTarget, action: HTTPGetAction) -> ProbeResult:
    port = _port_number(target.container, action.port)
    if port is None:
        return ProbeResult(False, f"couldn't find port: {action.port} in {target.container.name}")
    path = action.path if action.path.startswith("/") else f"/{action.path}"
    url = f"{action.scheme.lower()}://{action.host or target.address}:{port}{path}"
    headers = {"User-Agent": "kube-probe/1.36", "Accept": "*/*"} | {
        each.name: each.value for each in action.http_headers
    }
    try:
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            # Kubelet does not verify certificates either: a probe checks health, not identity.
            session.get(url, headers=headers, ssl=False, allow_redirects=False) as response,
        ):
            return ProbeResult(200 <= response.status < 400, f"HTTP probe failed with statuscode: {response.status}")
    except (aiohttp.ClientError, ValueError) as error:
        reason = describe_os_error(error) if isinstance(error, OSError) else str(error)
        return ProbeResult(False, f'Get "{url}": {reason} ({urlsplit(url).netloc})')


async def _connect_tcp(target: ProbeTarget, action: TCPSocketAction) -> ProbeResult:
    port = _port_number(target.container, action.port)
    if port is None:
        return ProbeResult(False, f"couldn't find port: {action.port} in {target.container.name}")
    host = action.host or target.address
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return ProbeResult(False, f"dial tcp {host}:{port}: {describe_os_error(error).lower()}")
    writer.close()
    return ProbeResult(True)


def _port_number(container: ContainerSpec, port: Port) -> int | None:
    if isinstance(port, int) or port.isdigit():
        return int(port)
    return next((each.container_port for each in container.ports if each.name == port), None)
