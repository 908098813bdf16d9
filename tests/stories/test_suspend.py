"""A job that rests has nothing in the cluster but itself, and one that is resumed starts afresh: KF-P2 and KF-P3."""

import asyncio

from testbed.hollow_script import ignores_sigterm
from tests.stories.harness import ClusterHarness, conditions, pods_of_job, writes_for_job
from tests.stories.jobs import Job, make_job, make_template, with_template
from tests.support.service_account import OPERATOR

RESTS = [("Accepted", "True", "SpecValid"), ("Running", "False", "Suspended"), ("Suspended", "True", "Suspended")]
RUNS_AGAIN = [
    ("Accepted", "True", "SpecValid"),
    ("Running", "True", "AllPodsRunning"),
    ("Suspended", "False", "Resumed"),
]
NOTHING = "spec.suspend is true: no pod exists"
TOLD = {"paddlejobs/status", "events"}  # what the operator writes of a job that rests


# KF-P2
async def test_job_created_suspended_has_no_children(harness: ClusterHarness) -> None:
    """However often it is looked at: it is changed meanwhile, and another job lives its whole life beside it."""
    async with harness.record_writes() as writes:
        await harness.submit(make_job(ps=1, workers=2, intranet="Service", suspend=True))
        await harness.wait_phase("mnist", "Suspended")
        await harness.patch_spec("mnist", {"worker": {"replicas": 3}})
        await harness.wait_job("mnist", lambda job: job.status["observedGeneration"] == 2)
        await harness.run_unrelated_job("beside")
        job = await harness.get_job("mnist")
    assert {write.target for write in writes_for_job(writes, "mnist").by(OPERATOR)} == TOLD
    assert writes_for_job(writes, "beside").by(OPERATOR).to("pods")  # so they would have been seen
    assert conditions(job) == RESTS
    assert job.condition("Suspended")["message"] == job.condition("Running")["message"] == NOTHING
    assert "startTime" not in job.status
    assert (await harness.wait_single_event("mnist", "Suspended")).note == NOTHING
    await harness.patch_spec("mnist", {"suspend": False})
    job = await harness.wait_running(0)
    assert job.status["ready"] == "4/4"
    assert job.status["startTime"]


THREE_KINDS = [
    make_job("wide", ps=2, workers=2, intranet="Service"),
    make_job("deep", workers=3),
    make_job("host", ps=1, workers=2, intranet="Host"),
]


# KF-P3
async def test_suspend_deletes_children_and_resume_recreates_them(
    harness: ClusterHarness,
) -> None:
    """By Service, by address and on the network of the nodes, all at once."""
    async with asyncio.TaskGroup() as group:
        lives = [group.create_task(runs_and_is_suspended(harness, job)) for job in THREE_KINDS]
    before = {job["metadata"]["name"]: life.result() for job, life in zip(THREE_KINDS, lives, strict=True)}
    async with harness.record_writes() as writes:
        for name in before:
            await harness.patch_spec(name, {"worker": {"template": {"metadata": {"labels": {"changed": "meanwhile"}}}}})
            await harness.wait_job(name, lambda job: job.status["observedGeneration"] == 3)
        await harness.run_unrelated_job("beside")
    for name in before:
        assert {write.target for write in writes_for_job(writes, name).by(OPERATOR)} <= TOLD
    async with asyncio.TaskGroup() as group:
        for name, uids in before.items():
            group.create_task(is_resumed(harness, name, uids))


async def runs_and_is_suspended(harness: ClusterHarness, manifest: Job) -> set[str]:
    """The UIDs of its pods."""
    name = manifest["metadata"]["name"]
    await harness.submit(manifest)
    ran = await harness.wait_phase(name, "Running")
    pods = pods_of_job(await harness.list_pods(), name)
    await harness.patch_spec(name, {"suspend": True})
    await harness.wait_phase(name, "Suspended")
    await harness.wait_children_deleted(name)
    job = await harness.wait_job(name, lambda job: job.condition("Suspended")["message"] == NOTHING)
    assert conditions(job) == RESTS
    assert job.status["startTime"] == ran.status["startTime"]
    assert (job.uid, job.status.get("hostPort")) == (ran.uid, ran.status.get("hostPort"))
    assert (job.status["ready"], job.status["attempt"]) == (f"0/{len(pods)}", 1)
    return {pod.uid for pod in pods.values()}


async def is_resumed(harness: ClusterHarness, name: str, uids: set[str]) -> None:
    rested = await harness.get_job(name)
    await harness.patch_spec(name, {"suspend": False})
    job = await harness.wait_running(1, name)
    assert conditions(job) == RUNS_AGAIN
    assert job.status["startTime"] > rested.status["startTime"]
    assert job.status.get("hostPort") == rested.status.get("hostPort")
    assert job.status.get("restarts", 0) == 0
    pods = pods_of_job(await harness.list_pods(), name)
    assert len(pods) == len(uids)
    assert not uids & {pod.uid for pod in pods.values()}
    assert {pod.metadata.labels.get("changed") for key, pod in pods.items() if "-worker-" in key} == {"meanwhile"}
    if name == "wide":
        assert sorted(await harness.list_services()) == sorted(pods)
        barrier = await harness.get_barrier(name)
        assert barrier
        assert [each.split(".")[0] for each in barrier.data["PADDLE_TRAINERS"].split(",")] == [
            "wide-worker-0",
            "wide-worker-1",
        ]
    assert (await harness.wait_single_event(name, "Resumed")).type == "Normal"


async def test_resume_waits_for_terminating_pods(harness: ClusterHarness) -> None:
    """Their names are theirs until they are gone; pods deleted one by one, and all in one request."""
    harness.nodes.script("*", ignores_sigterm(), namespace=harness.namespace)
    template = make_template()
    template["spec"]["terminationGracePeriodSeconds"] = 300

    async def lives(name: str, workers: int) -> None:
        await harness.submit(with_template(make_job(name, workers=workers), template))
        await harness.wait_phase(name, "Running")
        before = pods_of_job(await harness.list_pods(), name)
        await harness.patch_spec(name, {"suspend": True})
        await harness.wait_phase(name, "Suspended")
        await harness.wait_pods(
            lambda pods: all(pod.metadata.deletion_timestamp for pod in pods_of_job(pods, name).values())
        )
        await harness.patch_spec(name, {"suspend": False})
        await harness.wait_not_running(name, "PodsTerminating")
        left = pods_of_job(await harness.list_pods(), name)
        assert {key: pod.uid for key, pod in left.items()} == {key: pod.uid for key, pod in before.items()}
        assert (await harness.get_job(name)).phase == "Pending"
        await harness.exit_pods(f"{name}-worker-*", code=137)
        await harness.wait_running(1, name)

    async with harness.record_writes() as writes:
        await asyncio.gather(lives("two", 2), lives("four", 4))
    made = [each for each in writes.by(OPERATOR).to("pods") if each.verb == "create"]
    assert [each.code for each in made] == [201] * 12


async def test_suspending_a_finished_job_changes_only_the_generation(harness: ClusterHarness) -> None:
    await harness.submit(make_job(ps=1, workers=1, cleanPodPolicy="Never"))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-0")
    await harness.wait_pods(lambda pods: all(pod.phase in ("Succeeded", "Failed") for pod in pods.values()))
    before, pods = await harness.wait_finished_event("mnist", "Completed"), await harness.list_pods()
    async with harness.record_writes() as writes:
        await harness.patch_spec("mnist", {"suspend": True})
        await harness.run_unrelated_job("beside")
    assert [write.target for write in writes_for_job(writes, "mnist").by(OPERATOR)] == ["paddlejobs/status"]
    assert (await harness.get_job("mnist")).status == before.status | {"observedGeneration": 2}
    assert {name: pod.uid for name, pod in (await harness.list_pods()).items()} == {
        name: pod.uid for name, pod in pods.items()
    }
