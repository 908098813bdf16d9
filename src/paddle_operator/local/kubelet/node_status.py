"""The nodes of this machine as the cluster sees them: Node objects, and Leases where the cluster keeps such."""

import logging
import platform
from collections.abc import Iterable

from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import AlreadyExists, NotFound
from paddle_operator.kube.objects import LEASES, Key, Manifest, Object, Resource, View
from paddle_operator.local.kubelet.ip_allocator import Block
from paddle_operator.local.kubelet.machine import Machine
from paddle_operator.local.placement import HOST_NAME_LABEL, Place

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
ROLE_LABEL = "paddle-operator.local/node"


class NodeSpec(View, frozen=True):
    unschedulable: bool = False


class NodeView(Object, frozen=True):
    spec: NodeSpec = NodeSpec()


NODES = Resource("api/v1", "nodes", NodeView, namespaced=False)


class MachineNodes:
    """`<name>-1`, and more of them when they are asked for; all are this machine, each with an address of its own."""

    def __init__(self, client: Client, name: str, block: Block, machine: Machine, clock: Clock) -> None:
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

    def places(self, unschedulable: Iterable[str]) -> dict[str, Place]:
        cordoned = set(unschedulable)
        return {name: Place(name, self._labels(name), name in cordoned) for name in self.names}

    def next_place(self) -> Place:
        """What the next node would be like."""
        name = self._name_of(self._count + 1)
        return Place(name, self._labels(name))

    def has(self, name: str) -> bool:
        return 1 <= self._index(name) <= self._count

    def address_of(self, name: str) -> str:
        return self._block.node(self._index(name))

    def index_of(self, name: str) -> int:
        """0 for a name that no node of ours can have."""
        return self._index(name)

    async def add_until(self, index: int) -> None:
        while self._count < index:
            await self.add()

    async def add(self) -> None:
        """Make the next node; one that is there already is taken over, as by a kubelet that restarts."""
        index = self._count + 1
        name = self._name_of(index)
        status = self._status(name, self._block.node(index))
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
        # A create may leave the status away, as real API servers let only some users set it.
        await self._client.merge_status(NODES, Key("", name), status)
        self._uids[name] = node.uid
        self._count = index
        await self._renew(name)
        log.info("a node is ready", extra={"node": name, "address": self._block.node(index)})

    async def renew(self) -> None:
        for name in self.names:
            await self._renew(name)

    async def _renew(self, name: str) -> None:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Manifest = {"holderIdentity": name, "leaseDurationSeconds": 600, "renewTime": now}
        key = Key(LEASE_NAMESPACE, name)
        try:
            await self._client.merge(LEASES, key, {"spec": spec})
        except NotFound:
            owner = {
                "apiVersion": "v1",
                "kind": "Node",
                "name": name,
                "uid": self._uids[name],
            }  # the Lease goes with it
            metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            try:
                await self._client.create(LEASES, lease)
            except NotFound:
                return  # a cluster without that namespace does not look at Leases

    def _name_of(self, index: int) -> str:
        return f"{self._name}-{index}"

    def _index(self, name: str) -> int:
        number = name.removeprefix(f"{self._name}-")
        return int(number) if number.isdigit() and name != number and len(number) < 4 else 0

    def _labels(self, name: str) -> dict[str, str]:
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        return {
            HOST_NAME_LABEL: name,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": architecture,
            ROLE_LABEL: "process",
            **self._machine.labels,
        }

    def _status(self, name: str, address: str) -> Manifest:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        good = (
            ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID"),
            ("Ready", "True", "KubeletReady"),
        )
        conditions = [
            {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now}
            for kind, status, reason in good
        ]
        return {
            "capacity": self._machine.capacity,
            "allocatable": self._machine.capacity,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": conditions,
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
