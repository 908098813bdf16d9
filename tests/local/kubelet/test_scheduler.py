"""Pods find a node, also several on one machine, and a node that idles says nothing."""

from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.ip_allocator import AddressBlock, IPAllocator
from paddle_operator.local.kubelet.machine import Machine
from testbed.clock import HurriedClock
from tests.local.kubelet.bed import CONFIG_MAPS, NODES, PODS, Bed, config_map, opened_bed, pod

WAITS = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


def hosted(port: int) -> dict[str, Any]:
    return {"container": {"ports": [{"containerPort": port, "hostPort": port}]}, "hostNetwork": True}


async def test_pods_that_want_the_same_host_port_get_a_node_each(bed: Bed) -> None:
    for name in ("ps-0", "ps-1", "ps-2"):
        await bed.create(pod(name, WAITS, **hosted(35000)))
    await bed.create(pod("worker-0", WAITS, **hosted(35001)))
    running = [await bed.running(name) for name in ("ps-0", "ps-1", "ps-2", "worker-0")]
    assert sorted(each.spec["nodeName"] for each in running[:3]) == ["local-1", "local-2", "local-3"]
    assert running[3].spec["nodeName"] == "local-1"
    assert len({each.address for each in running[:3]}) == 3
    nodes = {node.key.name for node in await bed.client.list_all(NODES)}
    assert nodes == {"local-1", "local-2", "local-3"}


async def test_a_pod_that_does_not_fit_is_told_so_and_bound_when_there_is_room(bed: Bed) -> None:
    half = {"container": {"resources": {"requests": {"cpu": "5"}}}}
    await bed.create(pod("first", WAITS, **half))
    await bed.running("first")
    await bed.create(pod("second", "true", **half))
    waiting = await bed.until("second", lambda pod: pod.condition("PodScheduled").get("status") == "False")
    assert waiting.condition("PodScheduled")["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert await bed.event("second", "FailedScheduling") == "0/1 nodes are available: 1 Insufficient cpu."
    await bed.delete("first")
    assert (await bed.finished("second")).phase == "Succeeded"


async def test_a_pod_that_asks_for_gpus_sees_its_own_ones_only(embedded: Client, tmp_path: Path) -> None:
    machine = Machine(cpu=8, memory_bytes=16 * 1024**3, gpus=2)
    gpu = {"container": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}
    script = "echo gpu $CUDA_VISIBLE_DEVICES; " + WAITS
    async with opened_bed(embedded, tmp_path / "state", "default", machine=machine) as bed:
        for name in ("a", "b"):
            await bed.create(pod(name, script, **gpu))
        seen = {(await bed.printed(await bed.running(name), "gpu")).strip() for name in ("a", "b")}
        assert seen == {"gpu 0", "gpu 1"}
        await bed.create(pod("c", script, **gpu))
        waiting = await bed.until("c", lambda pod: pod.condition("PodScheduled").get("status") == "False")
        assert "Insufficient nvidia.com/gpu" in waiting.condition("PodScheduled")["message"]
        assert await bed.log(await bed.run("none", "echo gpu $CUDA_VISIBLE_DEVICES")) == "gpu\n"


async def test_a_pod_that_names_its_node_is_not_scheduled_but_runs(bed: Bed) -> None:
    ended = await bed.run("direct", nodeName="local-1")
    assert ended.phase == "Succeeded"
    assert ended.condition("PodScheduled")["status"] == "True"
    await bed.event("direct", "Started")
    assert "Scheduled" not in [reason for reason, _ in await bed.events("direct")]


async def test_twenty_quiet_minutes_with_running_and_waiting_pods_cost_no_write(
    embedded: Client, tmp_path: Path
) -> None:
    clock = HurriedClock(600)
    async with opened_bed(embedded, tmp_path / "state", "default", clock=clock) as bed:
        await bed.create(pod("runs", WAITS))
        await bed.create(pod("held", container={"envFrom": [{"configMapRef": {"name": "absent"}}]}))
        await bed.create(pod("homeless", container={"resources": {"limits": {"nvidia.com/gpu": 1}}}))
        await bed.running("runs")
        await bed.until("held", lambda pod: pod.waits() == "CreateContainerConfigError")
        await bed.until("homeless", lambda pod: bool(pod.condition("PodScheduled")))
        await bed.event("homeless", "FailedScheduling")
        await bed.event("held", "Failed")
        await bed.event("runs", "Started")
        before = await version(bed)
        await clock.sleep(20 * 60)
        assert await version(bed) == before


async def version(bed: Bed) -> str:
    async for page in bed.client.pages(PODS):
        return page.version
    raise AssertionError("a list has a first page")


async def test_a_pods_life_costs_one_write_a_step(bed: Bed) -> None:
    told: list[str] = []
    bed.pods.store.listen(lambda _, new, __: told.append(f"{new.phase} {new.waits()}".strip()) if new else None)
    own = {
        "envFrom": [{"configMapRef": {"name": "late"}}],
        "volumeMounts": [{"name": "signs", "mountPath": "/signs"}],
    }
    volumes = [{"name": "signs", "hostPath": {"path": str(bed.folder)}}]
    with pytest.MonkeyPatch.context() as slow:  # a breath is what a busy machine needs for what is done in one
        slow.setattr("paddle_operator.local.kubelet.status_manager.DEBOUNCE_SECONDS", 1.0)
        await bed.create(pod("held", "until test -e /signs/go; do sleep 0.02; done", container=own, volumes=volumes))
        await bed.until("held", lambda pod: pod.waits() == "CreateContainerConfigError")
        await bed.create(config_map("late", x="y"), CONFIG_MAPS)
        await bed.running("held")  # what ends before that is told would be told as one step
        (bed.folder / "go").touch()
        await bed.finished("held")
    assert told == ["Pending", "Pending", "Pending CreateContainerConfigError", "Running", "Succeeded"]


async def test_a_cordoned_node_takes_no_new_pod_until_it_is_free_again(bed: Bed) -> None:
    cordoned = await bed.client.merge(NODES, Key("", "local-1"), {"spec": {"unschedulable": True}})
    await bed.knows_node(cordoned)
    await bed.create(pod("barred", "true"))
    waiting = await bed.until("barred", lambda pod: bool(pod.condition("PodScheduled")))
    assert "1 node(s) were unschedulable" in waiting.condition("PodScheduled")["message"]
    await bed.client.merge(NODES, Key("", "local-1"), {"spec": {"unschedulable": None}})
    assert (await bed.finished("barred")).phase == "Succeeded"


def test_a_block_is_one_clusters_alone_until_it_is_released() -> None:
    with AddressBlock.claim() as one:
        with AddressBlock.claim(preferred=one.number) as other:
            assert other.number != one.number
        number = one.number
    with AddressBlock.claim(preferred=number) as again:
        assert again.number == number


def test_addresses_are_given_one_after_the_other_and_none_twice() -> None:
    addresses = IPAllocator(AddressBlock(16))
    assert addresses.reserve("old", "127.16.1.1")
    assert not addresses.reserve("other", "127.16.1.1")
    assert not addresses.reserve("foreign", "127.99.1.1")
    assert [addresses.allocate(uid) for uid in "ab"] == ["127.16.1.2", "127.16.1.3"]
    addresses.release("a", ["127.16.1.2"])
    assert addresses.allocate("c") == "127.16.1.4"
    many = {addresses.allocate(f"n{number}") for number in range(600)}
    assert len(many) == 600
    assert "127.16.3.1" in many
