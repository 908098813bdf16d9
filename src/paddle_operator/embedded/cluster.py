"""The embedded cluster as one process: API server, node, and the very operator that runs on Kubernetes."""

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import msgspec

from paddle_operator.controllers.host_ports import PortBlocks, blocks_of
from paddle_operator.controllers.kinds import CONTROLLED_KINDS, ControlledKind, build_reconcilers
from paddle_operator.controllers.settings import Settings
from paddle_operator.embedded.custom_kind import custom_kind
from paddle_operator.embedded.overrides import local_images
from paddle_operator.embedded.state import Cluster, State
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import PlainConnection
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.process import freeze_garbage_collector
from paddle_operator.kube.reconciler import build_manager
from paddle_operator.local.apiserver.http_server import LOOPBACK, ApiServer
from paddle_operator.local.apiserver.scheme.builtin import KINDS
from paddle_operator.local.apiserver.scheme.kind import Kind
from paddle_operator.local.apiserver.serving_cert import certificate_pem
from paddle_operator.local.container_logs import LogFiles
from paddle_operator.local.kubelet.ip_allocator import AddressBlock
from paddle_operator.local.node import Node
from paddle_operator.local.sandbox.sandbox import PlainSandbox, detect_sandbox
from paddle_operator.plan.endpoints import PORTS_PER_JOB

log = logging.getLogger(__name__)

REPORTER = "paddle-operator"
PATIENCE_SECONDS = 1.0


@asynccontextmanager
async def api_server(
    state: State, logs: LogFiles | None = None, kinds: Sequence[ControlledKind] = CONTROLLED_KINDS
) -> AsyncIterator[Cluster]:
    """Only the API server, on what is stored: enough to look at jobs and their logs, and to delete them.

    Raises AlreadyRuns.
    """
    logs = logs or LogFiles(state.folder)
    last = state.last_cluster()
    token = last.token if last else secrets.token_urlsafe(32)
    port, secure_port = (_same_port(url) for url in ((last.url, last.secure_url) if last else ("", "")))
    with state.locked():
        server = ApiServer(
            state.folder, served_kinds(kinds), token=token, logs=logs, port=port, secure_port=secure_port
        )
        async with server:
            assert server.certificate
            certificate = certificate_pem(server.certificate)
            yield Cluster(server.url, token, os.getpid(), server.secure_url, certificate)


def _same_port(url: str) -> int:
    """The port that was used last, so that an old kubeconfig leads here again; any, where another has it by now."""
    port = urlsplit(url).port or 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return 0
    return port


@asynccontextmanager
async def cluster(state: State, kinds: Sequence[ControlledKind] = CONTROLLED_KINDS) -> AsyncIterator[Cluster]:
    """The whole cluster, announced to others; leaving ends its pods with their grace. Raises AlreadyRuns."""
    logs = LogFiles(state.folder)  # one for both: who serves a log hears from who writes it
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(api_server(state, logs, kinds))
        connection = PlainConnection(served.url, served.token)
        parts = await stack.enter_async_context(asyncio.TaskGroup())
        last = (
            state.last_cluster()
        )  # with other addresses, what is written of pods that have not begun yet would be untrue
        block = stack.enter_context(AddressBlock.claim(last.block if last else None))
        await stack.enter_async_context(running_node(state, logs, block, connection, parts))
        await stack.enter_async_context(running_operator(connection, parts, kinds))
        state.announce(msgspec.structs.replace(served, block=block.number))
        yield served


@asynccontextmanager
async def running_operator(
    connection: PlainConnection, parts: asyncio.TaskGroup, kinds: Sequence[ControlledKind]
) -> AsyncIterator[None]:
    async with Client(connection, user_agent=REPORTER) as client:
        recorder = Recorder(client, reporter=REPORTER)
        reconcilers = build_reconcilers(client, recorder, [Settings(ports=local_ports())], kinds)
        manager = build_manager(recorder, reconcilers, on_synced=freeze_garbage_collector)
        running = parts.create_task(manager.run(), name="operator")
        try:
            yield
        finally:
            manager.stop()
            await asyncio.wait((running,))


@asynccontextmanager
async def running_node(
    state: State, logs: LogFiles, block: AddressBlock, connection: PlainConnection, parts: asyncio.TaskGroup
) -> AsyncIterator[None]:
    cache = state.cache / "images"
    cache.mkdir(parents=True, exist_ok=True)
    sandbox = await detect_sandbox([cache])
    for limitation in sandbox.limitations:
        log.log(logging.WARNING if isinstance(sandbox, PlainSandbox) else logging.INFO, "this machine: %s", limitation)
    images = local_images(state)
    async with Client(connection, user_agent="paddle-node") as client:
        node = Node(client, state.folder, images=images, sandbox=sandbox, block=block, logs=logs)
        running = parts.create_task(node.serve(), name="node")
        await either(node.ready, running)
        try:
            yield
        finally:
            node.stop()
            _, late = await asyncio.wait((running,), timeout=PATIENCE_SECONDS)
            if late:
                log.warning("some pods take their grace period to end; Ctrl-C ends them at once")
                await asyncio.wait((running,))


async def either(ready: asyncio.Event, running: "asyncio.Task[None]") -> None:
    """Until it is ready; or until it has died, which its group then tells."""
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait((waiting, running), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def local_ports() -> PortBlocks:
    """Ports below those that the kernel gives out by itself, in an order of this cluster's own: two clusters of one
    machine seldom want the same, and what somebody listens on is not taken.
    """
    blocks = list(blocks_of(range(20_000, 32_760)))
    random.SystemRandom().shuffle(blocks)
    return PortBlocks(blocks, nobody_listens, for_every_job=True)


def nobody_listens(first: int) -> bool:
    """Paddle's masters listen on every address, so that a port must be free on all of them."""
    for port in range(first, first + PORTS_PER_JOB):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def served_kinds(kinds: Sequence[ControlledKind] = CONTROLLED_KINDS) -> list[Kind]:
    return [*KINDS, *(custom_kind(each.definition) for each in kinds)]
