"""What is the scale subresource of an object, and what does a write of it change?"""

from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.api_errors import bad_request
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest, Scale
from paddle_operator.local.apiserver.scheme.unstructured import nested_value, parse_json_path
from paddle_operator.local.apiserver.validation import field_errors

SCALE_API_VERSION = "autoscaling/v1"
MAX_SCALE_REPLICAS = 2**31 - 1


def scale_of(scale: Scale, manifest: Manifest) -> Manifest:
    """The Scale of an object."""
    metadata = manifest["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Manifest = {"replicas": _value_at(manifest, scale.status_path) or 0}
    if selector := _value_at(manifest, scale.selector_path):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": SCALE_API_VERSION,
        "metadata": {name: metadata[name] for name in fields if name in metadata},
        "spec": {"replicas": _value_at(manifest, scale.spec_path) or 0},
        "status": status,
    }


def apply_scale(kind: Kind, manifest: Manifest, scale: Manifest) -> Manifest:
    """The object with the replicas of a Scale. Raises StatusError."""
    assert kind.scale, "only kinds with a scale subresource have a Scale"
    if (scale.get("kind") or "Scale") != "Scale" or (scale.get("apiVersion") or SCALE_API_VERSION) != SCALE_API_VERSION:
        raise bad_request(f"the body must be a Scale of {SCALE_API_VERSION}")
    spec, scale_metadata = scale.get("spec") or {}, scale.get("metadata") or {}
    if not isinstance(spec, dict) or not isinstance(scale_metadata, dict):
        raise bad_request("metadata and spec of a Scale must be objects")
    replicas = spec.get("replicas", 0)
    path = kind.scale.spec_path
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request(f"spec.replicas is {replicas!r}, but must be an integer")
    if not 0 <= replicas <= MAX_SCALE_REPLICAS:
        error = field_errors.invalid(path, replicas, "should be a non-negative integer")
        raise api_errors.invalid(kind, manifest["metadata"]["name"], [error])
    metadata = manifest["metadata"] | {"resourceVersion": scale_metadata.get("resourceVersion") or ""}
    return _set_value(manifest | {"metadata": metadata}, parse_json_path(path), replicas)


def _value_at(manifest: Manifest, path: str) -> object:
    return nested_value(manifest, *parse_json_path(path)) if path else None


def _set_value(manifest: Manifest, steps: tuple[str | int, ...], value: object) -> Manifest:
    """A copy with the value at these field names, which a CRD's scale paths consist of."""
    name = str(steps[0])
    if len(steps) == 1:
        return manifest | {name: value}
    return manifest | {name: _set_value(manifest.get(name) or {}, steps[1:], value)}
