"""Which node takes a pod? Kubernetes' way of counting, on nodes that are all the same machine. Pure.

Resources are counted over all nodes, since they share them; host ports by node, since each has an address of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from paddle_operator.kube.quantities import Amounts, amounts, effective_requests, total
from paddle_operator.local.kubelet.pod import ContainerSpec, LocalPod

HOST_NAME_LABEL = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Place:
    """A node, as far as a pod cares."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False


@dataclass(frozen=True)
class Bind:
    node: str


@dataclass(frozen=True)
class AddNode:
    """Only another node's ports would do."""


@dataclass(frozen=True)
class Unfit:
    """Nowhere; the real scheduler's sentence."""

    message: str


def request_of(pod: LocalPod) -> Amounts:
    """What a pod takes: its containers and sidecars together, or a step of its start that takes more."""
    steps = ((_request(each), each.restart_policy == "Always") for each in pod.spec.init_containers)
    held = effective_requests(map(_request, pod.spec.containers), steps)
    return total((held, amounts(pod.spec.overhead), {"pods": Fraction(1)}))


def _request(container: ContainerSpec) -> Amounts:
    """A limit without a request is a request."""
    return amounts({**container.resources.limits, **container.resources.requests})


def placement(
    pod: LocalPod,
    bound: Iterable[tuple[str, LocalPod]],
    nodes: Sequence[Place],
    machine: Amounts,
    new_node: Place,
    problem: str = "",
) -> Bind | AddNode | Unfit:
    """`bound` are the pods that take something, with their nodes; `problem` is what no node could mend."""
    if problem:
        return Unfit(f"0/{len(nodes)} nodes are available: {problem}.")
    others = list(bound)
    lacks = _lacks(request_of(pod), machine, total(request_of(other) for _, other in others))
    ports = {node.name: set(_host_ports(each for where, each in others if where == node.name)) for node in nodes}
    wanted = set(_host_ports([pod]))
    reasons: Counter[str] = Counter()
    taken = 0
    for node in nodes:
        against = list(_objections(pod, node)) + lacks
        if not against and wanted & ports[node.name]:
            taken += 1
            against = ["node(s) didn't have free ports for the requested pod ports"]
        if not against:
            return Bind(node.name)
        reasons.update(against)
    if taken and not lacks and not list(_objections(pod, new_node)):
        return AddNode()
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return Unfit(f"0/{len(nodes)} nodes are available: {told}.")


def _objections(pod: LocalPod, node: Place) -> Iterator[str]:
    if node.unschedulable:
        yield "node(s) were unschedulable"
    if any(node.labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        yield "node(s) didn't match Pod's node affinity/selector"


def _lacks(wanted: Amounts, machine: Amounts, used: Amounts) -> list[str]:
    zero = Fraction(0)
    names = {"pods": "Too many pods"}
    # An ephemeral disk is not counted: what is on this machine's disk is not only ours.
    return [
        names.get(resource, f"Insufficient {resource}")
        for resource, each in sorted(wanted.items())
        if each and resource != "ephemeral-storage" and used.get(resource, zero) + each > machine.get(resource, zero)
    ]


def _host_ports(pods: Iterable[LocalPod]) -> Iterator[tuple[str, int]]:
    for pod in pods:
        for container in pod.spec.containers:
            for port in container.ports:
                number = port.host_port or (port.container_port if pod.spec.host_network else 0)
                if number:
                    yield port.protocol, number
