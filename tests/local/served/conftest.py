"""Fixtures: a real and a local API server for the same requests."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddle_operator.api.crd import crd
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme import builtin, custom_resource
from paddle_operator.local.apiserver.scheme.kind import Kind, accept_all
from testbed.assets import Binaries
from testbed.control_plane import ControlPlane
from testbed.credentials import ADMIN
from tests.local.served.servers import KubectlServer, Manifest

TOKEN = "a-token"


@pytest.fixture(scope="session")
def paddle_jobs() -> Kind:
    return custom_resource.kind_from_crd(crd(PADDLE_JOB), accept_all)


@pytest.fixture
async def embedded(tmp_path: Path, paddle_jobs: Kind, control_plane_binaries: Binaries) -> AsyncIterator[KubectlServer]:
    home = tmp_path / "embedded"
    home.mkdir()
    kinds = (*builtin.BUILTIN_KINDS, paddle_jobs)
    async with ApiServer(tmp_path / "state", kinds, token=TOKEN, secure_port=0) as server:
        trust = ssl.create_default_context(cafile=server.certificate)
        yield KubectlServer(
            "embedded", server.secure_url, TOKEN, trust, "default", control_plane_binaries.kubectl, home
        )


@pytest.fixture
def real(control_plane: ControlPlane, paddlejob_crd: None, namespace: str, tmp_path: Path) -> KubectlServer:
    home = tmp_path / "real"
    home.mkdir()
    token = control_plane.credentials.token_of(ADMIN)
    program = control_plane.binaries.kubectl
    return KubectlServer("real", control_plane.server, token, control_plane.trust, namespace, program, home)


@pytest.fixture
async def candidate(embedded: KubectlServer, real: KubectlServer) -> KubectlServer:
    """The local server with the real server's namespace of this test."""
    manifest: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": real.namespace}}
    await embedded.create_and_get(manifest)
    return KubectlServer(
        embedded.name,
        embedded.url,
        embedded.token,
        embedded.trust,
        real.namespace,
        embedded.kubectl_program,
        embedded.home,
    )
