"""Which node takes a pod, and the message for a pod that fits none: decided without a server."""

from fractions import Fraction
from typing import Any

import msgspec

from paddle_operator.local.kubelet.device_manager import DeviceManager, gpu_env
from paddle_operator.local.kubelet.machine import Machine
from paddle_operator.local.kubelet.pod import LocalPod
from paddle_operator.local.scheduler import AddNode, Bind, NodeInfo, Unschedulable, find_node, local_pod_requests

MACHINE = Machine(cpu=4, memory_bytes=8 * 1024**3, pods=5).allocatable
NODE = NodeInfo("local-1", {"kubernetes.io/hostname": "local-1", "disk": "ssd"})
NEXT = NodeInfo("local-2", {"kubernetes.io/hostname": "local-2", "disk": "ssd"})


def make_pod(
    name: str = "it",
    *,
    containers: int = 1,
    ports: tuple[int, ...] = (),
    inner_ports: tuple[int, ...] = (),
    **spec: Any,
) -> LocalPod:
    resources = spec.pop("resources", {})
    inner = [{"containerPort": port} for port in inner_ports]
    own = {"resources": resources, "ports": [{"containerPort": port, "hostPort": port} for port in ports] + inner}
    manifest = {
        "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {"containers": [{"name": f"c{number}", **own} for number in range(containers)], **spec},
    }
    return msgspec.convert(manifest, LocalPod)


def schedule(pod: LocalPod, *bound: LocalPod, nodes: tuple[NodeInfo, ...] = (NODE,), claim_error: str = "") -> object:
    return find_node(pod, [("local-1", each) for each in bound], nodes, MACHINE, NEXT, claim_error)


def cpu(quantity: str) -> dict[str, Any]:
    return {"requests": {"cpu": quantity}}


def test_fitting_pod_is_bound() -> None:
    assert schedule(make_pod(resources=cpu("4"))) == Bind("local-1")


def test_effective_requests_include_init_containers() -> None:
    def init(name: str, quantity: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": cpu(quantity), **more}

    pod = make_pod(containers=2, resources=cpu("1"), initContainers=[init("a", "3")])
    assert local_pod_requests(pod)["cpu"] == 3
    sidecar = init("s", "500m", restartPolicy="Always")
    assert local_pod_requests(make_pod(resources=cpu("1"), initContainers=[sidecar, init("b", "2")]))[
        "cpu"
    ] == Fraction("2.5")
    assert local_pod_requests(make_pod(resources=cpu("1"), overhead={"cpu": "250m"}))["cpu"] == Fraction("1.25")


def test_limit_without_request_is_a_request() -> None:
    assert local_pod_requests(make_pod(resources={"limits": {"nvidia.com/gpu": "1"}}))["nvidia.com/gpu"] == 1


def test_missing_gpus_are_insufficient() -> None:
    decision = schedule(make_pod(resources={"limits": {"nvidia.com/gpu": 1}}))
    assert decision == Unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")


def test_requests_are_counted_over_all_nodes() -> None:
    second = NodeInfo("local-2")
    decision = find_node(
        make_pod(resources=cpu("2")), [("local-2", make_pod("x", resources=cpu("3")))], (NODE, second), MACHINE, NEXT
    )
    assert decision == Unschedulable("0/2 nodes are available: 2 Insufficient cpu.")


def test_message_lists_all_reasons() -> None:
    decision = schedule(make_pod(resources={"requests": {"cpu": "5", "memory": "9Gi"}}, nodeSelector={"disk": "hdd"}))
    assert decision == Unschedulable(
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, "
        "1 node(s) didn't match Pod's node affinity/selector."
    )


def test_too_many_pods() -> None:
    assert schedule(make_pod(), *(make_pod(f"p{number}") for number in range(5))) == Unschedulable(
        "0/1 nodes are available: 1 Too many pods."
    )


def test_used_host_port_requires_another_node() -> None:
    assert schedule(make_pod(ports=(35000,)), make_pod("x", ports=(35000,))) == AddNode()
    assert schedule(make_pod(ports=(35001,)), make_pod("x", ports=(35000,))) == Bind("local-1")


def test_container_port_on_host_network_is_a_host_port() -> None:
    occupant = make_pod("x", ports=(80,))
    assert schedule(make_pod(inner_ports=(80,), hostNetwork=True), occupant) == AddNode()
    assert schedule(make_pod(inner_ports=(80,)), occupant) == Bind("local-1")


def test_no_node_is_added_if_the_pod_would_not_fit_it() -> None:
    occupant = make_pod("x", ports=(80,))
    assert isinstance(schedule(make_pod(ports=(80,), resources=cpu("5")), occupant), Unschedulable)
    selector = {"kubernetes.io/hostname": "local-1"}
    assert schedule(make_pod(ports=(80,), nodeSelector=selector), occupant) == Unschedulable(
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    )


def test_cordoned_node_is_unschedulable() -> None:
    cordoned = NodeInfo("local-1", unschedulable=True)
    assert schedule(make_pod(), nodes=(cordoned,)) == Unschedulable(
        "0/1 nodes are available: 1 node(s) were unschedulable."
    )


def test_claim_error_is_the_only_reason() -> None:
    decision = schedule(make_pod(), claim_error='persistentvolumeclaim "data" not found')
    assert decision == Unschedulable('0/1 nodes are available: persistentvolumeclaim "data" not found.')


def test_each_container_sees_its_own_gpus() -> None:
    pod = make_pod(containers=2, resources={"limits": {"nvidia.com/gpu": 1}})
    assert gpu_env(pod, "c0", (4, 7)) == {"CUDA_VISIBLE_DEVICES": "4", "NVIDIA_VISIBLE_DEVICES": "4"}
    assert gpu_env(pod, "c1", (4, 7))["CUDA_VISIBLE_DEVICES"] == "7"
    assert gpu_env(make_pod(), "c0", ()) == {}


def test_gpus_are_allocated_to_one_pod_each() -> None:
    gpus = DeviceManager(3)
    assert gpus.allocate("a", 2) == (0, 1)
    assert gpus.allocate("b", 1) == (2,)
    gpus.release("a")
    assert gpus.allocate("c", 1) == (0,)
