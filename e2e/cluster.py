"""The cluster as a user has it: kubectl, and waiting for what it tells."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
CRD = ROOT / "deploy/v1/crd.yaml"
OPERATOR = ROOT / "deploy/v1/operator.yaml"
MANAGER = "paddle-controller-manager"

Manifest = dict[str, Any]


class KubectlError(RuntimeError):
    """What kubectl said."""


@dataclass(frozen=True)
class Cluster:
    kubectl: str
    namespace: str
    patience_seconds: int

    def says(self, *arguments: str, stdin: str = "") -> str:
        """In our namespace. Raises KubectlError."""
        command = [self.kubectl, "--namespace", self.namespace, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KubectlError(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *manifests: Manifest) -> None:
        self.says("apply", "--filename=-", stdin=yaml.safe_dump_all(manifests))

    def remove(self, *manifests: Manifest) -> None:
        patience = f"--timeout={self.patience_seconds}s"
        self.says("delete", "--filename=-", patience, stdin=yaml.safe_dump_all(manifests))

    def wait(self, what: str, condition: str) -> None:
        self.says("wait", what, f"--for={condition}", f"--timeout={self.patience_seconds}s")

    def phase(self, job: str, phase: str) -> None:
        """Wait for it; where it does not come, the error has what the job says instead."""
        try:
            self.wait(f"pdj/{job}", f"jsonpath={{.status.phase}}={phase}")
        except KubectlError as error:
            raise KubectlError(f"{error}\n{self.says('describe', 'pdj', job)}\n{self.says('get', 'pods')}") from None

    def operators_of_every_namespace(self) -> list[str]:
        found = json.loads(self.says("get", "deployments", "--all-namespaces", "--output=json"))["items"]
        return [
            f"deployment/{MANAGER} in {each['metadata']['namespace']}"
            for each in found
            if each["metadata"]["name"] == MANAGER and each["spec"].get("replicas", 1)
            for container in each["spec"]["template"]["spec"]["containers"]
            if not any(argument.startswith("--namespace=") for argument in container.get("args", []))
        ]

    def nodes_with_room(self) -> int:
        """Those that take any pod: not cordoned, and without a taint that keeps pods away."""
        found = json.loads(self.says("get", "nodes", "--output=json"))["items"]
        keeps_away = {"NoSchedule", "NoExecute"}
        return sum(
            not each["spec"].get("unschedulable")
            and not any(taint["effect"] in keeps_away for taint in each["spec"].get("taints", []))
            for each in found
        )

    def pods_of(self, job: str) -> dict[str, Manifest]:
        found: list[Manifest] = json.loads(self.says("get", "pods", "--output=json"))["items"]
        return {pod["metadata"]["name"]: pod for pod in found if pod["metadata"]["name"].startswith(f"{job}-")}


def operator(namespace: str, image: str, *more_arguments: str, replicas: int = 1) -> list[Manifest]:
    """The manifest of the README with another namespace and another image; the namespace itself is ours already."""
    text = OPERATOR.read_text().replace("paddle-system", namespace)
    found: list[Manifest] = [each for each in yaml.safe_load_all(text) if each["kind"] != "Namespace"]
    for each in found:
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            each["spec"]["replicas"] = replicas
            container["image"] = image
            container["args"] += more_arguments
    return found


def a_job(name: str, image: str, roles: dict[str, tuple[int, str]], **spec: Any) -> Manifest:
    """Each role is a number of pods and the command of a shell."""
    limits = {"cpu": "100m", "memory": "64Mi"}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name},
        "spec": spec
        | {
            role: {
                "replicas": count,
                "template": {
                    "spec": {
                        "terminationGracePeriodSeconds": 2,
                        "containers": [
                            {
                                "name": "paddle",
                                "image": image,
                                "command": ["sh", "-c", command],
                                "resources": {"requests": limits, "limits": limits},
                            }
                        ],
                    }
                },
            }
            for role, (count, command) in roles.items()
        },
    }
