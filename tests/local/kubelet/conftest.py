"""A node on the embedded API server, and for what both servers must agree on, on the real one too."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import PlainConnection
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import KINDS
from testbed.control_plane import ControlPlane
from tests.local.kubelet.bed import NODES, Bed, opened_bed


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Client]:
    token = secrets.token_hex(8)
    async with (
        ApiServer(tmp_path / "server", KINDS, token=token) as server,
        Client(PlainConnection(server.url, token)) as client,
    ):
        yield client


@pytest.fixture
async def bed(embedded: Client, tmp_path: Path) -> AsyncIterator[Bed]:
    async with opened_bed(embedded, tmp_path / "state", "default") as bed:
        yield bed


@pytest.fixture
async def cluster_bed(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Bed]:
    """On the real control plane, whose node controller wants to hear of a node every few seconds."""
    async with Client(control_plane.connection()) as client:
        name = f"process-{secrets.token_hex(3)}"
        try:
            async with opened_bed(
                client, tmp_path / "state", namespace, name=name, binds_claims=False, lease_renew_seconds=3.0
            ) as bed:
                yield bed
        finally:
            for node in await client.list_all(NODES):
                if node.key.name.startswith(name):
                    await client.delete(NODES, node.key)
