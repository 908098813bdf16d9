"""Every test here runs on the real kube-apiserver (`cluster`) and on ours (`embedded`)."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed.control_plane import ControlPlane
from tests.conformance.servers import Server, cluster_server, embedded_server


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.lower().removeprefix("test_"))[:40].strip("-")
    return words or "test"


@pytest.fixture(params=[pytest.param("cluster", marks=pytest.mark.cluster), "embedded"])
def judge(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real control plane, which is started only where a test needs it; None for ours."""
    if request.param == "embedded":
        return None
    request.getfixturevalue("paddlejob_crd")
    control_plane: ControlPlane = request.getfixturevalue("control_plane")
    return control_plane


@pytest.fixture
async def server(judge: ControlPlane | None, tmp_path: Path, prefix: str) -> AsyncIterator[Server]:
    """A server, and a namespace of the test's own on it."""
    if judge is None:
        async with embedded_server(tmp_path, prefix) as server:
            yield server
    else:
        async with cluster_server(judge, prefix) as server:
            yield server
