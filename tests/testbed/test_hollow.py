"""Seen through the API, a pod on a hollow node behaves as on a kubelet, in all scenarios of a test."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Object, Resource, View
from paddle_operator.local.kubelet.pod import PODS, LocalPod, LocalPodCondition, TerminatedState
from paddle_operator.local.kubelet.pod_status import CONFIG_ERROR, CRASH_LOOP
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.hollow_script import (
    exits,
    exits_on_sigterm,
    ignores_sigterm,
    image_never_pulls,
    never_ready,
    never_starts,
    oom_killed,
    ready,
    starts,
)
from testbed.watch_until import WatchedObjects, watch_objects

ROOT = Path(__file__).parents[2]
KUBELET = "tester-1"  # a separate user in the audit log


class NodeStatus(View, frozen=True):
    conditions: tuple[LocalPodCondition, ...] = ()


class NodeView(Object, frozen=True):
    status: NodeStatus = NodeStatus()


NODES = Resource("api/v1", "nodes", NodeView, namespaced=False)


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(control_plane.connection()) as client:
        yield client


@pytest.fixture
async def kubelet_client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(control_plane.connection(KUBELET)) as client:
        yield client


@pytest.fixture
async def nodes(kubelet_client: Client) -> AsyncIterator[HollowNodes]:
    async with HollowNodes(kubelet_client, count=2, speed=10) as nodes:
        yield nodes


@pytest.fixture
async def pods(client: Client, namespace: str) -> AsyncIterator[WatchedObjects[LocalPod]]:
    async with watch_objects(client, PODS, Scope(namespace)) as pods:
        yield pods


def make_pod(namespace: str, name: str = "worker", *, env: list[Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "env": env or []}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]} | spec,
    }


def make_config_map(namespace: str) -> dict[str, Any]:
    metadata = {"name": "config", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"RANK": "0"}}


FROM_CONFIG_MAP = [{"name": "RANK", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "RANK"}}}]


def is_running(pod: LocalPod) -> bool:
    return pod.status.phase == "Running"


def is_ready(pod: LocalPod) -> bool:
    return condition(pod, "Ready").status == "True"


def condition(pod: LocalPod, kind: str) -> LocalPodCondition:
    return next((one for one in pod.status.conditions if one.type == kind), LocalPodCondition(kind, "absent"))


def terminated_state(pod: LocalPod) -> TerminatedState:
    end = pod.status.container_statuses[0].state.terminated
    assert end, pod.status
    return end


def has_waiting_reason(reason: str) -> Any:
    def matches(pod: LocalPod) -> bool:
        states = [one.state.waiting for one in pod.status.container_statuses]
        return any(waiting is not None and waiting.reason == reason for waiting in states)

    return matches


def has_restarts(count: int) -> Any:
    return lambda pod: pod.status.container_statuses and pod.status.container_statuses[0].restart_count >= count


async def test_pod_costs_one_write_to_running_and_one_to_its_end(
    control_plane: ControlPlane, client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    async with control_plane.audit.recording() as writes:
        await client.create(PODS, make_pod(namespace))
        running = await pods.until("worker", is_running)
        await nodes.exit("worker", 0)
        ended = await pods.until("worker", lambda pod: pod.finished)
    taken = [write for write in writes.by(KUBELET).to("pods/status") if write.code != 409]  # the scheduler was faster
    assert [write.code for write in taken] == [200, 200]
    assert running.spec.node_name == nodes.node_of("worker").name
    assert running.status.pod_ip.startswith("10.")
    assert is_ready(running)
    assert ended.status.phase == "Succeeded"
    assert (terminated_state(ended).exit_code, terminated_state(ended).reason) == (0, "Completed")
    assert (condition(ended, "Ready").status, condition(ended, "Ready").reason) == ("False", "PodCompleted")
    assert condition(ended, "PodScheduled").status == "True"


async def test_rule_added_before_the_pod_sets_exit_code_and_time(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("*", exits(0))
    nodes.script("wor*", exits(137, after=1))
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", is_running)
    ended = await pods.until("worker", lambda pod: pod.finished)
    end = terminated_state(ended)
    assert (ended.status.phase, end.exit_code, end.reason) == ("Failed", 137, "Error")
    assert end.started_at
    assert end.finished_at
    assert (end.finished_at - end.started_at).total_seconds() >= 1  # and not much more, unless the machine stalls


async def test_rule_added_while_the_pod_runs_counts_from_then(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", is_running)
    nodes.script("worker", oom_killed(after=0.1))
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (terminated_state(ended).exit_code, terminated_state(ended).reason) == (137, "OOMKilled")


async def test_rule_with_times_does_not_apply_to_the_next_pod(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", exits(1), times=1)
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", lambda pod: pod.status.phase == "Failed")
    await client.delete(PODS, Key(namespace, "worker"))
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", is_running)


async def test_annotation_makes_kubelet_notice_the_config_map(
    client: Client, kubelet_client: Client, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    async with HollowNodes(kubelet_client, speed=0.001):  # without an update it would sync again in hours
        await client.create(PODS, make_pod(namespace, env=FROM_CONFIG_MAP))
        waiting_pod = await pods.until("worker", has_waiting_reason(CONFIG_ERROR))
        waiting = waiting_pod.status.container_statuses[0].state.waiting
        assert waiting
        assert waiting.message == 'configmap "config" not found'
        assert (waiting_pod.status.phase, bool(waiting_pod.status.pod_ip)) == ("Pending", True)
        await client.create(CONFIG_MAPS, make_config_map(namespace))
        await client.merge(PODS, waiting_pod.key, {"metadata": {"annotations": {"woken": "now"}}})
        running = await pods.until("worker", is_running)
        assert running.status.pod_ip == waiting_pod.status.pod_ip


async def test_late_config_map_is_noticed_without_an_update(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    await client.create(PODS, make_pod(namespace, env=FROM_CONFIG_MAP))
    await pods.until("worker", has_waiting_reason(CONFIG_ERROR))
    await client.create(CONFIG_MAPS, make_config_map(namespace))
    await pods.until("worker", is_running)


async def test_missing_volume_keeps_the_pod_without_an_address(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    volumes = [{"name": "files", "configMap": {"name": "config", "items": [{"key": "RANK", "path": "rank"}]}}]
    await client.create(PODS, make_pod(namespace, volumes=volumes))
    waiting_pod = await pods.until("worker", has_waiting_reason("ContainerCreating"))
    assert not waiting_pod.status.pod_ip
    await client.create(CONFIG_MAPS, make_config_map(namespace))
    assert (await pods.until("worker", is_running)).status.pod_ip


async def test_deleted_pod_terminates_and_is_removed(
    control_plane: ControlPlane, client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", exits_on_sigterm(15))
    await client.create(PODS, make_pod(namespace))
    running = await pods.until("worker", is_running)
    async with control_plane.audit.recording() as writes:
        await client.delete(PODS, running.key)
        ended = await pods.until("worker", lambda pod: pod.finished)
        await pods.wait_deleted("worker")
    assert (ended.status.phase, terminated_state(ended).exit_code) == ("Failed", 15)
    assert [(write.verb, write.target) for write in writes.by(KUBELET).to("pods", "pods/status")] == [
        ("patch", "pods/status"),
        ("delete", "pods"),
    ]


async def test_pod_that_ignores_sigterm_is_killed_after_its_grace(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", ignores_sigterm())
    await client.create(PODS, make_pod(namespace))
    running = await pods.until("worker", is_running)
    deleted_at = asyncio.get_running_loop().time()
    await client.delete(PODS, running.key, grace_seconds=1)
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert terminated_state(ended).exit_code == 137
    assert asyncio.get_running_loop().time() - deleted_at >= 0.9
    await pods.wait_deleted("worker")


async def test_pod_deleted_before_it_ran_has_status_unknown(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", never_starts())
    await client.create(PODS, make_pod(namespace))
    waiting_pod = await pods.until("worker", has_waiting_reason("ContainerCreating"))
    assert not waiting_pod.status.pod_ip
    await client.delete(PODS, waiting_pod.key)
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (terminated_state(ended).exit_code, terminated_state(ended).reason) == (137, "ContainerStatusUnknown")
    await pods.wait_deleted("worker")


async def test_patched_deadline_ends_the_pod_and_retains_the_object(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", exits_on_sigterm(3))
    await client.create(PODS, make_pod(namespace))
    running = await pods.until("worker", is_running)
    await client.merge(PODS, running.key, {"spec": {"activeDeadlineSeconds": 1}})
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "DeadlineExceeded")
    assert terminated_state(ended).exit_code == 3
    assert await client.get(PODS, ended.key)


async def test_failed_node_is_unreachable_and_its_pod_is_evicted(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", is_running)
    node = nodes.node_of("worker")
    node.fail()
    unreachable = await pods.until("worker", lambda pod: pod.being_deleted)
    assert node_ready(await client.get(NODES, Key("", node.name))) == "Unknown"
    assert condition(unreachable, "DisruptionTarget").reason == "DeletionByTaintManager"
    assert unreachable.status.phase == "Running"  # its kubelet reports no more
    await node.recover()
    await pods.wait_deleted("worker")
    assert node_ready(await client.get(NODES, Key("", node.name))) == "True"


def node_ready(node: NodeView) -> str:
    return next(one.status for one in node.status.conditions if one.type == "Ready")


async def test_restarted_kubelet_continues_with_its_pods(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    await client.create(PODS, make_pod(namespace))
    before = await pods.until("worker", is_running)
    node = nodes.node_of("worker")
    node.fail()
    with pytest.raises(LookupError, match="no pod worker"):
        await nodes.exit("worker", 1)
    await node.recover()
    nodes.script("worker", exits(7, after=0.1))
    after = await pods.until("worker", lambda pod: pod.finished)
    running = before.status.container_statuses[0].state.running
    assert running
    assert (terminated_state(after).exit_code, terminated_state(after).started_at) == (7, running.started_at)
    assert after.status.pod_ip == before.status.pod_ip


async def test_image_that_never_pulls_keeps_the_pod_pending(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", image_never_pulls())
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", has_waiting_reason("ErrImagePull"))
    waiting_pod = await pods.until("worker", has_waiting_reason("ImagePullBackOff"))
    assert waiting_pod.status.phase == "Pending"
    nodes.script("worker", starts(after=0))
    await pods.until("worker", is_running)


async def test_pod_that_always_fails_gets_into_a_crash_loop(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", exits(1))
    await client.create(PODS, make_pod(namespace, restartPolicy="Always"))
    looping = await pods.until("worker", has_waiting_reason(CRASH_LOOP))
    status = looping.status.container_statuses[0]
    assert (looping.status.phase, status.restart_count) == ("Running", 1)
    assert status.last_state.terminated
    assert status.last_state.terminated.exit_code == 1
    await pods.until("worker", has_restarts(2))


async def test_on_failure_restarts_until_the_container_succeeds(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", exits(0))
    nodes.script("worker", exits(2), times=2)
    await client.create(PODS, make_pod(namespace, restartPolicy="OnFailure"))
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (ended.status.phase, ended.status.container_statuses[0].restart_count) == ("Succeeded", 2)


async def test_pod_on_host_network_has_the_address_of_its_node(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    await client.create(PODS, make_pod(namespace, hostNetwork=True))
    running = await pods.until("worker", is_running)
    assert running.status.pod_ip == nodes.node_of("worker").address


async def test_rule_for_an_init_container_fails_the_pod(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("*", exits(5))
    nodes.script("bad", exits(9, after=0.1), container="second")
    initial = [{"name": name, "image": "none"} for name in ("first", "second")]
    await client.create(PODS, make_pod(namespace, "good", initContainers=initial))
    await client.create(PODS, make_pod(namespace, "bad", initContainers=initial))
    good = await pods.until("good", lambda pod: pod.finished)
    bad = await pods.until("bad", lambda pod: pod.finished)
    assert terminated_state(good).exit_code == 5
    ends = [one.state.terminated for one in bad.status.init_container_statuses]
    assert [end.exit_code if end else None for end in ends] == [0, 9]
    assert bad.status.phase == "Failed"
    assert has_waiting_reason("PodInitializing")(bad)


async def test_pod_may_run_and_not_be_ready(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", never_ready())
    await client.create(PODS, make_pod(namespace))
    running = await pods.until("worker", is_running)
    assert condition(running, "Ready").reason == "ContainersNotReady"
    nodes.script("worker", ready(after=0))
    await pods.until("worker", is_ready)


async def test_eviction_by_kubelet_is_a_failure_with_disruption_target(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", is_running)
    await nodes.evict("worker")
    evicted = await pods.until("worker", lambda pod: pod.finished)
    assert (evicted.status.phase, evicted.status.reason) == ("Failed", "Evicted")
    assert condition(evicted, "DisruptionTarget").reason == "TerminationByKubelet"


async def test_drain_evicts_pods_through_the_eviction_api(
    client: Client, nodes: HollowNodes, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    nodes.script("worker", exits_on_sigterm(after=0.5))
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", is_running)
    await nodes.node_of("worker").drain()
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (condition(ended, "DisruptionTarget").reason, terminated_state(ended).exit_code) == (
        "EvictionByEvictionAPI",
        143,
    )
    await pods.wait_deleted("worker")


async def test_scheduler_counts_gpus(
    client: Client, kubelet_client: Client, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    async with HollowNodes(kubelet_client, gpus=1) as nodes:
        resources = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
        containers = [{"name": "main", "image": "none"} | resources]
        for name in ("first", "second"):
            await client.create(PODS, make_pod(namespace, name, containers=containers))
        await pods.until("first", is_running)
        await pods.until("second", lambda pod: condition(pod, "PodScheduled").reason == "Unschedulable")
        await nodes.exit("first", 0)
        await pods.until("second", is_running)


async def test_exit_removes_the_nodes_and_their_pods(
    client: Client, kubelet_client: Client, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    async with HollowNodes(kubelet_client, count=2) as nodes:
        names = {node.name for node in nodes}
        await client.create(PODS, make_pod(namespace))
        await pods.until("worker", is_running)
    assert not names & {node.key.name for node in await client.list_all(NODES)}
    await pods.wait_deleted("worker")


async def test_separate_process_serves_until_sigterm(
    control_plane: ControlPlane, client: Client, pods: WatchedObjects[LocalPod], namespace: str
) -> None:
    kubeconfig = str(control_plane.write_kubeconfig(KUBELET))
    options = ("--kubeconfig", kubeconfig, "--count", "1", "--name", namespace, "--exits-after", "0.5")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "testbed.hollow", *options, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout
    assert await process.stdout.readline() == f"1 hollow nodes are ready, the first is {namespace}-0\n".encode()
    await client.create(PODS, make_pod(namespace))
    await pods.until("worker", lambda pod: pod.status.phase == "Succeeded")
    process.terminate()
    assert await process.wait() == 0
    assert f"{namespace}-0" not in {node.key.name for node in await client.list_all(NODES)}
