"""A pod on a hollow node looks from the API as it would on a kubelet, through whatever life the test gives it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Object, Resource, View
from testbed.control_plane import ControlPlane
from testbed.followed import Followed, followed
from testbed.hollow import HollowNodes
from testbed.hollow_container import CONFIG_ERROR, CRASH_LOOP
from testbed.hollow_pod import PODS, Condition, HollowPod, TerminatedState
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

ROOT = Path(__file__).parents[2]
KUBELET = "tester-1"  # under a name of its own in the audit log


class NodeStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()


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
async def pods(client: Client, namespace: str) -> AsyncIterator[Followed[HollowPod]]:
    async with followed(client, PODS, Scope(namespace)) as pods:
        yield pods


def a_pod(namespace: str, name: str = "worker", *, env: list[Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "env": env or []}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]} | spec,
    }


def a_config_map(namespace: str) -> dict[str, Any]:
    metadata = {"name": "contract", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"RANK": "0"}}


FROM_CONTRACT = [{"name": "RANK", "valueFrom": {"configMapKeyRef": {"name": "contract", "key": "RANK"}}}]


def runs(pod: HollowPod) -> bool:
    return pod.status.phase == "Running"


def is_ready(pod: HollowPod) -> bool:
    return condition(pod, "Ready").status == "True"


def condition(pod: HollowPod, kind: str) -> Condition:
    return next((one for one in pod.status.conditions if one.type == kind), Condition(kind, "absent"))


def end_of(pod: HollowPod) -> TerminatedState:
    end = pod.status.container_statuses[0].state.terminated
    assert end, pod.status
    return end


def waits_for(reason: str) -> Any:
    def claim(pod: HollowPod) -> bool:
        states = [one.state.waiting for one in pod.status.container_statuses]
        return any(waiting is not None and waiting.reason == reason for waiting in states)

    return claim


def restarts(count: int) -> Any:
    return lambda pod: pod.status.container_statuses and pod.status.container_statuses[0].restart_count >= count


async def test_a_straight_life_is_one_write_to_running_and_one_to_its_end(
    control_plane: ControlPlane, client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    async with control_plane.audit.recording() as writes:
        await client.create(PODS, a_pod(namespace))
        running = await pods.until("worker", runs)
        await nodes.exits("worker", 0)
        ended = await pods.until("worker", lambda pod: pod.finished)
    taken = [write for write in writes.by(KUBELET).to("pods/status") if write.code != 409]  # the scheduler was faster
    assert [write.code for write in taken] == [200, 200]
    assert running.spec.node_name == nodes.node_of("worker").name
    assert running.status.pod_ip.startswith("10.")
    assert is_ready(running)
    assert ended.status.phase == "Succeeded"
    assert (end_of(ended).exit_code, end_of(ended).reason) == (0, "Completed")
    assert (condition(ended, "Ready").status, condition(ended, "Ready").reason) == ("False", "PodCompleted")
    assert condition(ended, "PodScheduled").status == "True"


async def test_a_rule_given_before_the_pod_ends_it_with_its_code_after_its_time(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("*", exits(0))
    nodes.script("wor*", exits(137, after=1))
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", runs)
    ended = await pods.until("worker", lambda pod: pod.finished)
    end = end_of(ended)
    assert (ended.status.phase, end.exit_code, end.reason) == ("Failed", 137, "Error")
    assert end.started_at
    assert end.finished_at
    assert (end.finished_at - end.started_at).total_seconds() >= 1  # and not much more, unless the machine stalls


async def test_a_rule_given_while_the_pod_runs_counts_from_then(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", runs)
    nodes.script("worker", oom_killed(after=0.1))
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (end_of(ended).exit_code, end_of(ended).reason) == (137, "OOMKilled")


async def test_a_rule_for_one_time_leaves_the_next_pod_of_that_name_alone(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", exits(1), times=1)
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", lambda pod: pod.status.phase == "Failed")
    await client.delete(PODS, Key(namespace, "worker"))
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", runs)


async def test_a_container_waits_for_its_config_map_and_an_annotation_wakes_it(
    client: Client, kubelet_client: Client, pods: Followed[HollowPod], namespace: str
) -> None:
    async with HollowNodes(kubelet_client, speed=0.001):  # by itself it would look again in hours
        await client.create(PODS, a_pod(namespace, env=FROM_CONTRACT))
        held = await pods.until("worker", waits_for(CONFIG_ERROR))
        waiting = held.status.container_statuses[0].state.waiting
        assert waiting
        assert waiting.message == 'configmap "contract" not found'
        assert (held.status.phase, bool(held.status.pod_ip)) == ("Pending", True)
        await client.create(CONFIG_MAPS, a_config_map(namespace))
        await client.merge(PODS, held.key, {"metadata": {"annotations": {"woken": "now"}}})
        running = await pods.until("worker", runs)
        assert running.status.pod_ip == held.status.pod_ip


async def test_a_container_whose_config_map_is_late_looks_again_by_itself(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    await client.create(PODS, a_pod(namespace, env=FROM_CONTRACT))
    await pods.until("worker", waits_for(CONFIG_ERROR))
    await client.create(CONFIG_MAPS, a_config_map(namespace))
    await pods.until("worker", runs)


async def test_a_volume_that_is_missing_keeps_the_pod_without_an_address(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    volumes = [{"name": "files", "configMap": {"name": "contract", "items": [{"key": "RANK", "path": "rank"}]}}]
    await client.create(PODS, a_pod(namespace, volumes=volumes))
    held = await pods.until("worker", waits_for("ContainerCreating"))
    assert not held.status.pod_ip
    await client.create(CONFIG_MAPS, a_config_map(namespace))
    assert (await pods.until("worker", runs)).status.pod_ip


async def test_a_deleted_pod_ends_by_sigterm_and_is_gone(
    control_plane: ControlPlane, client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", exits_on_sigterm(15))
    await client.create(PODS, a_pod(namespace))
    running = await pods.until("worker", runs)
    async with control_plane.audit.recording() as writes:
        await client.delete(PODS, running.key)
        ended = await pods.until("worker", lambda pod: pod.finished)
        await pods.until_gone("worker")
    assert (ended.status.phase, end_of(ended).exit_code) == ("Failed", 15)
    assert [(write.verb, write.target) for write in writes.by(KUBELET).to("pods", "pods/status")] == [
        ("patch", "pods/status"),
        ("delete", "pods"),
    ]


async def test_a_pod_that_ignores_sigterm_is_killed_when_its_grace_is_over(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", ignores_sigterm())
    await client.create(PODS, a_pod(namespace))
    running = await pods.until("worker", runs)
    asked_at = asyncio.get_running_loop().time()
    await client.delete(PODS, running.key, grace_seconds=1)
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert end_of(ended).exit_code == 137
    assert asyncio.get_running_loop().time() - asked_at >= 0.9
    await pods.until_gone("worker")


async def test_a_pod_that_is_deleted_before_it_ran_is_told_as_lost(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", never_starts())
    await client.create(PODS, a_pod(namespace))
    held = await pods.until("worker", waits_for("ContainerCreating"))
    assert not held.status.pod_ip
    await client.delete(PODS, held.key)
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (end_of(ended).exit_code, end_of(ended).reason) == (137, "ContainerStatusUnknown")
    await pods.until_gone("worker")


async def test_a_deadline_patched_onto_a_running_pod_ends_it_and_leaves_the_object(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", exits_on_sigterm(3))
    await client.create(PODS, a_pod(namespace))
    running = await pods.until("worker", runs)
    await client.merge(PODS, running.key, {"spec": {"activeDeadlineSeconds": 1}})
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "DeadlineExceeded")
    assert end_of(ended).exit_code == 3
    assert await client.get(PODS, ended.key)


async def test_a_node_that_dies_is_given_up_and_its_pod_is_evicted_until_it_comes_back(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", runs)
    node = nodes.node_of("worker")
    node.dies()
    given_up = await pods.until("worker", lambda pod: pod.being_deleted)
    assert node_ready(await client.get(NODES, Key("", node.name))) == "Unknown"
    assert condition(given_up, "DisruptionTarget").reason == "DeletionByTaintManager"
    assert given_up.status.phase == "Running"  # nobody is left who could say otherwise
    await node.comes_back()
    await pods.until_gone("worker")
    assert node_ready(await client.get(NODES, Key("", node.name))) == "True"


def node_ready(node: NodeView) -> str:
    return next(one.status for one in node.status.conditions if one.type == "Ready")


async def test_a_kubelet_that_restarts_goes_on_with_the_pods_it_finds(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    await client.create(PODS, a_pod(namespace))
    before = await pods.until("worker", runs)
    node = nodes.node_of("worker")
    node.dies()
    with pytest.raises(LookupError, match="no pod worker"):
        await nodes.exits("worker", 1)
    await node.comes_back()
    nodes.script("worker", exits(7, after=0.1))
    after = await pods.until("worker", lambda pod: pod.finished)
    running = before.status.container_statuses[0].state.running
    assert running
    assert (end_of(after).exit_code, end_of(after).started_at) == (7, running.started_at)
    assert after.status.pod_ip == before.status.pod_ip


async def test_an_image_that_never_pulls_keeps_the_pod_pending(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", image_never_pulls())
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", waits_for("ErrImagePull"))
    held = await pods.until("worker", waits_for("ImagePullBackOff"))
    assert held.status.phase == "Pending"
    nodes.script("worker", starts(after=0))
    await pods.until("worker", runs)


async def test_a_pod_that_always_restarts_gets_into_a_crash_loop(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", exits(1))
    await client.create(PODS, a_pod(namespace, restartPolicy="Always"))
    looping = await pods.until("worker", waits_for(CRASH_LOOP))
    status = looping.status.container_statuses[0]
    assert (looping.status.phase, status.restart_count) == ("Running", 1)
    assert status.last_state.terminated
    assert status.last_state.terminated.exit_code == 1
    await pods.until("worker", restarts(2))


async def test_on_failure_restarts_until_the_container_succeeds(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", exits(0))
    nodes.script("worker", exits(2), times=2)
    await client.create(PODS, a_pod(namespace, restartPolicy="OnFailure"))
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (ended.status.phase, ended.status.container_statuses[0].restart_count) == ("Succeeded", 2)


async def test_a_pod_of_the_host_network_has_the_address_of_its_node(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    await client.create(PODS, a_pod(namespace, hostNetwork=True))
    running = await pods.until("worker", runs)
    assert running.status.pod_ip == nodes.node_of("worker").address


async def test_a_failed_init_container_fails_the_pod_and_is_named_by_its_own_rule(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("*", exits(5))
    nodes.script("bad", exits(9, after=0.1), container="second")
    initial = [{"name": name, "image": "none"} for name in ("first", "second")]
    await client.create(PODS, a_pod(namespace, "good", initContainers=initial))
    await client.create(PODS, a_pod(namespace, "bad", initContainers=initial))
    good = await pods.until("good", lambda pod: pod.finished)
    bad = await pods.until("bad", lambda pod: pod.finished)
    assert end_of(good).exit_code == 5
    ends = [one.state.terminated for one in bad.status.init_container_statuses]
    assert [end.exit_code if end else None for end in ends] == [0, 9]
    assert bad.status.phase == "Failed"
    assert waits_for("PodInitializing")(bad)


async def test_a_pod_may_run_and_not_be_ready(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", never_ready())
    await client.create(PODS, a_pod(namespace))
    running = await pods.until("worker", runs)
    assert condition(running, "Ready").reason == "ContainersNotReady"
    nodes.script("worker", ready(after=0))
    await pods.until("worker", is_ready)


async def test_an_eviction_by_kubelet_is_a_failure_that_names_the_disruption(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", runs)
    await nodes.evicts("worker")
    evicted = await pods.until("worker", lambda pod: pod.finished)
    assert (evicted.status.phase, evicted.status.reason) == ("Failed", "Evicted")
    assert condition(evicted, "DisruptionTarget").reason == "TerminationByKubelet"


async def test_a_drained_node_loses_its_pods_by_the_eviction_api(
    client: Client, nodes: HollowNodes, pods: Followed[HollowPod], namespace: str
) -> None:
    nodes.script("worker", exits_on_sigterm(after=0.5))
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", runs)
    await nodes.node_of("worker").drain()
    ended = await pods.until("worker", lambda pod: pod.finished)
    assert (condition(ended, "DisruptionTarget").reason, end_of(ended).exit_code) == ("EvictionByEvictionAPI", 143)
    await pods.until_gone("worker")


async def test_gpus_are_counted_by_the_scheduler(
    client: Client, kubelet_client: Client, pods: Followed[HollowPod], namespace: str
) -> None:
    async with HollowNodes(kubelet_client, gpus=1) as nodes:
        wish = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
        containers = [{"name": "main", "image": "none"} | wish]
        for name in ("first", "second"):
            await client.create(PODS, a_pod(namespace, name, containers=containers))
        await pods.until("first", runs)
        await pods.until("second", lambda pod: condition(pod, "PodScheduled").reason == "Unschedulable")
        await nodes.exits("first", 0)
        await pods.until("second", runs)


async def test_leaving_takes_the_nodes_and_their_pods_along(
    client: Client, kubelet_client: Client, pods: Followed[HollowPod], namespace: str
) -> None:
    async with HollowNodes(kubelet_client, count=2) as nodes:
        names = {node.name for node in nodes}
        await client.create(PODS, a_pod(namespace))
        await pods.until("worker", runs)
    assert not names & {node.key.name for node in await client.list_all(NODES)}
    await pods.until_gone("worker")


async def test_as_a_process_of_its_own_it_serves_until_it_is_told_to_end(
    control_plane: ControlPlane, client: Client, pods: Followed[HollowPod], namespace: str
) -> None:
    kubeconfig = str(control_plane.kubeconfig_for(KUBELET))
    options = ("--kubeconfig", kubeconfig, "--count", "1", "--name", namespace, "--exits-after", "0.5")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "testbed.hollow", *options, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout
    assert await process.stdout.readline() == f"1 hollow nodes are ready, the first is {namespace}-0\n".encode()
    await client.create(PODS, a_pod(namespace))
    await pods.until("worker", lambda pod: pod.status.phase == "Succeeded")
    process.terminate()
    assert await process.wait() == 0
    assert f"{namespace}-0" not in {node.key.name for node in await client.list_all(NODES)}
