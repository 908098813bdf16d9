"""An installation under test: the objects of its manifests, and the manager process with the rights they grant.

Hollow nodes only simulate the Deployment's pod. The manager runs beside them as a real process, with the pod's
arguments and a token of its ServiceAccount; only its listen addresses differ.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from testbed.control_plane import ControlPlane
from testbed.ports import LOOPBACK, find_free_ports
from testbed.request import RequestError
from testbed.watch_until import WAIT_TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2]
CRD = ROOT / "deploy/v1/crd.yaml"
OPERATOR = ROOT / "deploy/v1/operator.yaml"
CLUSTER_WIDE = ROOT / "deploy/v1/operator-cluster-wide.yaml"
NAMESPACE = "paddle-system"
ACCOUNT = "paddle-manager-sa"

Manifest = dict[str, Any]
ObjectRef = tuple[str, str, str]  # kind, namespace, name

MANAGER: ObjectRef = ("Deployment", NAMESPACE, "paddle-controller-manager")


def parse_objects(text: str) -> dict[ObjectRef, Manifest]:
    """The documents of a YAML by kind, namespace and name."""
    documents = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in documents}


def manager_arguments(deployment: Manifest) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/manager"]
    arguments: list[str] = container["args"]
    return arguments


async def service_account_kubeconfig(plane: ControlPlane, folder: Path, namespace: str = NAMESPACE) -> Path:
    """Write a kubeconfig with a token that the API server issued for the ServiceAccount, as its pod has."""
    token = await plane.kubectl("--namespace", namespace, "create", "token", ACCOUNT, "--duration=1h")
    config = yaml.safe_load(plane.write_kubeconfig("tester-1").read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    config["contexts"][0]["context"]["namespace"] = namespace
    path = folder / "service-account-kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


async def wait_kind_listed(plane: ControlPlane, kind: str) -> None:
    """Wait until kubectl can list a kind: discovery has it a moment after its definition."""
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while True:
            try:
                await plane.kubectl("get", kind)
            except RequestError:
                continue
            return


async def restart_controller_manager(plane: ControlPlane) -> None:
    """So that the garbage collector knows new kinds at once: it discovers them only every 30 s."""
    await plane.controller_manager.kill()
    await plane.controller_manager.start()


@asynccontextmanager
async def run_manager(kubeconfig: Path, *arguments: str, log: IO[bytes] | None = None) -> AsyncIterator[int]:
    """Run the manager and yield its metrics port. Raises AssertionError if it exits by itself."""
    async with start_manager(kubeconfig, *arguments, log=log) as (process, metrics_port):
        yield metrics_port
        assert process.returncode is None, f"the manager exited by itself with code {process.returncode}"


@asynccontextmanager
async def start_manager(
    kubeconfig: Path, *arguments: str, log: IO[bytes] | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Like run_manager, for tests that remove its lease or rights, after which it exits on purpose."""
    health_port, metrics_port = find_free_ports(2)
    command = [sys.executable, "-m", "paddle_operator.manager", f"--kubeconfig={kubeconfig}", *arguments]
    command += [
        f"--health-probe-bind-address={LOOPBACK}:{health_port}",
        f"--metrics-bind-address={LOOPBACK}:{metrics_port}",
    ]
    process = await asyncio.create_subprocess_exec(*command, stderr=log)
    try:
        yield process, metrics_port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
