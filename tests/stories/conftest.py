"""A real control plane with our CRD, hollow nodes, and the operator: everything a job's life needs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paddle_operator.controllers.paddlejob import PaddleJobs, Settings
from paddle_operator.kube.client import Client
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.manager import Manager
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from tests.stories.stage import Stage

OPERATOR = "tester-20"  # the operator's name in the audit log


@asynccontextmanager
async def operator(control_plane: ControlPlane, settings: Settings) -> AsyncIterator[PaddleJobs]:
    """The operator as its process would run it, without election."""
    async with Client(control_plane.connection(OPERATOR)) as client:
        recorder = Recorder(client, reporter="paddle-operator")
        jobs = PaddleJobs(client, recorder, settings)
        manager = Manager(informers=jobs.informers, controllers=[jobs.controller], recorder=recorder)
        running = asyncio.ensure_future(manager.run())
        try:
            yield jobs
        finally:
            manager.stop()
            await running


@pytest.fixture
async def stage(control_plane: ControlPlane, paddlejob_crd: None, namespace: str) -> AsyncIterator[Stage]:
    async with (
        Client(control_plane.connection()) as client,
        HollowNodes(client, count=4, gpus=8) as nodes,
        operator(control_plane, Settings(namespace=namespace)),
    ):
        yield Stage(control_plane, client, nodes, namespace)
