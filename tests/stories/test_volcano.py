"""Jobs as gangs, with --scheduling=volcano and a real Volcano that decides: all pods of a job start, or none."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from testbed.assets import Binaries
from testbed.clock import SlowClock
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits, never_starts, starts
from testbed.volcano import PREEMPTING_CONFIGURATION, Volcano
from testbed.volcano_assets import VolcanoPrograms
from tests.stories.gangs import (
    FULL_POD_GROUPS,
    GangHarness,
    make_gang,
    make_pod_group,
    running_message,
    serve_paddlejobs,
)
from tests.stories.harness import FULL_PODS, ClusterHarness
from tests.stories.jobs import make_job, make_template, with_template

GROUP_NAME = "scheduling.k8s.io/group-name"
EXAMPLES = Path(__file__).parents[2] / "deploy/examples"


@pytest.fixture
async def harness(gangs: GangHarness) -> AsyncIterator[GangHarness]:
    async with gangs.run_gang_operator():
        yield gangs


# All or none


async def test_gang_waits_without_pods_for_enough_nodes(harness: GangHarness) -> None:
    await harness.submit(make_gang(ps=1, workers=4))
    job = await harness.wait_not_running_for_volcano()
    assert job.condition("Running")["reason"] == "WaitingForPodGroup"
    assert "in queue default" in running_message(job)
    assert await harness.list_pods() == {}
    async with harness.add_nodes(1):
        await harness.wait_running_with(5)
        for pod in (await harness.list_pods()).values():
            assert pod.spec["schedulerName"] == "volcano"
            assert pod.metadata.annotations[GROUP_NAME] == "mnist"
        group = (await harness.list_groups())["mnist"]
        assert (group.spec["minMember"], group.spec["minResources"]) == (5, {"cpu": "10"})
        assert [(owner.kind, owner.name) for owner in group.metadata.owner_references] == [("PaddleJob", "mnist")]


@pytest.mark.parametrize("policy", [{}, {"minResources": {"cpu": "1"}}], ids=["as pods ask", "both let in"])
async def test_two_gangs_too_large_together_run_in_turn(harness: GangHarness, policy: dict[str, Any]) -> None:
    """With less than the pods ask for as minResources Volcano lets both in, and the pods of both wait for nodes."""
    gangs = ("one", "two")
    await harness.submit(*(make_gang(name, workers=3, schedulingPolicy=policy) for name in gangs))
    await harness.wait_pods(lambda pods: sum(pod.phase == "Running" for pod in pods.values()) == 3)
    (first,) = harness.bound_pods()
    (second,) = {*gangs} - {first}
    await harness.wait_phase(first, "Running")
    while_it_ran = len(harness.history)  # from then on its pods leave one by one, and others may come in their place
    await harness.exit_pods(f"{first}-worker-*")
    await harness.wait_phase(first, "Completed")
    await harness.wait_phase(second, "Running")
    await harness.exit_pods(f"{second}-worker-*")
    await harness.wait_phase(second, "Completed")
    assert all(len(jobs) < 2 for jobs in harness.history[:while_it_ran])


async def test_full_queue_delays_a_job_until_another_completes(harness: GangHarness) -> None:
    async with harness.queue("small", cpu="4"):
        policy = {"queue": "small"}
        await harness.submit(make_gang("one", schedulingPolicy=policy))
        await harness.wait_phase("one", "Running")
        await harness.submit(make_gang("two", schedulingPolicy=policy))
        waiting = await harness.wait_not_running_for_volcano("two")
        assert "in queue small" in running_message(waiting)
        await harness.submit(make_gang("elsewhere"))  # the other half of the cluster is the default queue's
        await harness.wait_phase("elsewhere", "Running")
        await harness.wait_pods(lambda _: harness.bound_pods().keys() == {"one", "elsewhere"})
        await harness.exit_pods("one-worker-*")
        await harness.wait_phase("two", "Running")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [12, pytest.param(50, marks=pytest.mark.long)])
async def test_more_gangs_than_fit_all_complete(harness: GangHarness, count: int) -> None:
    """The cluster has room for four of them."""
    harness.nodes.script("many-*", exits(0, after=0.2), namespace=harness.namespace)
    names = [f"many-{number}" for number in range(count)]
    await harness.submit(*(make_gang(name, cpu="1") for name in names))
    for name in names:
        await harness.wait_phase(name, "Completed", timeout_seconds=240)
    assert max(jobs.total() for jobs in harness.history) <= 8
    for name in names:
        await harness.wait_group_deleted(name)


# What changes


async def test_a_gang_is_scaled_up_and_down_and_its_group_follows(harness: GangHarness) -> None:
    await harness.submit(make_gang(workers=2))
    await harness.wait_running_with(2)
    group = (await harness.list_groups())["mnist"]
    for workers in (4, 1):
        await harness.patch_spec("mnist", {"worker": {"replicas": workers}})
        await harness.wait_running_with(workers)
        changed = await harness.wait_group("mnist", lambda each, many=workers: each.spec["minMember"] == many)  # type: ignore[misc]
        assert changed.spec["minResources"] == {"cpu": str(2 * workers)}
        assert changed.uid == group.uid


async def test_gang_scaled_beyond_the_cluster_recovers(harness: GangHarness) -> None:
    await harness.submit(make_gang(workers=2))
    await harness.wait_running_with(2)
    await harness.patch_spec("mnist", {"worker": {"replicas": 5}})
    await harness.wait_job("mnist", lambda job: job.phase != "Running")
    await harness.wait_group("mnist", lambda each: each.spec["minMember"] == 5)
    await harness.patch_spec("mnist", {"worker": {"replicas": 3}})
    await harness.wait_running_with(3)


async def test_a_preempted_gang_comes_back_when_the_other_is_done(harness: GangHarness) -> None:
    """And nothing of it is charged: with backoffLimit 0 a failure of its own would have ended it."""
    await harness.create_priority("urgent", 1000)
    async with harness.volcano.use_configuration(PREEMPTING_CONFIGURATION):
        await harness.submit(make_gang("low", workers=4, backoffLimit=0))
        await harness.wait_phase("low", "Running")
        await harness.submit(make_gang("high", workers=3, schedulingPolicy={"priorityClass": "urgent"}))
        await harness.wait_phase("high", "Running")
        await harness.wait_job("low", lambda job: job.phase not in ("Running", "Failed"))
        await harness.exit_pods("high-worker-*")
        await harness.wait_phase("high", "Completed")
        low = await harness.wait_phase("low", "Running")
        assert low.status.get("restarts", 0) == 0


async def test_gang_that_loses_a_pod_before_running_still_starts(gangs: GangHarness) -> None:
    """Volcano takes its group for one that has to queue again, and finds the place taken: by the gang's own pods."""
    gangs.nodes.script("mnist-*", never_starts(), namespace=gangs.namespace)
    async with gangs.run_gang_operator():
        await gangs.submit(make_gang(workers=4))
        await gangs.wait_pods(lambda pods: sum(bool(pod.spec.get("nodeName")) for pod in pods.values()) == 4)
    await gangs.delete(FULL_PODS, "mnist-worker-1")
    await gangs.wait_group("mnist", lambda each: each.phase == "Pending")
    gangs.nodes.script("mnist-*", starts(after=0.0), namespace=gangs.namespace)
    async with gangs.run_gang_operator():
        await gangs.wait_running_with(4)
        await gangs.wait_group("mnist", lambda each: each.spec["minResources"] == {"cpu": "8"})


async def test_a_group_is_kept_across_restarts_and_removed_at_the_end(harness: GangHarness) -> None:
    await harness.submit(make_gang(workers=2, backoffLimit=2))
    await harness.wait_phase("mnist", "Running")
    group = (await harness.list_groups())["mnist"]
    await harness.delete(FULL_PODS, "mnist-worker-1")
    await harness.wait_running(1)
    assert (await harness.list_groups())["mnist"].uid == group.uid
    await harness.exit_pods("mnist-worker-*")
    await harness.wait_phase("mnist", "Completed")
    await harness.wait_group_deleted()


async def test_single_pod_is_replaced_in_a_full_cluster(harness: GangHarness) -> None:
    """The group is Unknown meanwhile, which holds up neither the pod nor what is told of the job."""
    await harness.submit(make_gang(ps=1, workers=3, withGloo=0))
    await harness.wait_running_with(4)
    group, lost = (await harness.list_groups())["mnist"], (await harness.list_pods())["mnist-worker-2"]
    await harness.delete(FULL_PODS, "mnist-worker-2")
    await harness.wait_pods(lambda pods: "mnist-worker-2" in pods and pods["mnist-worker-2"].uid != lost.uid)
    job = await harness.wait_running_with(4)
    assert job.status.get("attempt", 0) == 0
    running = await harness.wait_group("mnist", lambda each: each.phase == "Running")
    assert running.uid == group.uid


async def test_restarted_operator_continues_a_waiting_gang(gangs: GangHarness) -> None:
    async with gangs.run_gang_operator():
        await gangs.submit(make_gang(workers=5))
        await gangs.wait_not_running_for_volcano()
    async with gangs.add_nodes(1):
        await gangs.wait_group("mnist", lambda each: each.phase == "Inqueue")
        async with gangs.run_gang_operator():
            await gangs.wait_running_with(5)


async def test_suspend_deletes_the_pod_group_and_resume_creates_one(harness: GangHarness) -> None:
    await harness.submit(make_gang("other", suspend=True), make_gang(workers=4))
    await harness.wait_phase("mnist", "Running")
    group = (await harness.list_groups())["mnist"]
    await harness.patch_spec("mnist", {"suspend": True})
    await harness.wait_group_deleted()
    await harness.wait_pods(lambda pods: not pods)
    await harness.wait_phase("other", "Suspended")
    assert await harness.list_groups() == {}
    await harness.patch_spec("mnist", {"suspend": False})
    await harness.wait_phase("mnist", "Running")
    assert (await harness.list_groups())["mnist"].uid != group.uid


async def test_a_group_that_somebody_deletes_is_made_again(harness: GangHarness) -> None:
    await harness.submit(make_gang())
    await harness.wait_phase("mnist", "Running")
    group = (await harness.list_groups())["mnist"]
    await harness.delete(FULL_POD_GROUPS, "mnist")
    await harness.wait_group("mnist", lambda each: each.uid != group.uid)
    assert (await harness.get_job("mnist")).phase == "Running"


# What is the user's


async def test_pod_group_of_the_user_is_used_unchanged(harness: GangHarness) -> None:
    made = await harness.create(FULL_POD_GROUPS, make_pod_group(minMember=1))
    await harness.submit(make_gang(workers=2))
    await harness.wait_phase("mnist", "Running")
    await harness.patch_spec("mnist", {"worker": {"replicas": 3}})
    await harness.wait_running_with(3)
    await harness.exit_pods("mnist-worker-*")
    await harness.wait_cleaned_up()
    await harness.wait_event("mnist", "Completed")
    left = await harness.client.get(FULL_POD_GROUPS, Key(harness.namespace, "mnist"))
    assert (left.uid, left.spec) == (made.uid, {"minMember": 1})
    assert left.metadata.owner_references == ()
    assert left.metadata.labels == {"made-by": "a-user"}


TWO_DOCUMENTS = """
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: wide-ande-deep
spec:
  cleanPodPolicy: Never
  worker:
    replicas: 2
    template:
      spec:
        restartPolicy: "Never"
        schedulerName: volcano
        containers:
          - name: paddle
            image: registry.baidubce.com/kuizhiqing/demo-wide-and-deep:v1
  ps:
    replicas: 2
    template:
      spec:
        restartPolicy: "Never"
        containers:
          - name: paddle
            image: registry.baidubce.com/kuizhiqing/demo-wide-and-deep:v1
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: wide-ande-deep
spec:
  minMember: 4
"""


async def test_the_two_documents_of_the_user_guide_run(gangs: GangHarness) -> None:
    """In one file, the job first: it names Volcano, so that its user is given the time to bring his own group.

    Of which kubectl may need more than the second or two where the machine stalls: the operator's take longer here.
    """
    async with gangs.run_gang_operator(SlowClock(10)):
        await gangs.apply(TWO_DOCUMENTS)
        await gangs.wait_running_with(4, "wide-ande-deep")
    group = (await gangs.list_groups())["wide-ande-deep"]
    assert (group.spec["minMember"], group.metadata.owner_references) == (4, ())


@pytest.mark.parametrize("first", ["job", "group"])
async def test_the_two_documents_of_the_user_guide_run_in_either_order(harness: GangHarness, first: str) -> None:
    """Where the job is first, its group is ours by the time the user's comes, and asks for the same."""
    job, group = TWO_DOCUMENTS.split("---")
    if first == "group":
        await harness.apply(group)
        await harness.apply(job)
    else:
        await harness.apply(job)
        await harness.wait_group("wide-ande-deep")
        await harness.apply(group)
    await harness.wait_running_with(4, "wide-ande-deep")
    assert (await harness.list_groups())["wide-ande-deep"].spec["minMember"] == 4
    assert len((await harness.list_groups())["wide-ande-deep"].metadata.owner_references) == (first == "job")


async def test_the_example_of_the_deploy_folder_runs(harness: GangHarness) -> None:
    await harness.apply(EXAMPLES / "wide_and_deep_volcano.yaml")
    await harness.wait_running_with(4, "wide-ande-deep-volcano")
    group = (await harness.list_groups())["wide-ande-deep-volcano"]
    assert group.spec == {"minMember": 4, "minResources": {"cpu": "2", "memory": "4Gi"}, "queue": "default"}


async def test_other_scheduler_in_the_template_is_respected(harness: GangHarness) -> None:
    await harness.submit(with_scheduler("default-scheduler", make_job(workers=2)))
    await harness.wait_phase("mnist", "Running")
    told = await harness.wait_single_event("mnist", "OtherScheduler")
    assert told.type == "Warning"
    assert "spec.worker.template.spec.schedulerName is default-scheduler" in told.note
    assert await harness.list_groups() == {}
    for pod in (await harness.list_pods()).values():
        assert pod.spec["schedulerName"] == "default-scheduler"
        assert GROUP_NAME not in pod.metadata.annotations


def with_scheduler(name: str, job: dict[str, Any]) -> dict[str, Any]:
    template = make_template()
    template["spec"]["schedulerName"] = name
    return with_template(job, template)


async def test_without_the_flag_volcano_groups_each_pod_alone(gangs: GangHarness) -> None:
    """As documented: the template passes through as it is."""
    async with gangs.run_operator():
        await gangs.submit(with_scheduler("volcano", make_job(workers=2)))
        await gangs.wait_phase("mnist", "Running")
        assert "mnist" not in await gangs.list_groups()


async def test_a_queue_that_does_not_exist_is_named(harness: GangHarness) -> None:
    """Volcano itself says nothing at all of such a group."""
    await harness.submit(make_gang(schedulingPolicy={"queue": "nowhere"}))
    job = await harness.wait_not_running_for_volcano()
    assert "queue nowhere and Volcano reports no reason; check that the queue exists" in running_message(job)
    async with harness.queue("nowhere", cpu="4"):
        await harness.wait_phase("mnist", "Running")


# Volcano that comes late


@pytest.fixture
async def bare_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    with ControlPlane.start(control_plane_binaries) as control_plane:
        await serve_paddlejobs(control_plane)
        yield control_plane


async def test_missing_volcano_is_reported_and_found_later(
    bare_plane: ControlPlane, volcano_build: VolcanoPrograms
) -> None:
    async with (
        Client(bare_plane.connection()) as client,
        HollowNodes(client, count=2, cpu="4") as nodes,
        ClusterHarness(bare_plane, client, nodes, await bare_plane.create_namespace()).open() as harness,
        harness.run_operator(scheduling="volcano"),
    ):
        await harness.submit(make_gang(), with_scheduler("default-scheduler", make_job("other")))
        job = await harness.wait_not_running("mnist", "PodGroupCRDNotFound")
        assert "install Volcano" in running_message(job)
        await harness.wait_phase("other", "Running")
        assert (await harness.list_pods()).keys() == {"other-worker-0", "other-worker-1"}
        volcano = await asyncio.to_thread(Volcano.start, bare_plane, volcano_build)
        try:
            await harness.wait_phase("mnist", "Running")
        finally:
            await asyncio.to_thread(volcano.close)
        await harness.wait_single_event("mnist", "PodGroupCRDNotFound")
