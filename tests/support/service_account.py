"""Runs the operator as its own ServiceAccount with the RBAC rules of the manifests: a missing rule fails tests."""

from weakref import WeakKeyDictionary

import yaml

from paddle_operator.kube.config.server import StaticServerConfig
from testbed.control_plane import ControlPlane
from testbed.request import RequestError
from tests.install.installation import ACCOUNT, CLUSTER_WIDE, parse_objects

NAMESPACE = "paddle-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"  # the operator's name in the audit log
RBAC_KINDS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")

_tokens: WeakKeyDictionary[ControlPlane, str] = WeakKeyDictionary()


async def create_operator_connection(control_plane: ControlPlane) -> StaticServerConfig:
    """Apply the RBAC manifests once per control plane and return a connection with a token of the ServiceAccount."""
    if control_plane not in _tokens:
        rights = [each for (kind, _, _), each in parse_objects(CLUSTER_WIDE.read_text()).items() if kind in RBAC_KINDS]
        await control_plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(rights))
        while not await _is_authorized(control_plane):
            pass
        command = ("create", "token", ACCOUNT, "--duration=12h")
        _tokens[control_plane] = (await control_plane.kubectl("--namespace", NAMESPACE, *command)).strip()
    return StaticServerConfig(control_plane.server, _tokens[control_plane], control_plane.trust)


async def _is_authorized(control_plane: ControlPlane) -> bool:
    """The authorizer sees a new role with a delay; until then the operator would get 403."""
    try:
        await control_plane.kubectl("auth", "can-i", "create", "pods", "--all-namespaces", f"--as={OPERATOR}")
    except RequestError:  # kubectl exits 1 for "no"
        return False
    return True
