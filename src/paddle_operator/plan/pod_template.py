"""What does a user's template say? Only what decides something about a job is asked here; the rest stays as written."""

from collections.abc import Mapping
from typing import Any

from paddle_operator.api.paddlejob import PaddleJobSpec, Role, RoleSpec
from paddle_operator.kube.objects import Manifest
from paddle_operator.plan.metadata import MAIN_CONTAINER


def main_container_index(spec: Manifest) -> int:
    """The place of the container that trains: the one named `paddle`, else the first."""
    names = [each.get("name") for each in spec["containers"]]
    return names.index(MAIN_CONTAINER) if MAIN_CONTAINER in names else 0


def restart_policy(spec: PaddleJobSpec, role: Role) -> str:
    """Elastic ranks leave and come back, and kubelet brings them back: there the user's word does not count."""
    if spec.is_elastic:
        return "OnFailure"
    written: str | None = spec.roles[role].template["spec"].get("restartPolicy")
    return written or "Never"


def requests_device(container: Manifest) -> bool:
    """Whether it asks for a device: a resource with a vendor in its name, as nvidia.com/gpu, or a claim."""
    resources: Mapping[str, Any] = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return bool(resources.get("claims")) or any(is_device(name) and str(asked[name]) != "0" for name in asked)


def is_device(resource: str) -> bool:
    vendor, _, name = resource.partition("/")
    return bool(name) and vendor not in ("kubernetes.io", "rdma")  # rdma/hca is a network card


def env_names(wanted: RoleSpec) -> set[str]:
    """The names of the variables that the user gave to the container that trains."""
    spec = wanted.template["spec"]
    return {each["name"] for each in spec["containers"][main_container_index(spec)].get("env") or ()}


def host_alias_lines(wanted: RoleSpec) -> list[str]:
    """The lines of /etc/hosts that the user asked for."""
    aliases = wanted.template["spec"].get("hostAliases") or ()
    return [" ".join([each["ip"], *(each.get("hostnames") or ())]) for each in aliases]
