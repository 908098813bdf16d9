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
from testbed.volcano import PREEMPTING, Volcano
from testbed.volcano_assets import VolcanoPrograms
from tests.stories.gangs import WHOLE_GROUPS, GangStage, a_gang, a_group, running_message, serve_paddlejobs
from tests.stories.jobs import a_job, a_template, with_template
from tests.stories.stage import WHOLE_PODS, ClusterHarness

GROUP_NAME = "scheduling.k8s.io/group-name"
EXAMPLES = Path(__file__).parents[2] / "deploy/examples"


@pytest.fixture
async def stage(gangs: GangStage) -> AsyncIterator[GangStage]:
    async with gangs.gang_operator():
        yield gangs


# All or none


async def test_a_gang_waits_without_pods_until_there_are_nodes_for_all_of_it(stage: GangStage) -> None:
    await stage.submit(a_gang(ps=1, workers=4))
    job = await stage.waits_for_volcano()
    assert job.condition("Running")["reason"] == "WaitingForPodGroup"
    assert "into queue default" in running_message(job)
    assert await stage.pods() == {}
    async with stage.more_nodes(1):
        await stage.runs_with(5)
        for pod in (await stage.pods()).values():
            assert pod.spec["schedulerName"] == "volcano"
            assert pod.metadata.annotations[GROUP_NAME] == "mnist"
        group = (await stage.groups())["mnist"]
        assert (group.spec["minMember"], group.spec["minResources"]) == (5, {"cpu": "10"})
        assert [(owner.kind, owner.name) for owner in group.metadata.owner_references] == [("PaddleJob", "mnist")]


@pytest.mark.parametrize("policy", [{}, {"minResources": {"cpu": "1"}}], ids=["as pods ask", "both let in"])
async def test_two_gangs_that_do_not_fit_together_run_one_after_the_other(
    stage: GangStage, policy: dict[str, Any]
) -> None:
    """With less than the pods ask for as minResources Volcano lets both in, and the pods of both wait for nodes."""
    gangs = ("one", "two")
    await stage.submit(*(a_gang(name, workers=3, schedulingPolicy=policy) for name in gangs))
    await stage.until_pods(lambda pods: sum(pod.phase == "Running" for pod in pods.values()) == 3)
    (first,) = stage.on_nodes()
    (second,) = {*gangs} - {first}
    await stage.phase(first, "Running")
    while_it_ran = len(stage.history)  # from then on its pods leave one by one, and others may come in their place
    await stage.exits(f"{first}-worker-*")
    await stage.phase(first, "Completed")
    await stage.phase(second, "Running")
    await stage.exits(f"{second}-worker-*")
    await stage.phase(second, "Completed")
    assert all(len(jobs) < 2 for jobs in stage.history[:while_it_ran])


async def test_a_queue_that_is_full_holds_a_job_back_until_another_is_done(stage: GangStage) -> None:
    async with stage.queue("small", cpu="4"):
        policy = {"queue": "small"}
        await stage.submit(a_gang("one", schedulingPolicy=policy))
        await stage.phase("one", "Running")
        await stage.submit(a_gang("two", schedulingPolicy=policy))
        waiting = await stage.waits_for_volcano("two")
        assert "into queue small" in running_message(waiting)
        await stage.submit(a_gang("elsewhere"))  # the other half of the cluster is the default queue's
        await stage.phase("elsewhere", "Running")
        await stage.until_pods(lambda _: stage.on_nodes().keys() == {"one", "elsewhere"})
        await stage.exits("one-worker-*")
        await stage.phase("two", "Running")


@pytest.mark.timeout(600)
async def test_fifty_gangs_at_once_on_a_cluster_for_four_are_all_completed(stage: GangStage) -> None:
    stage.nodes.script("many-*", exits(0, after=0.2), namespace=stage.namespace)
    names = [f"many-{number}" for number in range(50)]
    await stage.submit(*(a_gang(name, cpu="1") for name in names))
    for name in names:
        await stage.phase(name, "Completed", within_seconds=240)
    assert max(jobs.total() for jobs in stage.history) <= 8
    for name in names:
        await stage.group_gone(name)


# What changes


async def test_a_gang_is_scaled_up_and_down_and_its_group_follows(stage: GangStage) -> None:
    await stage.submit(a_gang(workers=2))
    await stage.runs_with(2)
    group = (await stage.groups())["mnist"]
    for workers in (4, 1):
        await stage.change("mnist", {"worker": {"replicas": workers}})
        await stage.runs_with(workers)
        changed = await stage.group("mnist", lambda each, many=workers: each.spec["minMember"] == many)  # type: ignore[misc]
        assert changed.spec["minResources"] == {"cpu": str(2 * workers)}
        assert changed.uid == group.uid


async def test_a_gang_that_is_scaled_beyond_the_cluster_runs_again_when_it_is_scaled_back(stage: GangStage) -> None:
    await stage.submit(a_gang(workers=2))
    await stage.runs_with(2)
    await stage.change("mnist", {"worker": {"replicas": 5}})
    await stage.until("mnist", lambda job: job.phase != "Running")
    await stage.group("mnist", lambda each: each.spec["minMember"] == 5)
    await stage.change("mnist", {"worker": {"replicas": 3}})
    await stage.runs_with(3)


async def test_a_preempted_gang_comes_back_when_the_other_is_done(stage: GangStage) -> None:
    """And nothing of it is charged: with backoffLimit 0 a failure of its own would have ended it."""
    await stage.make_priority("urgent", 1000)
    async with stage.volcano.configured(PREEMPTING):
        await stage.submit(a_gang("low", workers=4, backoffLimit=0))
        await stage.phase("low", "Running")
        await stage.submit(a_gang("high", workers=3, schedulingPolicy={"priorityClass": "urgent"}))
        await stage.phase("high", "Running")
        await stage.until("low", lambda job: job.phase not in ("Running", "Failed"))
        await stage.exits("high-worker-*")
        await stage.phase("high", "Completed")
        low = await stage.phase("low", "Running")
        assert low.status.get("restarts", 0) == 0


async def test_a_gang_that_loses_a_pod_before_any_has_run_starts_after_all(gangs: GangStage) -> None:
    """Volcano takes its group for one that has to queue again, and finds the place taken: by the gang's own pods."""
    gangs.nodes.script("mnist-*", never_starts(), namespace=gangs.namespace)
    async with gangs.gang_operator():
        await gangs.submit(a_gang(workers=4))
        await gangs.until_pods(lambda pods: sum(bool(pod.spec.get("nodeName")) for pod in pods.values()) == 4)
    await gangs.delete(WHOLE_PODS, "mnist-worker-1")
    await gangs.group("mnist", lambda each: each.phase == "Pending")
    gangs.nodes.script("mnist-*", starts(after=0.0), namespace=gangs.namespace)
    async with gangs.gang_operator():
        await gangs.runs_with(4)
        await gangs.group("mnist", lambda each: each.spec["minResources"] == {"cpu": "8"})


async def test_a_group_is_kept_across_restarts_and_removed_at_the_end(stage: GangStage) -> None:
    await stage.submit(a_gang(workers=2, backoffLimit=2))
    await stage.phase("mnist", "Running")
    group = (await stage.groups())["mnist"]
    await stage.delete(WHOLE_PODS, "mnist-worker-1")
    await stage.runs_in_attempt(1)
    assert (await stage.groups())["mnist"].uid == group.uid
    await stage.exits("mnist-worker-*")
    await stage.phase("mnist", "Completed")
    await stage.group_gone()


async def test_a_single_pod_is_made_again_in_a_full_cluster_while_its_gang_runs(stage: GangStage) -> None:
    """The group is Unknown meanwhile, which holds up neither the pod nor what is told of the job."""
    await stage.submit(a_gang(ps=1, workers=3, withGloo=0))
    await stage.runs_with(4)
    group, lost = (await stage.groups())["mnist"], (await stage.pods())["mnist-worker-2"]
    await stage.delete(WHOLE_PODS, "mnist-worker-2")
    await stage.until_pods(lambda pods: "mnist-worker-2" in pods and pods["mnist-worker-2"].uid != lost.uid)
    job = await stage.runs_with(4)
    assert job.status.get("attempt", 0) == 0
    running = await stage.group("mnist", lambda each: each.phase == "Running")
    assert running.uid == group.uid


async def test_an_operator_that_comes_later_goes_on_with_a_gang_that_waits(gangs: GangStage) -> None:
    async with gangs.gang_operator():
        await gangs.submit(a_gang(workers=5))
        await gangs.waits_for_volcano()
    async with gangs.more_nodes(1):
        await gangs.group("mnist", lambda each: each.phase == "Inqueue")
        async with gangs.gang_operator():
            await gangs.runs_with(5)


async def test_a_suspended_job_has_no_group_and_a_resumed_one_a_new_one(stage: GangStage) -> None:
    await stage.submit(a_gang("other", suspend=True), a_gang(workers=4))
    await stage.phase("mnist", "Running")
    group = (await stage.groups())["mnist"]
    await stage.change("mnist", {"suspend": True})
    await stage.group_gone()
    await stage.until_pods(lambda pods: not pods)
    await stage.phase("other", "Suspended")
    assert await stage.groups() == {}
    await stage.change("mnist", {"suspend": False})
    await stage.phase("mnist", "Running")
    assert (await stage.groups())["mnist"].uid != group.uid


async def test_a_group_that_somebody_deletes_is_made_again(stage: GangStage) -> None:
    await stage.submit(a_gang())
    await stage.phase("mnist", "Running")
    group = (await stage.groups())["mnist"]
    await stage.delete(WHOLE_GROUPS, "mnist")
    await stage.group("mnist", lambda each: each.uid != group.uid)
    assert (await stage.job("mnist")).phase == "Running"


# What is the user's


async def test_a_group_that_the_user_made_is_used_and_neither_changed_nor_deleted(stage: GangStage) -> None:
    made = await stage.create(WHOLE_GROUPS, a_group(minMember=1))
    await stage.submit(a_gang(workers=2))
    await stage.phase("mnist", "Running")
    await stage.change("mnist", {"worker": {"replicas": 3}})
    await stage.runs_with(3)
    await stage.exits("mnist-worker-*")
    await stage.cleaned()
    await stage.told("mnist", "Completed")
    left = await stage.client.get(WHOLE_GROUPS, Key(stage.namespace, "mnist"))
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


async def test_the_two_documents_of_the_user_guide_run(gangs: GangStage) -> None:
    """In one file, the job first: it names Volcano, so that its user is given the time to bring his own group.

    Of which kubectl may need more than the second or two where the machine stalls: the operator's take longer here.
    """
    async with gangs.gang_operator(SlowClock(10)):
        await gangs.apply(TWO_DOCUMENTS)
        await gangs.runs_with(4, "wide-ande-deep")
    group = (await gangs.groups())["wide-ande-deep"]
    assert (group.spec["minMember"], group.metadata.owner_references) == (4, ())


@pytest.mark.parametrize("first", ["job", "group"])
async def test_the_two_documents_of_the_user_guide_run_in_either_order(stage: GangStage, first: str) -> None:
    """Where the job is first, its group is ours by the time the user's comes, and asks for the same."""
    job, group = TWO_DOCUMENTS.split("---")
    if first == "group":
        await stage.apply(group)
        await stage.apply(job)
    else:
        await stage.apply(job)
        await stage.group("wide-ande-deep")
        await stage.apply(group)
    await stage.runs_with(4, "wide-ande-deep")
    assert (await stage.groups())["wide-ande-deep"].spec["minMember"] == 4
    assert len((await stage.groups())["wide-ande-deep"].metadata.owner_references) == (first == "job")


async def test_the_example_of_the_deploy_folder_runs(stage: GangStage) -> None:
    await stage.apply(EXAMPLES / "wide_and_deep_volcano.yaml")
    await stage.runs_with(4, "wide-ande-deep-volcano")
    group = (await stage.groups())["wide-ande-deep-volcano"]
    assert group.spec == {"minMember": 4, "minResources": {"cpu": "2", "memory": "4Gi"}, "queue": "default"}


async def test_a_job_whose_template_names_another_scheduler_is_left_to_it(stage: GangStage) -> None:
    await stage.submit(with_scheduler("default-scheduler", a_job(workers=2)))
    await stage.phase("mnist", "Running")
    told = await stage.told_once("mnist", "OtherScheduler")
    assert told.type == "Warning"
    assert "spec.worker.template.spec.schedulerName is default-scheduler" in told.note
    assert await stage.groups() == {}
    for pod in (await stage.pods()).values():
        assert pod.spec["schedulerName"] == "default-scheduler"
        assert GROUP_NAME not in pod.metadata.annotations


def with_scheduler(name: str, job: dict[str, Any]) -> dict[str, Any]:
    template = a_template()
    template["spec"]["schedulerName"] = name
    return with_template(job, template)


async def test_without_the_flag_volcano_makes_a_group_for_each_pod_that_names_it(gangs: GangStage) -> None:
    """As documented: the template passes through as it is."""
    async with gangs.operator():
        await gangs.submit(with_scheduler("volcano", a_job(workers=2)))
        await gangs.phase("mnist", "Running")
        assert "mnist" not in await gangs.groups()


async def test_a_queue_that_does_not_exist_is_named(stage: GangStage) -> None:
    """Volcano itself says nothing at all of such a group."""
    await stage.submit(a_gang(schedulingPolicy={"queue": "nowhere"}))
    job = await stage.waits_for_volcano()
    assert "queue nowhere, and says nothing of it: is there such a queue" in running_message(job)
    async with stage.queue("nowhere", cpu="4"):
        await stage.phase("mnist", "Running")


# Volcano that comes late


@pytest.fixture
async def bare_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    with ControlPlane.start(control_plane_binaries) as control_plane:
        await serve_paddlejobs(control_plane)
        yield control_plane


async def test_a_missing_volcano_is_told_others_go_on_and_it_is_found_when_it_comes(
    bare_plane: ControlPlane, volcano_built: VolcanoPrograms
) -> None:
    async with (
        Client(bare_plane.connection()) as client,
        HollowNodes(client, count=2, cpu="4") as nodes,
        ClusterHarness(bare_plane, client, nodes, await bare_plane.make_namespace()).open() as stage,
        stage.operator(scheduling="volcano"),
    ):
        await stage.submit(a_gang(), with_scheduler("default-scheduler", a_job("other")))
        job = await stage.waits("mnist", "PodGroupCRDNotFound")
        assert "install Volcano" in running_message(job)
        await stage.phase("other", "Running")
        assert (await stage.pods()).keys() == {"other-worker-0", "other-worker-1"}
        volcano = await asyncio.to_thread(Volcano.start, bare_plane, volcano_built)
        try:
            await stage.phase("mnist", "Running")
        finally:
            await asyncio.to_thread(volcano.end)
        await stage.told_once("mnist", "PodGroupCRDNotFound")
