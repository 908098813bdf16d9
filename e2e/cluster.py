"""The cluster under test, through kubectl as a user would."""

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
    """kubectl failed; the message has its arguments and output."""


@dataclass(frozen=True)
class Cluster:
    kubectl_path: str
    namespace: str
    timeout_seconds: int

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl in the suite's namespace and return its output. Raises KubectlError."""
        command = [self.kubectl_path, "--namespace", self.namespace, *arguments]
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise KubectlError(f"{' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def apply(self, *manifests: Manifest) -> None:
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(manifests))

    def delete(self, *manifests: Manifest) -> None:
        timeout = f"--timeout={self.timeout_seconds}s"
        self.kubectl("delete", "--filename=-", timeout, stdin=yaml.safe_dump_all(manifests))

    def wait(self, target: str, condition: str) -> None:
        self.kubectl("wait", target, f"--for={condition}", f"--timeout={self.timeout_seconds}s")

    def wait_phase(self, job: str, phase: str) -> None:
        """Wait until a job has a phase. Raises KubectlError with the job's description and pods."""
        try:
            self.wait(f"pdj/{job}", f"jsonpath={{.status.phase}}={phase}")
        except KubectlError as error:
            raise KubectlError(
                f"{error}\n{self.kubectl('describe', 'pdj', job)}\n{self.kubectl('get', 'pods')}"
            ) from None

    def find_cluster_wide_operators(self) -> list[str]:
        deployments = json.loads(self.kubectl("get", "deployments", "--all-namespaces", "--output=json"))["items"]
        return [
            f"deployment/{MANAGER} in {each['metadata']['namespace']}"
            for each in deployments
            if each["metadata"]["name"] == MANAGER and each["spec"].get("replicas", 1)
            for container in each["spec"]["template"]["spec"]["containers"]
            if not any(argument.startswith("--namespace=") for argument in container.get("args", []))
        ]

    def count_schedulable_nodes(self) -> int:
        """Count the nodes that accept any pod: not cordoned, without a NoSchedule or NoExecute taint."""
        nodes = json.loads(self.kubectl("get", "nodes", "--output=json"))["items"]
        repelling_effects = {"NoSchedule", "NoExecute"}
        return sum(
            not each["spec"].get("unschedulable")
            and not any(taint["effect"] in repelling_effects for taint in each["spec"].get("taints", []))
            for each in nodes
        )

    def pods_of(self, job: str) -> dict[str, Manifest]:
        pods: list[Manifest] = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return {pod["metadata"]["name"]: pod for pod in pods if pod["metadata"]["name"].startswith(f"{job}-")}


def operator_manifests(namespace: str, image: str, *extra_arguments: str, replicas: int = 1) -> list[Manifest]:
    """The README's manifest with another namespace and image, without the Namespace, which exists."""
    text = OPERATOR.read_text().replace("paddle-system", namespace)
    manifests: list[Manifest] = [each for each in yaml.safe_load_all(text) if each["kind"] != "Namespace"]
    for each in manifests:
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            each["spec"]["replicas"] = replicas
            container["image"] = image
            container["args"] += extra_arguments
    return manifests


def make_job(name: str, image: str, roles: dict[str, tuple[int, str]], **spec: Any) -> Manifest:
    """A PaddleJob; each role has a number of pods and a shell command."""
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
