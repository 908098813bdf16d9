"""What Kubernetes fills in where one field hangs on another: pull policies, requests, host ports, a secret's data.

The rest stands in the schemas (kubernetes.py). Every function changes the object that it is given, which has been
through its schema; what has a wrong type is left alone, since somebody else tells of it.
"""

import base64
from collections.abc import Iterator
from typing import Any

from paddle_operator.local.apiserver.scheme.kind import Manifest

CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


def pod(found: Manifest) -> None:
    spec = part(found, "spec")
    for container in containers(spec):
        container.setdefault("imagePullPolicy", pull_policy(container.get("image")))
        requests_from_limits(container.get("resources"))
        if spec.get("hostNetwork"):
            for port in maps(container.get("ports")):
                port.setdefault("hostPort", port.get("containerPort"))
    for volume in maps(spec.get("volumes")):
        if volume.keys() <= {"name"}:
            volume["emptyDir"] = {}
    spec.setdefault("serviceAccount", spec.get("serviceAccountName"))  # its old name, still told


def service(found: Manifest) -> None:
    spec = part(found, "spec")
    for port in maps(spec.get("ports")):
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


def secret(found: Manifest) -> None:
    """What was written as text is stored encoded, and wins over what was encoded already."""
    written, data = found.pop("stringData", None), found.get("data", {})
    if isinstance(written, dict) and isinstance(data, dict):
        encoded = {
            key: base64.b64encode(text.encode()).decode() for key, text in written.items() if isinstance(text, str)
        }
        found["data"] = data | encoded


def node(found: Manifest) -> None:
    status = part(found, "status")
    if isinstance(status.get("capacity"), dict):
        status.setdefault("allocatable", dict(status["capacity"]))


def pull_policy(image: object) -> str:
    """A tag that may change is looked up anew; without a tag and without a digest, the tag is `latest`."""
    text = image if isinstance(image, str) else ""
    name, _, digest = text.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    return "Always" if tag == "latest" or not (colon or digest) else "IfNotPresent"


def requests_from_limits(resources: Any) -> None:
    if isinstance(resources, dict) and isinstance(limits := resources.get("limits"), dict):
        requests = resources.get("requests", {})
        if isinstance(requests, dict):
            resources["requests"] = limits | requests


def containers(spec: Manifest) -> Iterator[Manifest]:
    for key in CONTAINER_LISTS:
        yield from maps(spec.get(key))


def maps(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def part(found: Manifest, key: str) -> dict[str, Any]:
    """A map within, made where it is missing; one that nobody sees where something else is there."""
    value = found.setdefault(key, {})
    return value if isinstance(value, dict) else {}
