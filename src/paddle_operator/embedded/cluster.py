"""The embedded cluster: API server, node and the operator that also runs on Kubernetes, in one process."""

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from paddle_operator.controllers.host_ports import PortBlocks, blocks_of
from paddle_operator.controllers.kinds import CONTROLLED_KINDS, ControlledKind, build_reconcilers
from paddle_operator.controllers.settings import Settings
from paddle_operator.embedded.api_server import api_server
from paddle_operator.embedded.overrides import local_images
from paddle_operator.embedded.state import RunningCluster, State
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.process import freeze_garbage_collector
from paddle_operator.kube.reconciler import build_manager
from paddle_operator.local.container_logs import LogFiles
from paddle_operator.local.kubelet.ip_allocator import AddressBlock
from paddle_operator.local.node import Node
from paddle_operator.local.sandbox.sandbox import PlainSandbox, detect_sandbox
from paddle_operator.plan.endpoints import PORTS_PER_JOB

log = logging.getLogger(__name__)

REPORTER = "paddle-operator"
STOP_WARNING_SECONDS = 1.0
LOCAL_HOST_PORTS = range(20_000, 32_760)  # below the kernel's ephemeral ports, which begin at 32768


@asynccontextmanager
async def cluster(state: State, kinds: Sequence[ControlledKind] = CONTROLLED_KINDS) -> AsyncIterator[RunningCluster]:
    """Run the cluster and announce it; on exit its pods get their grace period. Raises AlreadyRunning."""
    logs = LogFiles(state.directory)  # shared: the node wakes the API server's readers of a log
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(api_server(state, logs, [each.definition for each in kinds]))
        connection = StaticServerConfig(served.url, served.token)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        last = state.last_cluster()  # its addresses are reused: they are stored in ConfigMaps of pods that wait
        block = stack.enter_context(AddressBlock.claim(last.block if last else None))
        await stack.enter_async_context(run_node(state, logs, block, connection, tasks))
        await stack.enter_async_context(run_operator(connection, tasks, kinds))
        running = msgspec.structs.replace(served, block=block.number)
        state.announce(running)
        yield running


@asynccontextmanager
async def run_operator(
    connection: StaticServerConfig, tasks: asyncio.TaskGroup, kinds: Sequence[ControlledKind]
) -> AsyncIterator[None]:
    async with Client(connection, user_agent=REPORTER) as client:
        recorder = Recorder(client, reporter=REPORTER)
        reconcilers = build_reconcilers(client, recorder, [Settings(ports=local_ports())], kinds)
        manager = build_manager(recorder, reconcilers, on_synced=freeze_garbage_collector)
        running = tasks.create_task(manager.run(), name="operator")
        try:
            yield
        finally:
            manager.stop()
            await asyncio.wait((running,))


@asynccontextmanager
async def run_node(
    state: State, logs: LogFiles, block: AddressBlock, connection: StaticServerConfig, tasks: asyncio.TaskGroup
) -> AsyncIterator[None]:
    cache = state.cache / "images"
    cache.mkdir(parents=True, exist_ok=True)
    sandbox = await detect_sandbox([cache])
    level = logging.WARNING if isinstance(sandbox, PlainSandbox) else logging.INFO
    for limitation in sandbox.limitations:
        log.log(level, "sandbox is limited: %s", limitation)
    images = local_images(state)
    async with Client(connection, user_agent="paddle-node") as client:
        node = Node(client, state.directory, images=images, sandbox=sandbox, block=block, logs=logs)
        running = tasks.create_task(node.serve(), name="node")
        await _wait_ready(node.ready, running)
        try:
            yield
        finally:
            node.stop()
            _, pending = await asyncio.wait((running,), timeout=STOP_WARNING_SECONDS)
            if pending:
                log.warning("pods are still in their grace period; press Ctrl-C to kill them")
                await asyncio.wait((running,))


async def _wait_ready(ready: asyncio.Event, running: "asyncio.Task[None]") -> None:
    """Return when it is ready or has failed; its task group raises the failure."""
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait((waiting, running), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def local_ports() -> PortBlocks:
    """Free host ports in random order, so that two clusters of one host seldom choose the same."""
    blocks = list(blocks_of(LOCAL_HOST_PORTS))
    random.SystemRandom().shuffle(blocks)
    return PortBlocks(blocks, is_free, for_every_job=True)


def is_free(first: int) -> bool:
    """Whether a job's ports are free on all addresses: Paddle's masters listen on every one."""
    for port in range(first, first + PORTS_PER_JOB):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True
