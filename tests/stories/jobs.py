"""Builders of PaddleJob manifests for stories."""

from typing import Any

IMAGE = "registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1"
Job = dict[str, Any]


def make_job(name: str = "mnist", *, ps: int = 0, workers: int = 2, heter: int = 0, **spec: Any) -> Job:
    """A PaddleJob; `spec` are further fields of its spec, in their YAML spelling."""
    numbers = {"ps": ps, "worker": workers, "heter": heter}
    roles = {role: {"replicas": count, "template": make_template()} for role, count in numbers.items() if count}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name},
        "spec": roles | spec,
    }


def make_template(*more_containers: Job, **container: Any) -> Job:
    """A pod template; keyword arguments are fields of the training container."""
    return {"spec": {"containers": [{"name": "paddle", "image": IMAGE} | container, *more_containers]}}


def with_template(job: Job, template: Job) -> Job:
    """The job with another template in every role."""
    spec = {
        field: value | {"template": template} if isinstance(value, dict) else value
        for field, value in job["spec"].items()
    }
    return job | {"spec": spec}
