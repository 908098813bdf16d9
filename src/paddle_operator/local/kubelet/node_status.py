"""Registers the nodes of this host with the API server: Node objects and their Leases."""

import logging
import platform
from collections.abc import Iterable
from datetime import datetime

from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import AlreadyExists, NotFound
from paddle_operator.kube.objects import LEASES, Key, Manifest, Object, Resource, View
from paddle_operator.local.kubelet.ip_allocator import AddressBlock
from paddle_operator.local.kubelet.machine import Machine
from paddle_operator.local.scheduler import HOST_NAME_LABEL, NodeInfo

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 600
LOCAL_NODE_LABEL = "paddle-operator.local/node"


class NodeSpec(View, frozen=True):
    unschedulable: bool = False


class NodeView(Object, frozen=True):
    spec: NodeSpec = NodeSpec()


NODES = Resource("api/v1", "nodes", NodeView, namespaced=False)


class NodeManager:
    """`<name>-1` and further nodes on request; all run on this host, each with its own address."""

    def __init__(self, client: Client, name: str, block: AddressBlock, machine: Machine, clock: Clock) -> None:
        self._client = client
        self._name = name
        self._block = block
        self._machine = machine
        self._clock = clock
        self._count = 0
        self._uids: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        return [self._name_of(index) for index in range(1, self._count + 1)]

    def node_infos(self, unschedulable: Iterable[str]) -> dict[str, NodeInfo]:
        cordoned = set(unschedulable)
        return {name: NodeInfo(name, self._labels(name), name in cordoned) for name in self.names}

    def next_node_info(self) -> NodeInfo:
        """The node that `register_next` would register."""
        name = self._name_of(self._count + 1)
        return NodeInfo(name, self._labels(name))

    def owns(self, name: str) -> bool:
        return 1 <= self.index_of(name) <= self._count

    def address_of(self, name: str) -> str:
        return self._block.node_address(self.index_of(name))

    def index_of(self, name: str) -> int:
        """The index in a node's name; 0 for a name of another form."""
        number = name.removeprefix(f"{self._name}-")
        return int(number) if number.isdigit() and name != number and len(number) < 4 else 0

    async def register_up_to(self, index: int) -> None:
        while self._count < index:
            await self.register_next()

    async def register_next(self) -> None:
        """Register another node; an existing Node object is taken over, as by a kubelet that restarts."""
        index = self._count + 1
        name = self._name_of(index)
        status = self._status(name, self._block.node_address(index))
        try:
            manifest = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": self._labels(name)},
                "status": status,
            }
            node = await self._client.create(NODES, manifest)
        except AlreadyExists:
            node = await self._client.merge(NODES, Key("", name), {"metadata": {"labels": self._labels(name)}})
        # Real API servers ignore the status in a create by most users.
        await self._client.merge_status(NODES, Key("", name), status)
        self._uids[name] = node.uid
        self._count = index
        await self._renew_lease(name)
        log.info("node registered", extra={"node": name, "address": self._block.node_address(index)})

    async def renew_leases(self) -> None:
        for name in self.names:
            await self._renew_lease(name)

    async def _renew_lease(self, name: str) -> None:
        try:
            await renew_node_lease(self._client, name, self._uids[name], LEASE_SECONDS, self._clock.now())
        except NotFound:
            return  # a cluster without that namespace does not check Leases

    def _name_of(self, index: int) -> str:
        return f"{self._name}-{index}"

    def _labels(self, name: str) -> dict[str, str]:
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        return {
            HOST_NAME_LABEL: name,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": architecture,
            LOCAL_NODE_LABEL: "process",
            **self._machine.labels,
        }

    def _status(self, name: str, address: str) -> Manifest:
        return {
            "capacity": self._machine.capacity,
            "allocatable": self._machine.capacity,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": node_conditions(self._clock.now()),
            "nodeInfo": {
                "architecture": self._labels(name)["kubernetes.io/arch"],
                "bootID": "",
                "containerRuntimeVersion": "process://1",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": "",
                "kubeletVersion": "local",
                "machineID": "",
                "operatingSystem": platform.system().lower(),
                "osImage": platform.platform(),
                "systemUUID": "",
            },
        }


def node_conditions(now: datetime) -> list[Manifest]:
    """The conditions of a healthy node."""
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    healthy = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    )
    return [
        {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": at, "lastTransitionTime": at}
        for kind, status, reason in healthy
    ]


async def renew_node_lease(client: Client, name: str, uid: str, duration_seconds: int, now: datetime) -> None:
    """Renew a node's Lease or create it, owned by the Node. Raises NotFound if its namespace does not exist."""
    renewed_at = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec: Manifest = {"holderIdentity": name, "leaseDurationSeconds": duration_seconds, "renewTime": renewed_at}
    try:
        await client.merge(LEASES, Key(LEASE_NAMESPACE, name), {"spec": spec})
    except NotFound:
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        await client.create(LEASES, lease)
