"""Each test runs on a real kube-apiserver (`cluster`) and on the local one (`embedded`)."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed.control_plane import ControlPlane
from tests.conformance.servers import Server, cluster_server, embedded_server


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.lower().removeprefix("test_"))[:40].strip("-")
    return name or "test"


@pytest.fixture(params=[pytest.param("cluster", marks=pytest.mark.cluster), "embedded"])
def reference_control_plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real control plane, started only if a test needs it; None for the local API server."""
    if request.param == "embedded":
        return None
    request.getfixturevalue("paddlejob_crd")
    control_plane: ControlPlane = request.getfixturevalue("control_plane")
    return control_plane


@pytest.fixture
async def server(reference_control_plane: ControlPlane | None, tmp_path: Path, prefix: str) -> AsyncIterator[Server]:
    """A server with a namespace of the test."""
    if reference_control_plane is None:
        async with embedded_server(tmp_path, prefix) as server:
            yield server
    else:
        async with cluster_server(reference_control_plane, prefix) as server:
            yield server
