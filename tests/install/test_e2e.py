"""Does `make e2e` run? On real nodes it is run by hand; here hollow nodes simulate its programs."""

import asyncio
import os
import sys

import pytest

from paddle_operator.kube.client import Client
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits
from tests.install.installation import CRD, ROOT, restart_controller_manager

SUCCEEDING_PODS = ("ps-*-worker-*", "done-*-worker-*", "names-worker-*", "single-worker-*", "suspended-worker-*")
FAILING_PODS = ("clean-*-worker-1", "retried-worker-0")


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_e2e_suite_passes_on_hollow_nodes(plane: ControlPlane) -> None:
    await plane.kubectl("apply", "--server-side", "-f", str(CRD))
    await restart_controller_manager(plane)
    async with Client(plane.connection()) as client, HollowNodes(client, count=4) as nodes:
        for pods in SUCCEEDING_PODS:
            nodes.script(pods, exits(0, after=0.5))
        for pods in FAILING_PODS:
            nodes.script(pods, exits(7, after=0.2))
        variables = {
            "KUBECONFIG": str(plane.write_kubeconfig("tester-1")),
            "KUBECTL": str(plane.binaries.kubectl),
            "E2E_OPERATOR": "process",
            "E2E_TIMEOUT_SECONDS": "180",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "e2e"),
            cwd=ROOT,
            env=os.environ | variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert "18 passed, 1 skipped" in output.decode()
