"""A job that rests has nothing in the cluster but itself, and one that is resumed starts afresh: KF-P2 and KF-P3."""

import asyncio

from testbed.hollow_script import ignores_sigterm
from tests.stories.jobs import Job, a_job, a_template, with_template
from tests.stories.stage import ClusterHarness, about, conditions, of_job
from tests.support.rights import OPERATOR

RESTS = [("Accepted", "True", "SpecValid"), ("Running", "False", "Suspended"), ("Suspended", "True", "Suspended")]
RUNS_AGAIN = [
    ("Accepted", "True", "SpecValid"),
    ("Running", "True", "AllPodsRunning"),
    ("Suspended", "False", "Resumed"),
]
NOTHING = "spec.suspend is true: no pod exists"
TOLD = {"paddlejobs/status", "events"}  # what the operator writes of a job that rests


# KF-P2
async def test_of_a_job_that_was_created_suspended_nothing_is_ever_made(stage: ClusterHarness) -> None:
    """However often it is looked at: it is changed meanwhile, and another job lives its whole life beside it."""
    async with stage.recorded() as writes:
        await stage.submit(a_job(ps=1, workers=2, intranet="Service", suspend=True))
        await stage.phase("mnist", "Suspended")
        await stage.change("mnist", {"worker": {"replicas": 3}})
        await stage.until("mnist", lambda job: job.status["observedGeneration"] == 2)
        await stage.run_unrelated_job("beside")
        job = await stage.job("mnist")
    assert {write.target for write in about(writes, "mnist").by(OPERATOR)} == TOLD
    assert about(writes, "beside").by(OPERATOR).to("pods")  # so they would have been seen
    assert conditions(job) == RESTS
    assert job.condition("Suspended")["message"] == job.condition("Running")["message"] == NOTHING
    assert "startTime" not in job.status
    assert (await stage.told_once("mnist", "Suspended")).note == NOTHING
    await stage.change("mnist", {"suspend": False})
    job = await stage.runs_in_attempt(0)
    assert job.status["ready"] == "4/4"
    assert job.status["startTime"]


THREE_KINDS = [
    a_job("wide", ps=2, workers=2, intranet="Service"),
    a_job("deep", workers=3),
    a_job("host", ps=1, workers=2, intranet="Host"),
]


# KF-P3
async def test_a_suspended_job_has_nothing_and_stays_so_and_a_resumed_one_starts_afresh(stage: ClusterHarness) -> None:
    """By Service, by address and on the network of the nodes, all at once."""
    async with asyncio.TaskGroup() as group:
        lives = [group.create_task(runs_and_is_suspended(stage, job)) for job in THREE_KINDS]
    before = {job["metadata"]["name"]: life.result() for job, life in zip(THREE_KINDS, lives, strict=True)}
    async with stage.recorded() as writes:
        for name in before:
            await stage.change(name, {"worker": {"template": {"metadata": {"labels": {"changed": "meanwhile"}}}}})
            await stage.until(name, lambda job: job.status["observedGeneration"] == 3)
        await stage.run_unrelated_job("beside")
    for name in before:
        assert {write.target for write in about(writes, name).by(OPERATOR)} <= TOLD
    async with asyncio.TaskGroup() as group:
        for name, uids in before.items():
            group.create_task(is_resumed(stage, name, uids))


async def runs_and_is_suspended(stage: ClusterHarness, manifest: Job) -> set[str]:
    """The UIDs of its pods."""
    name = manifest["metadata"]["name"]
    await stage.submit(manifest)
    ran = await stage.phase(name, "Running")
    pods = of_job(await stage.pods(), name)
    await stage.change(name, {"suspend": True})
    await stage.phase(name, "Suspended")
    await stage.emptied(name)
    job = await stage.until(name, lambda job: job.condition("Suspended")["message"] == NOTHING)
    assert conditions(job) == RESTS
    assert job.status["startTime"] == ran.status["startTime"]
    assert (job.uid, job.status.get("hostPort")) == (ran.uid, ran.status.get("hostPort"))
    assert (job.status["ready"], job.status["attempt"]) == (f"0/{len(pods)}", 1)
    return {pod.uid for pod in pods.values()}


async def is_resumed(stage: ClusterHarness, name: str, uids: set[str]) -> None:
    rested = await stage.job(name)
    await stage.change(name, {"suspend": False})
    job = await stage.runs_in_attempt(1, name)
    assert conditions(job) == RUNS_AGAIN
    assert job.status["startTime"] > rested.status["startTime"]
    assert job.status.get("hostPort") == rested.status.get("hostPort")
    assert job.status.get("restarts", 0) == 0
    pods = of_job(await stage.pods(), name)
    assert len(pods) == len(uids)
    assert not uids & {pod.uid for pod in pods.values()}
    assert {pod.metadata.labels.get("changed") for key, pod in pods.items() if "-worker-" in key} == {"meanwhile"}
    if name == "wide":
        assert sorted(await stage.services()) == sorted(pods)
        barrier = await stage.barrier(name)
        assert barrier
        assert [each.split(".")[0] for each in barrier.data["PADDLE_TRAINERS"].split(",")] == [
            "wide-worker-0",
            "wide-worker-1",
        ]
    assert (await stage.told_once(name, "Resumed")).type == "Normal"


async def test_resumed_while_its_pods_still_leave_a_job_waits_for_them_and_starts_once(stage: ClusterHarness) -> None:
    """Their names are theirs until they are gone; pods deleted one by one, and all in one request."""
    stage.nodes.script("*", ignores_sigterm(), namespace=stage.namespace)
    template = a_template()
    template["spec"]["terminationGracePeriodSeconds"] = 300

    async def lives(name: str, workers: int) -> None:
        await stage.submit(with_template(a_job(name, workers=workers), template))
        await stage.phase(name, "Running")
        before = of_job(await stage.pods(), name)
        await stage.change(name, {"suspend": True})
        await stage.phase(name, "Suspended")
        await stage.until_pods(lambda pods: all(pod.metadata.deletion_timestamp for pod in of_job(pods, name).values()))
        await stage.change(name, {"suspend": False})
        await stage.waits(name, "PodsTerminating")
        left = of_job(await stage.pods(), name)
        assert {key: pod.uid for key, pod in left.items()} == {key: pod.uid for key, pod in before.items()}
        assert (await stage.job(name)).phase == "Pending"
        await stage.exits(f"{name}-worker-*", code=137)
        await stage.runs_in_attempt(1, name)

    async with stage.recorded() as writes:
        await asyncio.gather(lives("two", 2), lives("four", 4))
    made = [each for each in writes.by(OPERATOR).to("pods") if each.verb == "create"]
    assert [each.code for each in made] == [201] * 12


async def test_suspending_a_finished_job_changes_nothing_but_that_it_was_looked_at(stage: ClusterHarness) -> None:
    await stage.submit(a_job(ps=1, workers=1, cleanPodPolicy="Never"))
    await stage.phase("mnist", "Running")
    await stage.exits("mnist-worker-0")
    await stage.until_pods(lambda pods: all(pod.phase in ("Succeeded", "Failed") for pod in pods.values()))
    before, pods = await stage.told_of_its_end("mnist", "Completed"), await stage.pods()
    async with stage.recorded() as writes:
        await stage.change("mnist", {"suspend": True})
        await stage.run_unrelated_job("beside")
    assert [write.target for write in about(writes, "mnist").by(OPERATOR)] == ["paddlejobs/status"]
    assert (await stage.job("mnist")).status == before.status | {"observedGeneration": 2}
    assert {name: pod.uid for name, pod in (await stage.pods()).items()} == {
        name: pod.uid for name, pod in pods.items()
    }
