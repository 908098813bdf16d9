"""Clients of the real API server: direct, and through a fault proxy."""

from collections.abc import AsyncIterator, Iterator

import pytest

from paddle_operator.kube.client import Client
from testbed.assets import Binaries
from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.kube.fake_kubelet import FakeKubelet, run_fake_kubelet


@pytest.fixture(scope="module")
def breakable_control_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane per module for tests that kill servers: its controllers back off for minutes afterwards."""
    with ControlPlane.start(control_plane_binaries) as control_plane:
        yield control_plane


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
    """A client behind the proxy, with its own user in the audit log."""
    async with Client(proxy.connection(control_plane.credentials.token_of("tester-0"))) as client:
        yield client


@pytest.fixture
async def kubelet(client: Client, namespace: str) -> AsyncIterator[FakeKubelet]:
    async with run_fake_kubelet(client, node=namespace) as kubelet:
        yield kubelet
