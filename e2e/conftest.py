"""Settings from environment variables, and the namespace that the suite creates and deletes."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from e2e.cluster import CRD, MANAGER, Cluster, operator_manifests

IMAGE = os.environ.get("E2E_IMAGE", "busybox:1.36")
CONTROLLER_IMAGE = os.environ.get("E2E_CONTROLLER_IMAGE", "paddle-operator/controller:v0.1.0")
RUN_AS_PROCESS = os.environ.get("E2E_OPERATOR") == "process"  # on this machine, if nodes cannot pull the image
KEEP = os.environ.get("E2E_KEEP") == "1"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    kubectl_path = os.environ.get("KUBECTL") or shutil.which("kubectl")
    assert kubectl_path, "kubectl not found: put it on PATH, or set KUBECTL to its path"
    cluster = Cluster(
        kubectl_path, f"paddle-e2e-{uuid.uuid4().hex[:6]}", int(os.environ.get("E2E_TIMEOUT_SECONDS", "180"))
    )
    if others := cluster.find_cluster_wide_operators():
        pytest.exit(f"{', '.join(others)} would reconcile the suite's jobs, too: stop it first, or use another cluster")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRD}")
    cluster.wait(f"--filename={CRD}", "condition=Established")  # until then kubectl does not know the kind
    cluster.kubectl("create", "namespace", cluster.namespace)
    try:
        yield cluster
    finally:
        if not KEEP:
            cluster.kubectl("delete", "namespace", cluster.namespace, f"--timeout={cluster.timeout_seconds}s")


@pytest.fixture(scope="session")
def operator_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a running operator: its Deployment, or a process on this machine."""
    cluster.apply(*operator_manifests(cluster.namespace, CONTROLLER_IMAGE, replicas=0 if RUN_AS_PROCESS else 1))
    if not RUN_AS_PROCESS:
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
