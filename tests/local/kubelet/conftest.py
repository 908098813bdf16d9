"""A node on the embedded API server, and on the real one for scenarios that must agree on both."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import BUILTIN_KINDS
from testbed.control_plane import ControlPlane
from tests.local.kubelet.harness import NODES, NodeHarness, run_node


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Client]:
    token = secrets.token_hex(8)
    async with (
        ApiServer(tmp_path / "server", BUILTIN_KINDS, token=token) as server,
        Client(StaticServerConfig(server.url, token)) as client,
    ):
        yield client


@pytest.fixture
async def harness(embedded: Client, tmp_path: Path) -> AsyncIterator[NodeHarness]:
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        yield harness


@pytest.fixture
async def cluster_harness(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[NodeHarness]:
    """On the real control plane, whose node controller expects a Lease every few seconds."""
    async with Client(control_plane.connection()) as client:
        name = f"process-{secrets.token_hex(3)}"
        try:
            async with run_node(
                client, tmp_path / "state", namespace, name=name, binds_claims=False, lease_renew_seconds=3.0
            ) as harness:
                yield harness
        finally:
            for node in await client.list_all(NODES):
                if node.key.name.startswith(name):
                    await client.delete(NODES, node.key)
