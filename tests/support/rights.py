"""The operator as its own ServiceAccount, with the rights that the manifests give it: what lacks there fails tests."""

from weakref import WeakKeyDictionary

import yaml

from paddle_operator.kube.config.server import StaticServerConfig
from testbed.control_plane import ControlPlane
from testbed.request import RequestError
from tests.install.installation import ACCOUNT, CLUSTER_WIDE, parse_objects

NAMESPACE = "paddle-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"  # the operator's name in the audit log
KINDS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")

_tokens: WeakKeyDictionary[ControlPlane, str] = WeakKeyDictionary()


async def connection_of_operator(control_plane: ControlPlane) -> StaticServerConfig:
    """With a token that the API server has made out for it; the rights are applied where they are not yet."""
    if control_plane not in _tokens:
        rights = [each for (kind, _, _), each in parse_objects(CLUSTER_WIDE.read_text()).items() if kind in KINDS]
        await control_plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(rights))
        while not await _are_known(control_plane):
            pass
        asked = ("create", "token", ACCOUNT, "--duration=12h")
        _tokens[control_plane] = (await control_plane.kubectl("--namespace", NAMESPACE, *asked)).strip()
    return StaticServerConfig(control_plane.server, _tokens[control_plane], control_plane.trust)


async def _are_known(control_plane: ControlPlane) -> bool:
    """The API server goes by a role a moment after it has it; until then the operator would be refused."""
    try:
        await control_plane.kubectl("auth", "can-i", "create", "pods", "--all-namespaces", f"--as={OPERATOR}")
    except RequestError:  # its exit code says no
        return False
    return True
