"""Small objects for the conformance tests."""

from typing import Any

Manifest = dict[str, Any]


def make_config_map(name: str, **metadata: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


def make_pod(name: str, *, node: str = "", **metadata: Any) -> Manifest:
    """With a scheduler name that no scheduler has; `node` binds it on create."""
    spec: Manifest = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "image"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def make_job(name: str, **metadata: Any) -> Manifest:
    template = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name, **metadata},
        "spec": {"worker": {"replicas": 1, "template": template}},
    }


def make_owner_references(owner: Manifest, *, block: bool = False) -> list[Manifest]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return [reference | ({"blockOwnerDeletion": True} if block else {})]
