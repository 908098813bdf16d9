"""PaddleJobs as users write them, right unless told otherwise."""

from typing import Any

import msgspec

from paddle_operator.api.paddlejob import API_VERSION, GROUP, KIND, PLURAL, VERSION, PaddleJobSpec, read_spec
from paddle_operator.kube.objects import Object, Resource

Written = dict[str, Any]

PADDLE_JOBS = Resource(f"apis/{GROUP}/{VERSION}", PLURAL, Object)


def make_template(*, ports: tuple[Written, ...] = ()) -> Written:
    container: Written = {"name": "paddle", "image": "paddle"}
    return {"spec": {"containers": [container | ({"ports": list(ports)} if ports else {})]}}


def a_role(replicas: object = 2, **others: object) -> Written:
    return {"replicas": replicas, "template": make_template()} | others


def make_job(spec: Written, name: str = "mnist", namespace: str = "default") -> Written:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def read(spec: object, name: str | None = None) -> PaddleJobSpec:
    return read_spec(msgspec.json.encode(spec), name)
