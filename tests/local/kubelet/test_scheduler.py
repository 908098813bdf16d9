"""Pods are bound to nodes, several on one machine, and an idle node writes nothing."""

from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.machine import Machine
from testbed.clock import AcceleratedClock
from tests.local.kubelet.harness import CONFIG_MAPS, NODES, PODS, NodeHarness, make_config_map, make_pod, run_node

RUNS_UNTIL_SIGTERM = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


def host_port(port: int) -> dict[str, Any]:
    return {"container": {"ports": [{"containerPort": port, "hostPort": port}]}, "hostNetwork": True}


async def test_pods_with_the_same_host_port_get_a_node_each(harness: NodeHarness) -> None:
    for name in ("ps-0", "ps-1", "ps-2"):
        await harness.create(make_pod(name, RUNS_UNTIL_SIGTERM, **host_port(35000)))
    await harness.create(make_pod("worker-0", RUNS_UNTIL_SIGTERM, **host_port(35001)))
    running = [await harness.wait_running(name) for name in ("ps-0", "ps-1", "ps-2", "worker-0")]
    assert sorted(each.spec["nodeName"] for each in running[:3]) == ["local-1", "local-2", "local-3"]
    assert running[3].spec["nodeName"] == "local-1"
    assert len({each.address for each in running[:3]}) == 3
    nodes = {node.key.name for node in await harness.client.list_all(NODES)}
    assert nodes == {"local-1", "local-2", "local-3"}


async def test_unschedulable_pod_is_bound_once_resources_are_free(harness: NodeHarness) -> None:
    half = {"container": {"resources": {"requests": {"cpu": "5"}}}}
    await harness.create(make_pod("first", RUNS_UNTIL_SIGTERM, **half))
    await harness.wait_running("first")
    await harness.create(make_pod("second", "true", **half))
    waiting = await harness.wait_until("second", lambda pod: pod.condition("PodScheduled").get("status") == "False")
    assert waiting.condition("PodScheduled")["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert await harness.wait_event("second", "FailedScheduling") == "0/1 nodes are available: 1 Insufficient cpu."
    await harness.delete("first")
    assert (await harness.wait_finished("second")).phase == "Succeeded"


async def test_pod_sees_only_its_own_gpus(embedded: Client, tmp_path: Path) -> None:
    machine = Machine(cpu=8, memory_bytes=16 * 1024**3, gpus=2)
    gpu = {"container": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}
    script = "echo gpu $CUDA_VISIBLE_DEVICES; " + RUNS_UNTIL_SIGTERM
    async with run_node(embedded, tmp_path / "state", "default", machine=machine) as harness:
        for name in ("a", "b"):
            await harness.create(make_pod(name, script, **gpu))
        seen = {(await harness.wait_printed(await harness.wait_running(name), "gpu")).strip() for name in ("a", "b")}
        assert seen == {"gpu 0", "gpu 1"}
        await harness.create(make_pod("c", script, **gpu))
        waiting = await harness.wait_until("c", lambda pod: pod.condition("PodScheduled").get("status") == "False")
        assert "Insufficient nvidia.com/gpu" in waiting.condition("PodScheduled")["message"]
        assert await harness.read_log(await harness.run_pod("none", "echo gpu $CUDA_VISIBLE_DEVICES")) == "gpu\n"


async def test_pod_with_node_name_is_not_scheduled(harness: NodeHarness) -> None:
    ended = await harness.run_pod("direct", nodeName="local-1")
    assert ended.phase == "Succeeded"
    assert ended.condition("PodScheduled")["status"] == "True"
    await harness.wait_event("direct", "Started")
    assert "Scheduled" not in [reason for reason, _ in await harness.events("direct")]


async def test_twenty_idle_minutes_cost_no_write(embedded: Client, tmp_path: Path) -> None:
    clock = AcceleratedClock(600)
    async with run_node(embedded, tmp_path / "state", "default", clock=clock) as harness:
        await harness.create(make_pod("runs", RUNS_UNTIL_SIGTERM))
        await harness.create(make_pod("waiting", container={"envFrom": [{"configMapRef": {"name": "absent"}}]}))
        await harness.create(make_pod("unschedulable", container={"resources": {"limits": {"nvidia.com/gpu": 1}}}))
        await harness.wait_running("runs")
        await harness.wait_until("waiting", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
        await harness.wait_until("unschedulable", lambda pod: bool(pod.condition("PodScheduled")))
        await harness.wait_event("unschedulable", "FailedScheduling")
        await harness.wait_event("waiting", "Failed")
        await harness.wait_event("runs", "Started")
        before = await version(harness)
        await clock.sleep(20 * 60)
        assert await version(harness) == before


async def version(harness: NodeHarness) -> str:
    async for page in harness.client.list_pages(PODS):
        return page.version
    raise AssertionError("a list has a first page")


async def test_pod_costs_one_write_a_step(harness: NodeHarness) -> None:
    steps: list[str] = []
    harness.pods.store.listen(
        lambda _, new, __: steps.append(f"{new.phase} {new.waiting_reason()}".strip()) if new else None
    )
    own = {
        "envFrom": [{"configMapRef": {"name": "late"}}],
        "volumeMounts": [{"name": "signals", "mountPath": "/signals"}],
    }
    volumes = [{"name": "signals", "hostPath": {"path": str(harness.folder)}}]
    with pytest.MonkeyPatch.context() as slow:  # long enough for a busy machine to do one step in it
        slow.setattr("paddle_operator.local.kubelet.status_manager.DEBOUNCE_SECONDS", 1.0)
        await harness.create(
            make_pod("waiting", "until test -e /signals/go; do sleep 0.02; done", container=own, volumes=volumes)
        )
        await harness.wait_until("waiting", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
        await harness.create(make_config_map("late", x="y"), CONFIG_MAPS)
        await harness.wait_running("waiting")  # an exit before this write would make them one step
        (harness.folder / "go").touch()
        await harness.wait_finished("waiting")
    assert steps == ["Pending", "Pending", "Pending CreateContainerConfigError", "Running", "Succeeded"]


async def test_cordoned_node_gets_no_pod_until_uncordoned(harness: NodeHarness) -> None:
    cordoned = await harness.client.merge(NODES, Key("", "local-1"), {"spec": {"unschedulable": True}})
    await harness.wait_observed(cordoned)
    await harness.create(make_pod("barred", "true"))
    waiting = await harness.wait_until("barred", lambda pod: bool(pod.condition("PodScheduled")))
    assert "1 node(s) were unschedulable" in waiting.condition("PodScheduled")["message"]
    await harness.client.merge(NODES, Key("", "local-1"), {"spec": {"unschedulable": None}})
    assert (await harness.wait_finished("barred")).phase == "Succeeded"
