"""The embedded cluster as one process: API server, node, and the very operator that runs on Kubernetes."""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

from paddle_operator.cli.machine import image_folders
from paddle_operator.cli.paddlejobs import paddle_job_kind
from paddle_operator.cli.state import Cluster, State
from paddle_operator.controllers.paddlejob import PaddleJobs, Settings
from paddle_operator.kube.client import Client
from paddle_operator.kube.connection import PlainConnection
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.manager import Manager
from paddle_operator.local.builtin import KINDS
from paddle_operator.local.images import LocalImages
from paddle_operator.local.kinds import Kind
from paddle_operator.local.logs import LogFiles
from paddle_operator.local.node import Node
from paddle_operator.local.sandbox import sandbox
from paddle_operator.local.server import ApiServer

log = logging.getLogger(__name__)

REPORTER = "paddle-operator"


@asynccontextmanager
async def api_server(state: State) -> AsyncIterator[Cluster]:
    """Only the API server, on what is stored: enough to look at jobs and their logs, and to delete them.

    Raises AlreadyRuns.
    """
    last = state.last()
    token = last.token if last else secrets.token_urlsafe(32)
    with state.held():
        port = urlsplit(last.url).port or 0 if last else 0
        server = ApiServer(state.folder, served_kinds(), token=token, logs=LogFiles(state.folder), port=port)
        async with server:
            yield Cluster(server.url, token, os.getpid())


@asynccontextmanager
async def cluster(state: State) -> AsyncIterator[Cluster]:
    """The whole cluster, announced to others; leaving ends its pods with their grace. Raises AlreadyRuns."""
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(api_server(state))
        connection = PlainConnection(served.url, served.token)
        parts = await stack.enter_async_context(asyncio.TaskGroup())
        await stack.enter_async_context(running_node(state, connection, parts))
        await stack.enter_async_context(running_operator(connection, parts))
        state.announce(served)
        yield served


@asynccontextmanager
async def running_operator(connection: PlainConnection, parts: asyncio.TaskGroup) -> AsyncIterator[None]:
    async with Client(connection, user_agent=REPORTER) as client:
        recorder = Recorder(client, reporter=REPORTER)
        jobs = PaddleJobs(client, recorder, Settings())
        manager = Manager(informers=jobs.informers, controllers=[jobs.controller], recorder=recorder)
        running = parts.create_task(manager.run(), name="operator")
        try:
            yield
        finally:
            manager.stop()
            await asyncio.wait((running,))


@asynccontextmanager
async def running_node(state: State, connection: PlainConnection, parts: asyncio.TaskGroup) -> AsyncIterator[None]:
    images = LocalImages(image_folders(), state.images, state.cache / "images")
    async with Client(connection, user_agent="paddle-node") as client:
        node = Node(client, state.folder, images=images, sandbox=sandbox())
        running = parts.create_task(node.serve(), name="node")
        try:
            yield
        finally:
            await node.stop()
            await asyncio.wait((running,))


def served_kinds() -> list[Kind]:
    return [*KINDS, paddle_job_kind()]
