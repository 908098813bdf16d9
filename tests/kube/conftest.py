"""Clients of the real API server: straight, and through a proxy that misbehaves when told."""

from collections.abc import AsyncIterator, Iterator

import pytest

from paddle_operator.kube.client import Client
from testbed.assets import Binaries
from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.kube.kubelet import Kubelet, running_kubelet


@pytest.fixture(scope="module")
def breakable_control_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """One of the module's own, for tests that kill parts of it: the shared one's controllers would sulk for minutes."""
    with ControlPlane.start(control_plane_binaries) as started:
        yield started


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(control_plane.connection()) as client:
        yield client


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(control_plane.connection()) as proxy:
        yield proxy


@pytest.fixture
async def proxied(control_plane: ControlPlane, proxy: FaultProxy) -> AsyncIterator[Client]:
    """A client behind the proxy, under a name of its own in the audit log."""
    async with Client(proxy.connection(control_plane.credentials.token_of("tester-0"))) as client:
        yield client


@pytest.fixture
async def kubelet(client: Client, namespace: str) -> AsyncIterator[Kubelet]:
    async with running_kubelet(client, node=namespace) as kubelet:
        yield kubelet
