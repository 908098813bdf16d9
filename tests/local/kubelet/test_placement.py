"""Where a pod goes, and what is said of one that fits nowhere, decided without a server."""

from fractions import Fraction
from typing import Any

import msgspec

from paddle_operator.local.kubelet.device_manager import DeviceManager, gpu_env
from paddle_operator.local.kubelet.machine import Machine
from paddle_operator.local.kubelet.pod import LocalPod
from paddle_operator.local.scheduler import AddNode, Bind, NodeInfo, Unschedulable, find_node, pod_requests

MACHINE = Machine(cpu=4, memory_bytes=8 * 1024**3, pods=5).allocatable
ONE = NodeInfo("local-1", {"kubernetes.io/hostname": "local-1", "disk": "ssd"})
NEW = NodeInfo("local-2", {"kubernetes.io/hostname": "local-2", "disk": "ssd"})


def a_pod(
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


def placed(pod: LocalPod, *bound: LocalPod, nodes: tuple[NodeInfo, ...] = (ONE,), problem: str = "") -> object:
    return find_node(pod, [("local-1", each) for each in bound], nodes, MACHINE, NEW, problem)


def cpu(quantity: str) -> dict[str, Any]:
    return {"requests": {"cpu": quantity}}


def test_a_pod_that_fits_is_bound() -> None:
    assert placed(a_pod(resources=cpu("4"))) == Bind("local-1")


def test_a_pod_takes_the_sum_of_its_containers_or_what_a_step_of_its_start_takes() -> None:
    def init(name: str, quantity: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": cpu(quantity), **more}

    pod = a_pod(containers=2, resources=cpu("1"), initContainers=[init("a", "3")])
    assert pod_requests(pod)["cpu"] == 3
    sidecar = init("s", "500m", restartPolicy="Always")
    assert pod_requests(a_pod(resources=cpu("1"), initContainers=[sidecar, init("b", "2")]))["cpu"] == Fraction("2.5")
    assert pod_requests(a_pod(resources=cpu("1"), overhead={"cpu": "250m"}))["cpu"] == Fraction("1.25")


def test_a_limit_without_a_request_is_a_request() -> None:
    assert pod_requests(a_pod(resources={"limits": {"nvidia.com/gpu": "1"}}))["nvidia.com/gpu"] == 1


def test_a_machine_without_gpus_says_so_in_the_schedulers_words() -> None:
    answer = placed(a_pod(resources={"limits": {"nvidia.com/gpu": 1}}))
    assert answer == Unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")


def test_what_bound_pods_take_is_counted_over_all_nodes() -> None:
    other = NodeInfo("local-2")
    answer = find_node(
        a_pod(resources=cpu("2")), [("local-2", a_pod("x", resources=cpu("3")))], (ONE, other), MACHINE, NEW
    )
    assert answer == Unschedulable("0/2 nodes are available: 2 Insufficient cpu.")


def test_all_reasons_are_told() -> None:
    answer = placed(a_pod(resources={"requests": {"cpu": "5", "memory": "9Gi"}}, nodeSelector={"disk": "hdd"}))
    assert answer == Unschedulable(
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, "
        "1 node(s) didn't match Pod's node affinity/selector."
    )


def test_a_node_takes_only_so_many_pods() -> None:
    assert placed(a_pod(), *(a_pod(f"p{number}") for number in range(5))) == Unschedulable(
        "0/1 nodes are available: 1 Too many pods."
    )


def test_a_host_port_that_is_taken_asks_for_another_node() -> None:
    assert placed(a_pod(ports=(35000,)), a_pod("x", ports=(35000,))) == AddNode()
    assert placed(a_pod(ports=(35001,)), a_pod("x", ports=(35000,))) == Bind("local-1")


def test_a_port_of_a_pod_on_the_hosts_network_is_a_host_port() -> None:
    taken = a_pod("x", ports=(80,))
    assert placed(a_pod(inner_ports=(80,), hostNetwork=True), taken) == AddNode()
    assert placed(a_pod(inner_ports=(80,)), taken) == Bind("local-1")


def test_no_node_is_added_for_a_pod_that_would_not_fit_there_either() -> None:
    taken = a_pod("x", ports=(80,))
    assert isinstance(placed(a_pod(ports=(80,), resources=cpu("5")), taken), Unschedulable)
    chosen = {"kubernetes.io/hostname": "local-1"}
    assert placed(a_pod(ports=(80,), nodeSelector=chosen), taken) == Unschedulable(
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    )


def test_a_cordoned_node_takes_nothing() -> None:
    cordoned = NodeInfo("local-1", unschedulable=True)
    assert placed(a_pod(), nodes=(cordoned,)) == Unschedulable("0/1 nodes are available: 1 node(s) were unschedulable.")


def test_what_no_node_can_mend_is_told_alone() -> None:
    answer = placed(a_pod(), problem='persistentvolumeclaim "data" not found')
    assert answer == Unschedulable('0/1 nodes are available: persistentvolumeclaim "data" not found.')


def test_each_container_of_a_pod_sees_its_own_gpus() -> None:
    pod = a_pod(containers=2, resources={"limits": {"nvidia.com/gpu": 1}})
    assert gpu_env(pod, "c0", (4, 7)) == {"CUDA_VISIBLE_DEVICES": "4", "NVIDIA_VISIBLE_DEVICES": "4"}
    assert gpu_env(pod, "c1", (4, 7))["CUDA_VISIBLE_DEVICES"] == "7"
    assert gpu_env(a_pod(), "c0", ()) == {}


def test_two_pods_never_have_the_same_gpu() -> None:
    gpus = DeviceManager(3)
    assert gpus.allocate("a", 2) == (0, 1)
    assert gpus.allocate("b", 1) == (2,)
    gpus.release("a")
    assert gpus.allocate("c", 1) == (0,)
