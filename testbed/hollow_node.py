"""One hollow node as the control plane sees it: a Node object and the Lease that keeps it ready.

The controller manager marks a node unreachable when its Lease is 16 s old (flags.py). If no node of the cluster is
ready it evicts nothing, so a test of a node failure needs two.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import AlreadyExists, Conflict, NotFound
from paddle_operator.kube.objects import Key, Manifest, Object, Resource, View
from paddle_operator.local.kubelet.node_status import node_conditions, renew_node_lease
from paddle_operator.local.kubelet.pod import LocalPod

LEASE_SECONDS = 40
UNREADY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Taint(View, frozen=True):
    key: str


class NodeTaints(View, frozen=True):
    taints: tuple[Taint, ...] = ()


class TaintedNode(Object, frozen=True):
    spec: NodeTaints = NodeTaints()

    @property
    def schedulable(self) -> bool:
        return not any(taint.key in UNREADY_TAINTS for taint in self.spec.taints)


NODES = Resource("api/v1", "nodes", TaintedNode, namespaced=False)


@dataclass(frozen=True)
class NodeSize:
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


class PodSource(Protocol):
    """The kubelet, as far as a node depends on it."""

    def pods_of(self, node: str) -> Collection[LocalPod]: ...

    def resume(self, node: str) -> None: ...


class HollowNode:
    """A node of a test. While it is not `alive` it neither renews its Lease nor reports its pods."""

    def __init__(
        self,
        client: Client,
        name: str,
        address: str,
        size: NodeSize,
        kubelet: PodSource,
        clock: Clock,
    ) -> None:
        self.name = name
        self.address = address
        self.alive = True
        self._client = client
        self._size = size
        self._clock = clock
        self._kubelet = kubelet
        self._uid = ""

    def __str__(self) -> str:
        return self.name

    @property
    def pods(self) -> Collection[LocalPod]:
        """The pods that are bound to it, including finished ones."""
        return self._kubelet.pods_of(self.name)

    def fail(self) -> None:
        """Stop reporting; its programs continue, as if only kubelet or the network had failed."""
        self.alive = False

    async def recover(self) -> None:
        """Restart the kubelet, which continues from the pods' status in the API."""
        await self.renew()
        await self._client.merge_status(NODES, Key("", self.name), {"conditions": node_conditions(self._clock.now())})
        self.alive = True
        self._kubelet.resume(self.name)

    async def cordon(self) -> None:
        await self._client.merge(NODES, Key("", self.name), {"spec": {"unschedulable": True}})

    async def drain(self) -> None:
        """Cordon it and evict its pods. Raises TooManyRequests where a disruption budget forbids one."""
        await self.cordon()
        for pod in [pod for pod in self.pods if not pod.finished]:
            await self._client.evict(pod.key)

    async def register(self) -> None:
        """Create Node and Lease; an existing Node is taken over, as by a kubelet that restarts."""
        try:
            node = await self._client.create(NODES, self._manifest())
        except AlreadyExists:
            node = await self._client.merge_status(
                NODES, Key("", self.name), {"conditions": node_conditions(self._clock.now())}
            )
        self._uid = node.uid
        await self.renew()

    async def renew(self) -> None:
        await renew_node_lease(self._client, self.name, self._uid, LEASE_SECONDS, self._clock.now())

    async def remove(self) -> None:
        """Delete the Node object, as an autoscaler does; the controller manager removes its pods."""
        self.alive = False
        try:
            await self._client.delete(NODES, Key("", self.name), uid=self._uid)
        except (NotFound, Conflict):
            return  # another client did, and the name may be reused by now

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
                "conditions": node_conditions(self._clock.now()),
            },
        }
