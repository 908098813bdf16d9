"""What an installation is in a test: the objects of its manifests, and its process with the rights that they give.

Hollow nodes only play the pod of the Deployment. The process beside it is the real one, with the pod's own arguments
and a token of its ServiceAccount; only the addresses that it listens on are those of the test.
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
from testbed.ports import LOOPBACK, free_ports
from testbed.request import RequestError
from testbed.watch_until import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
CRD = ROOT / "deploy/v1/crd.yaml"
OPERATOR = ROOT / "deploy/v1/operator.yaml"
CLUSTER_WIDE = ROOT / "deploy/v1/operator-cluster-wide.yaml"
NAMESPACE = "paddle-system"
ACCOUNT = "paddle-manager-sa"

Manifest = dict[str, Any]
Place = tuple[str, str, str]  # kind, namespace, name

MANAGER: Place = ("Deployment", NAMESPACE, "paddle-controller-manager")


def objects(text: str) -> dict[Place, Manifest]:
    """The documents of a YAML by what they are called."""
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found}


def arguments_of(deployment: Manifest) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/manager"]
    arguments: list[str] = container["args"]
    return arguments


async def kubeconfig_of_account(plane: ControlPlane, folder: Path, namespace: str = NAMESPACE) -> Path:
    """As the pod of a ServiceAccount is given it: a token that the API server itself has made out."""
    token = await plane.kubectl("--namespace", namespace, "create", "token", ACCOUNT, "--duration=1h")
    config = yaml.safe_load(plane.kubeconfig_for("tester-1").read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    config["contexts"][0]["context"]["namespace"] = namespace
    path = folder / "kubeconfig-of-account"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


async def until_known(plane: ControlPlane, kind: str) -> None:
    """The API server lists a kind a moment after it has its definition; kubectl asks for the list."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await plane.kubectl("get", kind)
            except RequestError:
                continue
            return


async def look_for_kinds(plane: ControlPlane) -> None:
    """The garbage collector, that is: by itself it looks for new ones every 30 s only."""
    await plane.controller_manager.kill()
    await plane.controller_manager.start()


@asynccontextmanager
async def manager_of(kubeconfig: Path, *arguments: str, log: IO[bytes] | None = None) -> AsyncIterator[int]:
    """The process, until it is left; gives the port of its metrics. Raises AssertionError if it ends by itself."""
    async with process_of(kubeconfig, *arguments, log=log) as (process, metrics):
        yield metrics
        assert process.returncode is None, f"the operator ended by itself with code {process.returncode}"


@asynccontextmanager
async def process_of(
    kubeconfig: Path, *arguments: str, log: IO[bytes] | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The same, for who takes its lease and its rights away: without them it ends after a while, as it should."""
    health, metrics = free_ports(2)
    command = [sys.executable, "-m", "paddle_operator.manager", f"--kubeconfig={kubeconfig}", *arguments]
    command += [f"--health-probe-bind-address={LOOPBACK}:{health}", f"--metrics-bind-address={LOOPBACK}:{metrics}"]
    process = await asyncio.create_subprocess_exec(*command, stderr=log)
    try:
        yield process, metrics
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
