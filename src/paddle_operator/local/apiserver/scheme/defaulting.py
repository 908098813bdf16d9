"""Which defaults depend on other fields? Pull policies, requests, host ports, a secret's data.

All other defaults are in the schemas (openapi_definitions.py). Each function changes its object in place after schema
defaulting. Values of a wrong type are skipped here, since validation reports them.
"""

import base64
from collections.abc import Iterator
from typing import Any

from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.scheme.unstructured import ensure_map, maps_in

CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


def set_pod_defaults(manifest: Manifest) -> None:
    spec = ensure_map(manifest, "spec")
    for container in all_containers(spec):
        container.setdefault("imagePullPolicy", default_pull_policy(container.get("image")))
        set_requests_from_limits(container.get("resources"))
        if spec.get("hostNetwork"):
            for port in maps_in(container.get("ports")):
                port.setdefault("hostPort", port.get("containerPort"))
    for volume in maps_in(spec.get("volumes")):
        if volume.keys() <= {"name"}:
            volume["emptyDir"] = {}
    spec.setdefault("serviceAccount", spec.get("serviceAccountName"))  # the deprecated name


def set_service_defaults(manifest: Manifest) -> None:
    spec = ensure_map(manifest, "spec")
    for port in maps_in(spec.get("ports")):
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port")
    if spec.get("sessionAffinity") == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
    else:
        spec.pop("sessionAffinityConfig", None)
    if spec.get("type") == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")


def set_secret_defaults(manifest: Manifest) -> None:
    """`stringData` is stored base64-encoded in `data`, and wins over it."""
    written, data = manifest.pop("stringData", None), manifest.get("data", {})
    if isinstance(written, dict) and isinstance(data, dict):
        encoded = {
            key: base64.b64encode(text.encode()).decode() for key, text in written.items() if isinstance(text, str)
        }
        manifest["data"] = data | encoded


def set_node_defaults(manifest: Manifest) -> None:
    status = ensure_map(manifest, "status")
    if isinstance(status.get("capacity"), dict):
        status.setdefault("allocatable", dict(status["capacity"]))


def default_pull_policy(image: object) -> str:
    """Always for the tag `latest`, which is the default without tag and digest; otherwise IfNotPresent."""
    reference = image if isinstance(image, str) else ""
    name, _, digest = reference.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    return "Always" if tag == "latest" or not (colon or digest) else "IfNotPresent"


def set_requests_from_limits(resources: Any) -> None:
    if isinstance(resources, dict) and isinstance(limits := resources.get("limits"), dict):
        requests = resources.get("requests", {})
        if isinstance(requests, dict):
            resources["requests"] = limits | requests


def all_containers(spec: Manifest) -> Iterator[Manifest]:
    for key in CONTAINER_LISTS:
        yield from maps_in(spec.get(key))
