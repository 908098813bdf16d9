"""Binds pods without a node in the order of their creation, whatever schedulerName they have.

All nodes are the same host: resources are counted over all of them, host ports per node, since each has its own
address.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction

import msgspec

from paddle_operator.kube.backoff import run_when_woken
from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import Conflict, KubeError, NotFound
from paddle_operator.kube.events import ObjectReference, Recorder
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Manifest, Object, Resource
from paddle_operator.kube.quantities import Amounts, amounts, effective_requests, total
from paddle_operator.local.kubelet.pod import ContainerSpec, LocalPod, LocalPodCondition
from paddle_operator.local.kubelet.status_manager import StatusManager

log = logging.getLogger(__name__)

HOST_NAME_LABEL = "kubernetes.io/hostname"
_NEVER_CREATED = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class NodeInfo:
    """A node, as far as scheduling depends on it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False


@dataclass(frozen=True)
class Bind:
    node: str


@dataclass(frozen=True)
class AddNode:
    """Only the host ports of another node would do."""


@dataclass(frozen=True)
class Unschedulable:
    """No node fits; the message is spelled as the real scheduler spells it."""

    message: str


class Scheduler:
    """`nodes` returns the registered nodes, `claim_error` why a pod's claims keep it from being scheduled."""

    def __init__(
        self,
        client: Client,
        pods: Informer[LocalPod, LocalPod],
        statuses: StatusManager,
        recorder: Recorder,
        *,
        nodes: Callable[[], Mapping[str, NodeInfo]],
        next_node: Callable[[], NodeInfo],
        register_next_node: Callable[[], Awaitable[None]],
        claim_error: Callable[[LocalPod], str],
        allocatable: Amounts,
        clock: Clock,
    ) -> None:
        self._client = client
        self._pods = pods
        self._statuses = statuses
        self._recorder = recorder
        self._nodes = nodes
        self._next_node = next_node
        self._register_next_node = register_next_node
        self._claim_error = claim_error
        self._allocatable = allocatable
        self._clock = clock
        self._assumed: dict[str, str] = {}  # node by pod UID, for bindings that the cache does not show yet
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Schedule again: something that a pod may wait for has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Run until cancelled; an unreachable server is retried."""
        await run_when_woken(self._woken, self._schedule_all, self._clock, _log_error)

    async def _schedule_all(self) -> None:
        self._forget_confirmed()
        pending = [pod for pod in self._pods.store if self._is_pending(pod)]
        for pod in sorted(pending, key=lambda pod: (pod.metadata.creation_timestamp or _NEVER_CREATED, pod.key)):
            current = self._pods.store.get(pod.key)
            if current and current.uid == pod.uid and self._is_pending(current):
                await self._schedule(current)

    def _is_pending(self, pod: LocalPod) -> bool:
        unbound = not pod.spec.node_name and pod.uid not in self._assumed
        return unbound and not pod.being_deleted and not pod.finished and not pod.spec.scheduling_gates

    def _forget_confirmed(self) -> None:
        unbound = {pod.uid for pod in self._pods.store if not pod.spec.node_name}
        self._assumed = {uid: node for uid, node in self._assumed.items() if uid in unbound}

    async def _schedule(self, pod: LocalPod) -> None:
        while True:
            nodes = list(self._nodes().values())
            bound = (
                (node, other)
                for other in self._pods.store
                if (node := other.spec.node_name or self._assumed.get(other.uid, "")) and not other.finished
            )
            decision = find_node(pod, bound, nodes, self._allocatable, self._next_node(), self._claim_error(pod))
            if not isinstance(decision, AddNode):
                break
            await self._register_next_node()
        if isinstance(decision, Bind):
            await self._bind(pod, decision.node)
        else:
            message = decision.message
            await self._statuses.write(pod.key, pod.uid, lambda current: self._unschedulable_status(current, message))

    def _unschedulable_status(self, pod: LocalPod, message: str) -> Manifest | None:
        """The status with the PodScheduled condition; None if the pod has it already."""
        before = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if pod.spec.node_name or (before and before.reason == "Unschedulable" and before.message == message):
            return None
        self._recorder.warning(_reference(pod), "FailedScheduling", message, "Scheduling")
        since = before.last_transition_time if before and before.status == "False" else None
        since = since or self._clock.now().replace(microsecond=0)
        condition = LocalPodCondition("PodScheduled", "False", "Unschedulable", message, since)
        others = [each for each in pod.status.conditions if each is not before]
        conditions: list[Manifest] = msgspec.to_builtins([*others, condition])
        return {"conditions": conditions}

    async def _bind(self, pod: LocalPod, node: str) -> None:
        binding: Resource[Object] = Resource("api/v1", f"pods/{pod.key.name}/binding", Object)
        manifest = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(binding, manifest)
        except (NotFound, Conflict) as error:  # deleted, or bound by another client: the watch will show it
            log.info("pod could not be bound", extra={"key": str(pod.key), "error": str(error)})
            return
        self._assumed[pod.uid] = node
        message = f"Successfully assigned {pod.key} to {node}"
        self._recorder.normal(_reference(pod), "Scheduled", message, "Binding")


def find_node(
    pod: LocalPod,
    bound: Iterable[tuple[str, LocalPod]],
    nodes: Sequence[NodeInfo],
    allocatable: Amounts,
    next_node: NodeInfo,
    claim_error: str = "",
) -> Bind | AddNode | Unschedulable:
    """Which node takes the pod? `bound` are the pods that use resources, each with its node. Pure."""
    if claim_error:
        return Unschedulable(f"0/{len(nodes)} nodes are available: {claim_error}.")
    others = list(bound)
    insufficient = _insufficient_resources(
        local_pod_requests(pod), allocatable, total(local_pod_requests(other) for _, other in others)
    )
    used_ports = {node.name: set(_host_ports(each for name, each in others if name == node.name)) for node in nodes}
    ports = set(_host_ports([pod]))
    reasons: Counter[str] = Counter()
    has_port_conflict = False
    for node in nodes:
        unfit = list(_node_mismatches(pod, node)) + insufficient
        if not unfit and ports & used_ports[node.name]:
            has_port_conflict = True
            unfit = ["node(s) didn't have free ports for the requested pod ports"]
        if not unfit:
            return Bind(node.name)
        reasons.update(unfit)
    if has_port_conflict and not insufficient and not list(_node_mismatches(pod, next_node)):
        return AddNode()
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return Unschedulable(f"0/{len(nodes)} nodes are available: {counted}.")


def local_pod_requests(pod: LocalPod) -> Amounts:
    """The pod's effective requests: containers and sidecars together, or an init container that requests more."""
    init_containers = (
        (_container_requests(each), each.restart_policy == "Always") for each in pod.spec.init_containers
    )
    requests = effective_requests(map(_container_requests, pod.spec.containers), init_containers)
    return total((requests, amounts(pod.spec.overhead), {"pods": Fraction(1)}))


def _container_requests(container: ContainerSpec) -> Amounts:
    """A limit without a request is a request."""
    return amounts({**container.resources.limits, **container.resources.requests})


def _node_mismatches(pod: LocalPod, node: NodeInfo) -> Iterator[str]:
    if node.unschedulable:
        yield "node(s) were unschedulable"
    if any(node.labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        yield "node(s) didn't match Pod's node affinity/selector"


def _insufficient_resources(requests: Amounts, allocatable: Amounts, used: Amounts) -> list[str]:
    zero = Fraction(0)
    messages = {"pods": "Too many pods"}
    # Ephemeral storage is not counted: other programs use the host's disk, too.
    return [
        messages.get(resource, f"Insufficient {resource}")
        for resource, request in sorted(requests.items())
        if request
        and resource != "ephemeral-storage"
        and used.get(resource, zero) + request > allocatable.get(resource, zero)
    ]


def _host_ports(pods: Iterable[LocalPod]) -> Iterator[tuple[str, int]]:
    for pod in pods:
        for container in pod.spec.containers:
            for port in container.ports:
                number = port.host_port or (port.container_port if pod.spec.host_network else 0)
                if number:
                    yield port.protocol, number


def _log_error(error: KubeError) -> None:
    log.warning("scheduling failed, retrying", extra={"error": str(error)})


def _reference(pod: LocalPod) -> ObjectReference:
    return ObjectReference("v1", "Pod", Key(pod.key.namespace, pod.key.name), pod.uid)
