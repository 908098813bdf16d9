"""What the suite is told by variables, and the namespace that it makes and removes."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from e2e.cluster import CRD, MANAGER, Cluster, operator

IMAGE = os.environ.get("E2E_IMAGE", "busybox:1.36")
CONTROLLER_IMAGE = os.environ.get("E2E_CONTROLLER_IMAGE", "paddle-operator/controller:v0.1.0")
AS_PROCESS = os.environ.get("E2E_OPERATOR") == "process"  # beside the cluster, where nodes cannot pull its image
KEEP = os.environ.get("E2E_KEEP") == "1"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    kubectl = os.environ.get("KUBECTL") or shutil.which("kubectl")
    assert kubectl, "there is no kubectl: put it on PATH, or name it in KUBECTL"
    made = Cluster(kubectl, f"paddle-e2e-{uuid.uuid4().hex[:6]}", int(os.environ.get("E2E_PATIENCE_SECONDS", "180")))
    if watching := made.operators_of_every_namespace():
        pytest.exit(
            f"{', '.join(watching)} would take the suite's jobs for its own: stop it first, or use another cluster"
        )
    made.says("apply", "--server-side", "--force-conflicts", f"--filename={CRD}")
    made.wait(f"--filename={CRD}", "condition=Established")  # before that there is no such kind to kubectl
    made.says("create", "namespace", made.namespace)
    try:
        yield made
    finally:
        if not KEEP:
            made.says("delete", "namespace", made.namespace, f"--timeout={made.patience_seconds}s")


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """With the operator at work: its Deployment, or a process of ours in its stead."""
    cluster.apply(*operator(cluster.namespace, CONTROLLER_IMAGE, replicas=0 if AS_PROCESS else 1))
    if not AS_PROCESS:
        cluster.wait(f"deployment/{MANAGER}", "condition=Available")
        yield cluster
        return
    command = [sys.executable, "-m", "paddle_operator.manager", f"--namespace={cluster.namespace}"]
    addresses = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-level=warning"]
    with subprocess.Popen(command + addresses) as process:
        try:
            yield cluster
        finally:
            process.terminate()


@pytest.fixture
def image() -> str:
    return IMAGE
