"""The scale subresource: one number of an object, under a name that every tool knows (`kubectl scale`)."""

from typing import Any

from paddle_operator.local.apiserver.api_errors import bad_request, invalid
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest, Scale
from paddle_operator.local.apiserver.validation import causes

API_VERSION = "autoscaling/v1"
LARGEST = 2**31 - 1


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


def _at(manifest: Manifest, path: str) -> Any:
    here: Any = manifest
    for step in _steps(path):
        here = here.get(step) if isinstance(here, dict) else None
    return here


def scale_of(scale: Scale, manifest: Manifest) -> Manifest:
    """An object as its Scale."""
    metadata = manifest["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Manifest = {"replicas": _at(manifest, scale.status_path) or 0}
    if selector := _at(manifest, scale.selector_path):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": API_VERSION,
        "metadata": {name: metadata[name] for name in shown if name in metadata},
        "spec": {"replicas": _at(manifest, scale.spec_path) or 0},
        "status": status,
    }


def scaled(kind: Kind, manifest: Manifest, wanted: Manifest) -> Manifest:
    """The object with the number of replicas that a Scale wants. Raises Refusal."""
    assert kind.scale, "asked only of kinds that have a scale"
    if (wanted.get("kind") or "Scale") != "Scale" or (wanted.get("apiVersion") or API_VERSION) != API_VERSION:
        raise bad_request(f"what is sent to scale must be a Scale of {API_VERSION}")
    spec, told = wanted.get("spec") or {}, wanted.get("metadata") or {}
    if not isinstance(spec, dict) or not isinstance(told, dict):
        raise bad_request("a Scale has metadata and a spec with replicas")
    replicas = spec.get("replicas", 0)
    path = kind.scale.spec_path
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request(f"spec.replicas is {replicas!r}, but must be a whole number")
    if not 0 <= replicas <= LARGEST:
        problem = causes.invalid(path, replicas, "should be a non-negative integer")
        raise invalid(kind, manifest["metadata"]["name"], [problem])
    metadata = manifest["metadata"] | {"resourceVersion": told.get("resourceVersion") or ""}
    return _with(manifest | {"metadata": metadata}, _steps(path), replicas)


def _with(manifest: Manifest, steps: list[str], value: object) -> Manifest:
    if len(steps) == 1:
        return manifest | {steps[0]: value}
    return manifest | {steps[0]: _with(manifest.get(steps[0]) or {}, steps[1:], value)}
