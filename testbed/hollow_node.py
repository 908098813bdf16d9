"""One hollow node as the control plane sees it: a Node object, and a Lease that says that it lives.

The controller manager gives up on a node whose Lease is 16 s old (flags.py); where no node of the cluster lives it
evicts nothing, so that a test of a dying node has two.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import AlreadyExists, Conflict, NotFound
from paddle_operator.kube.objects import LEASES, Key, Manifest, Object, Resource, View
from testbed.hollow_pod import HollowPod

LEASE_SECONDS = 40
UNREADY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Taint(View, frozen=True):
    key: str


class NodeSpec(View, frozen=True):
    taints: tuple[Taint, ...] = ()


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()

    @property
    def schedulable(self) -> bool:
        return not any(taint.key in UNREADY_TAINTS for taint in self.spec.taints)


NODES = Resource("api/v1", "nodes", Node, namespaced=False)


@dataclass(frozen=True)
class Size:
    """What a node offers."""

    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def resources(self) -> Manifest:
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        return {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods), "ephemeral-storage": "1Ti"} | gpus


class Tenants(Protocol):
    """Who takes care of the pods."""

    def pods_of(self, node: str) -> Collection[HollowPod]: ...

    def resume(self, node: str) -> None: ...


class HollowNode:
    """A node of a test. While it is not `alive` it neither renews its Lease nor says anything of its pods."""

    def __init__(
        self,
        client: Client,
        name: str,
        address: str,
        size: Size,
        tenants: Tenants,
        clock: Clock,
    ) -> None:
        self.name = name
        self.address = address
        self.alive = True
        self._client = client
        self._size = size
        self._clock = clock
        self._tenants = tenants
        self._uid = ""

    def __str__(self) -> str:
        return self.name

    @property
    def pods(self) -> Collection[HollowPod]:
        """Those that are bound to it, finished ones among them."""
        return self._tenants.pods_of(self.name)

    def dies(self) -> None:
        """Nothing is heard of it any more; its programs go on unseen, as where only kubelet or the network is gone."""
        self.alive = False

    async def comes_back(self) -> None:
        """Kubelet has forgotten what it knew, looks at its pods as they stand in the API and goes on from there."""
        await self.renew()
        await self._client.merge_status(NODES, Key("", self.name), {"conditions": self._conditions()})
        self.alive = True
        self._tenants.resume(self.name)

    async def cordon(self) -> None:
        await self._client.merge(NODES, Key("", self.name), {"spec": {"unschedulable": True}})

    async def drain(self) -> None:
        """Cordon it and evict its pods. Raises TooManyRequests where a disruption budget forbids one."""
        await self.cordon()
        for pod in [pod for pod in self.pods if not pod.finished]:
            await self._client.evict(pod.key)

    async def register(self) -> None:
        """Make Node and Lease; a Node that is there already is taken over, as by a kubelet that restarts."""
        try:
            node = await self._client.create(NODES, self._manifest())
        except AlreadyExists:
            node = await self._client.merge_status(NODES, Key("", self.name), {"conditions": self._conditions()})
        self._uid = node.uid
        await self.renew()

    async def renew(self) -> None:
        lease = {"spec": {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": self._now()}}
        key = Key("kube-node-lease", self.name)
        try:
            await self._client.merge(LEASES, key, lease)
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self._uid}  # the Lease goes with it
            metadata = {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]}
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            await self._client.create(LEASES, kind | lease | {"metadata": metadata})

    async def remove(self) -> None:
        """Delete the Node object, as an autoscaler does; its pods are left to the controller manager."""
        self.alive = False
        try:
            await self._client.delete(NODES, Key("", self.name), uid=self._uid)
        except (NotFound, Conflict):
            return  # somebody else did, and another may have its name by now

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _manifest(self) -> Manifest:
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **self._size.labels,
        }
        addresses = [{"type": "InternalIP", "address": self.address}, {"type": "Hostname", "address": self.name}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "status": {
                "capacity": self._size.resources,
                "allocatable": self._size.resources,
                "addresses": addresses,
                "conditions": self._conditions(),
            },
        }

    def _conditions(self) -> list[Manifest]:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        good = (
            ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID"),
            ("Ready", "True", "KubeletReady"),
        )
        return [
            {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now}
            for kind, status, reason in good
        ]
