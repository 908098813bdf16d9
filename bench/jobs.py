"""The jobs of a load: how many, of how many pods, and the pods that the operator creates for them.

A template has ten variables and no resource requests, so that ten nodes have room for all pods.
"""

from collections.abc import Iterator

import msgspec

from paddle_operator.api.paddlejob import API_VERSION, KIND
from paddle_operator.kube.objects import Manifest
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.metadata import MAIN_CONTAINER
from paddle_operator.plan.pod_builder import PodBuilder

VARIABLES = 10
WORKERS = "*-worker-*"  # the pods that exit by themselves; parameter servers never do


class Shape(msgspec.Struct, frozen=True):
    """A number of jobs with the same number of pods."""

    jobs: int
    workers: int
    servers: int = 0

    def __str__(self) -> str:
        return f"{self.jobs}x{self.pods_per_job}"

    @property
    def pods_per_job(self) -> int:
        return self.workers + self.servers

    @property
    def pods(self) -> int:
        return self.jobs * self.pods_per_job

    @property
    def quick(self) -> "Shape":
        """A small load, to check that the benchmark runs."""
        return Shape(min(self.jobs, 3), min(self.workers, 5), self.servers)


def make_job(namespace: str, name: str, shape: Shape, policies: Manifest | None = None) -> Manifest:
    roles = {"ps": shape.servers, "worker": shape.workers}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "cleanPodPolicy": "Always",
            **(policies or {}),
            **{role: {"replicas": count, "template": _template()} for role, count in roles.items() if count},
        },
    }


def build_pods(job: Job) -> Iterator[Manifest]:
    """The pods that the operator would create."""
    assert job.spec
    for role, role_spec in job.spec.roles.items():
        builder = PodBuilder(job, role, role_spec)
        yield from (builder.build(index) for index in range(role_spec.replicas))


def _template() -> Manifest:
    container = {
        "name": MAIN_CONTAINER,
        "image": "images.example.com/team/paddle:3.2.0-gpu",
        "command": ["python", "-m", "paddle.distributed.launch", "train.py", "--epochs=10"],
        "env": [{"name": f"VARIABLE_{number}", "value": "some value"} for number in range(VARIABLES)],
    }
    return {"spec": {"containers": [container]}}
