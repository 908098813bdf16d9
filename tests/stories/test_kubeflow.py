"""Kubeflow's scenarios that fit (peers.md, 2.7), told anew for our fields: KF-C1, C2, C7, C9, C11 and C12.

The others are where their fields are: test_suspend, test_deadlines, test_retries, test_policies and test_volcano.
"""

import asyncio

import pytest

from paddle_operator.kube.objects import Key
from tests.stories.jobs import Job, a_job, a_template, with_template
from tests.stories.stage import WHOLE_JOBS, WHOLE_PODS, ClusterHarness, Whole

POLICIES: list[tuple[str | None, set[str]]] = [
    (None, {"Completed"}),
    ("Always", {"Completed", "Failed"}),
    ("Never", set()),
    ("OnFailure", {"Failed"}),
    ("OnCompletion", {"Completed"}),
]


# KF-C1 and KF-C2
@pytest.mark.parametrize(("code", "phase"), [(0, "Completed"), (1, "Failed")])
async def test_what_is_left_of_a_finished_job_is_what_its_policy_says(
    stage: ClusterHarness, code: int, phase: str
) -> None:
    """Four workers and two servers for each policy, all jobs at once; what is kept no longer runs."""

    async def lives(policy: str | None, cleaned: bool) -> None:
        name = (policy or "unset").lower()
        job = a_job(name, ps=2, workers=4)
        job["spec"] |= {"cleanPodPolicy": policy} if policy else {}
        await stage.submit(job)
        await stage.phase(name, "Running")
        await stage.exits(f"{name}-worker-*", code=code)
        await stage.phase(name, phase)
        await stage.until_pods(lambda pods: is_left(pods, name, 0 if cleaned else 6))

    def is_left(pods: dict[str, Whole], name: str, count: int) -> bool:
        mine = [pod for key, pod in pods.items() if key.startswith(f"{name}-")]
        return len(mine) == count and all(pod.phase in ("Succeeded", "Failed") for pod in mine)

    async with asyncio.TaskGroup() as group:
        for policy, cleaned_in in POLICIES:
            group.create_task(lives(policy, phase in cleaned_in))


# KF-C1: no terminal condition
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "OnCompletion"])
async def test_of_a_job_that_goes_on_nothing_is_cleaned(stage: ClusterHarness, policy: str) -> None:
    await stage.submit(a_job(ps=1, workers=2, cleanPodPolicy=policy))
    await stage.phase("mnist", "Running")
    await stage.exits("mnist-worker-0")
    await stage.until("mnist", lambda job: job.status["worker"].get("succeeded") == 1)
    assert len(await stage.pods()) == 3
    assert (await stage.job("mnist")).phase == "Running"


# KF-C7 without backoffLimit: with Never the job fails, with OnFailure kubelet starts the container again.
CODES = {
    1: "the program failed: its log has the reason",
    2: "a bad command line: trying again would not help",
    42: "the program chose this code: its log has the reason",
    127: "the command was not found",
    137: "it was killed",
    139: "it crashed with a segmentation fault",
    143: "it was told to stop",
}


async def test_an_exit_code_is_explained_in_the_condition_and_in_the_event(stage: ClusterHarness) -> None:
    async def lives(code: int, meaning: str) -> None:
        name = f"code-{code}"
        await stage.submit(a_job(name, workers=2))
        await stage.phase(name, "Running")
        await stage.exits(f"{name}-worker-1", code=code)
        job = await stage.phase(name, "Failed")
        failed = job.condition("Failed")
        told = await stage.told_once(name, "Failed")
        assert failed["message"] == f"{name}-worker-1 exited {code}: {meaning}"
        assert told.note.startswith(f"{failed['message']}; the pods that still run are stopped")
        assert (failed["status"], failed["reason"], told.type) == ("True", "PodFailed", "Warning")

    async with asyncio.TaskGroup() as group:
        for code, meaning in CODES.items():
            group.create_task(lives(code, meaning))


async def test_a_victim_is_not_blamed_for_what_its_peer_did(empty_stage: ClusterHarness) -> None:
    """It died first, and the operator, which would wait 5 s for a cause, is away meanwhile: so no stall is too long."""
    stage = empty_stage
    async with stage.operator():
        await stage.submit(a_job(workers=3))
        await stage.phase("mnist", "Running")
    await stage.exits("mnist-worker-0", code=134)
    await stage.exits("mnist-worker-2", code=139)
    async with stage.operator():
        job = await stage.phase("mnist", "Failed")
    assert job.condition("Failed")["message"].startswith("mnist-worker-2 exited 139")


async def test_with_restart_policy_on_failure_kubelet_starts_the_container_again(stage: ClusterHarness) -> None:
    template = a_template()
    template["spec"]["restartPolicy"] = "OnFailure"
    await stage.submit(with_template(a_job(workers=2), template))
    await stage.phase("mnist", "Running")
    await stage.exits("mnist-worker-0", code=130)
    pods = await stage.until_pods(
        lambda pods: (
            pods["mnist-worker-0"].status["containerStatuses"][0]["restartCount"] == 1
            and pods["mnist-worker-0"].status["containerStatuses"][0]["ready"]
        )
    )
    assert len(pods) == 2
    job = await stage.phase("mnist", "Running")
    assert job.status.get("attempt", 0) == 0


# KF-C9
async def test_scaled_with_a_gap_the_places_are_filled_and_the_surplus_goes(stage: ClusterHarness) -> None:
    await stage.submit(a_job(workers=4))
    await stage.phase("mnist", "Running")
    await stage.delete(WHOLE_PODS, "mnist-worker-1")
    await stage.change("mnist", {"worker": {"replicas": 3}})
    await stage.until(
        "mnist", lambda job: job.phase == "Running" and job.status["worker"]["replicas"] == 3 and settled(job.status)
    )
    assert sorted(await stage.pods()) == [f"mnist-worker-{index}" for index in range(3)]
    assert {each["PADDLE_TRAINERS_NUM"] for each in (await stage.environments("mnist")).values()} == {"3"}


def settled(status: Job) -> bool:
    return bool(status["observedGeneration"] == 2 and status["ready"] == "3/3")


# KF-C11: claims no orphan, releases nothing, adopts nothing while being deleted; a UID is more than a name
async def test_an_orphan_with_all_the_marks_of_a_child_is_not_adopted(stage: ClusterHarness) -> None:
    """It may run what its owner thinks is his; the job says who is in its way, and waits."""
    marks = {
        "labels": {"paddle-res-name": "mnist-worker-0", "paddle-res-type": "worker"},
        "annotations": {"paddle-resource": "worker"},
    }
    orphan = await stage.create(
        WHOLE_PODS,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mnist-worker-0", **marks}, **a_template()},
    )
    await stage.submit(a_job(workers=2))
    await stage.waits("mnist", "NameConflict")
    found = (await stage.pods())["mnist-worker-0"]
    assert (found.uid, found.metadata.owner_references) == (orphan.uid, ())
    assert not found.metadata.deletion_timestamp


async def test_a_child_whose_owner_was_taken_off_is_no_child_any_more(stage: ClusterHarness) -> None:
    await stage.submit(a_job(workers=2))
    await stage.phase("mnist", "Running")
    key = Key(stage.namespace, "mnist-worker-1")
    freed = await stage.client.merge(WHOLE_PODS, key, {"metadata": {"ownerReferences": None}})
    job = await stage.phase("mnist", "Restarting")
    assert job.status["attempt"] == 1
    await stage.waits("mnist", "NameConflict")
    assert (await stage.pods())["mnist-worker-1"].uid == freed.uid
    await stage.delete(WHOLE_PODS, "mnist-worker-1")
    await stage.phase("mnist", "Running")


async def test_a_job_that_is_being_deleted_adopts_and_makes_nothing(stage: ClusterHarness) -> None:
    job = a_job(workers=1)
    job["metadata"]["finalizers"] = ["example.com/held"]
    job["spec"]["worker"]["template"]["spec"]["schedulerName"] = "nobody"
    await stage.submit(job)
    await stage.waits("mnist", "WaitingForAddresses")
    await stage.delete(WHOLE_JOBS, "mnist")
    await stage.delete(WHOLE_PODS, "mnist-worker-0")
    await stage.phase("mnist", "Terminating")
    await stage.cleaned()
    await stage.client.merge(WHOLE_JOBS, Key(stage.namespace, "mnist"), {"metadata": {"finalizers": None}})
    await stage.gone("mnist")


# KF-C12
async def test_labels_and_annotations_of_the_template_are_on_the_pods(stage: ClusterHarness) -> None:
    template = a_template() | {"metadata": {"labels": {"team": "vision"}, "annotations": {"example.com/cost": "7"}}}
    await stage.submit(with_template(a_job(ps=1, workers=1), template))
    await stage.phase("mnist", "Running")
    for name, pod in (await stage.pods()).items():
        role = name.split("-")[1]
        assert (
            pod.metadata.labels.items() >= {"team": "vision", "paddle-res-name": name, "paddle-res-type": role}.items()
        )
        assert pod.metadata.annotations.items() >= {"example.com/cost": "7", "paddle-resource": role}.items()
