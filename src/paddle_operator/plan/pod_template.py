"""The fields of a user's pod template that decide something about the job; the rest stays as written."""

from collections.abc import Mapping
from typing import Any

from paddle_operator.api.paddlejob import PaddleJobSpec, Role, RoleSpec
from paddle_operator.kube.objects import Manifest
from paddle_operator.plan.metadata import MAIN_CONTAINER


def main_container_index(spec: Manifest) -> int:
    """The index of the main container: the one named `paddle`, else the first."""
    names = [each.get("name") for each in spec["containers"]]
    return names.index(MAIN_CONTAINER) if MAIN_CONTAINER in names else 0


def restart_policy(spec: PaddleJobSpec, role: Role) -> str:
    """Elastic ranks exit and rejoin, restarted by kubelet: there the user's value is ignored."""
    if spec.is_elastic:
        return "OnFailure"
    policy: str | None = spec.roles[role].template["spec"].get("restartPolicy")
    return policy or "Never"


def requests_device(container: Manifest) -> bool:
    """Whether it requests a device: a resource with a vendor in its name, such as nvidia.com/gpu, or a claim."""
    resources: Mapping[str, Any] = container.get("resources") or {}
    requested = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return bool(resources.get("claims")) or any(is_device(name) and str(requested[name]) != "0" for name in requested)


def is_device(resource: str) -> bool:
    vendor, _, name = resource.partition("/")
    return bool(name) and vendor not in ("kubernetes.io", "rdma")  # rdma/hca is a network card


def env_names(part: RoleSpec) -> set[str]:
    """The names of the variables that the user sets in the main container."""
    spec = part.template["spec"]
    return {each["name"] for each in spec["containers"][main_container_index(spec)].get("env") or ()}


def host_alias_lines(part: RoleSpec) -> list[str]:
    """The lines of /etc/hosts for the template's hostAliases."""
    aliases = part.template["spec"].get("hostAliases") or ()
    return [" ".join([each["ip"], *(each.get("hostnames") or ())]) for each in aliases]
