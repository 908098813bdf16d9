"""Small objects for the conformance tests."""

from typing import Any

Manifest = dict[str, Any]


def a_config_map(name: str, **metadata: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


def a_pod(name: str, *, node: str = "", **metadata: Any) -> Manifest:
    """For no scheduler of anybody's; with a node it is bound from the start."""
    spec: Manifest = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "image"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def a_job(name: str, **metadata: Any) -> Manifest:
    template = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name, **metadata},
        "spec": {"worker": {"replicas": 1, "template": template}},
    }


def owned_by(owner: Manifest, *, block: bool = False) -> list[Manifest]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return [reference | ({"blockOwnerDeletion": True} if block else {})]
