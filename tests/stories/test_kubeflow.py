"""Kubeflow's scenarios that fit (peers.md, 2.7), told anew for our fields: KF-C1, C2, C7, C9, C11 and C12.

The others are where their fields are: test_suspend, test_deadlines, test_retries, test_policies and test_volcano.
"""

import asyncio

import pytest

from paddle_operator.kube.objects import Key
from tests.stories.harness import FULL_JOBS, FULL_PODS, ClusterHarness, FullObject, on_both_planes, on_embedded_plane
from tests.stories.jobs import Job, make_job, make_template, with_template

pytestmark = on_embedded_plane

POLICIES: list[tuple[str | None, set[str]]] = [
    (None, {"Completed"}),
    ("Always", {"Completed", "Failed"}),
    ("Never", set()),
    ("OnFailure", {"Failed"}),
    ("OnCompletion", {"Completed"}),
]


# KF-C1 and KF-C2
@on_both_planes
@pytest.mark.parametrize(("code", "phase"), [(0, "Completed"), (1, "Failed")])
async def test_what_is_left_of_a_finished_job_is_what_its_policy_says(
    harness: ClusterHarness, code: int, phase: str
) -> None:
    """Four workers and two servers for each policy, all jobs at once; what is kept no longer runs."""

    async def lives(policy: str | None, cleaned: bool) -> None:
        name = (policy or "unset").lower()
        job = make_job(name, ps=2, workers=4)
        job["spec"] |= {"cleanPodPolicy": policy} if policy else {}
        await harness.submit(job)
        await harness.wait_phase(name, "Running")
        await harness.exit_pods(f"{name}-worker-*", code=code)
        await harness.wait_phase(name, phase)
        await harness.wait_pods(lambda pods: is_left(pods, name, 0 if cleaned else 6))

    def is_left(pods: dict[str, FullObject], name: str, count: int) -> bool:
        mine = [pod for key, pod in pods.items() if key.startswith(f"{name}-")]
        return len(mine) == count and all(pod.phase in ("Succeeded", "Failed") for pod in mine)

    async with asyncio.TaskGroup() as group:
        for policy, cleaned_in in POLICIES:
            group.create_task(lives(policy, phase in cleaned_in))


# KF-C1: no terminal condition
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "OnCompletion"])
async def test_of_a_job_that_goes_on_nothing_is_cleaned(harness: ClusterHarness, policy: str) -> None:
    await harness.submit(make_job(ps=1, workers=2, cleanPodPolicy=policy))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-0")
    await harness.wait_job("mnist", lambda job: job.status["worker"].get("succeeded") == 1)
    assert len(await harness.list_pods()) == 3
    assert (await harness.get_job("mnist")).phase == "Running"


# KF-C7 without backoffLimit: with Never the job fails, with OnFailure kubelet starts the container again.
CODES = {
    1: "the program failed: its log has the reason",
    2: "a bad command line: retrying would not help",
    42: "its log has the reason",
    127: "the command was not found",
    137: "it was killed",
    139: "it crashed with a segmentation fault",
    143: "it was terminated by SIGTERM",
}


async def test_exit_code_is_explained_in_condition_and_event(harness: ClusterHarness) -> None:
    async def lives(code: int, meaning: str) -> None:
        name = f"code-{code}"
        await harness.submit(make_job(name, workers=2))
        await harness.wait_phase(name, "Running")
        await harness.exit_pods(f"{name}-worker-1", code=code)
        job = await harness.wait_phase(name, "Failed")
        failed = job.condition("Failed")
        told = await harness.wait_single_event(name, "Failed")
        assert failed["message"] == f"{name}-worker-1 exited {code}: {meaning}"
        assert told.note.startswith(f"{failed['message']}; stopping the running pods")
        assert (failed["status"], failed["reason"], told.type) == ("True", "PodFailed", "Warning")

    async with asyncio.TaskGroup() as group:
        for code, meaning in CODES.items():
            group.create_task(lives(code, meaning))


async def test_a_victim_is_not_blamed_for_what_its_peer_did(bare_harness: ClusterHarness) -> None:
    """It died first, and the operator, which would wait 5 s for a cause, is away meanwhile: so no stall is too long."""
    harness = bare_harness
    async with harness.run_operator():
        await harness.submit(make_job(workers=3))
        await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-0", code=134)
    await harness.exit_pods("mnist-worker-2", code=139)
    async with harness.run_operator():
        job = await harness.wait_phase("mnist", "Failed")
    assert job.condition("Failed")["message"].startswith("mnist-worker-2 exited 139")


async def test_on_failure_lets_kubelet_restart_the_container(harness: ClusterHarness) -> None:
    template = make_template()
    template["spec"]["restartPolicy"] = "OnFailure"
    await harness.submit(with_template(make_job(workers=2), template))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-0", code=130)
    pods = await harness.wait_pods(
        lambda pods: (
            pods["mnist-worker-0"].status["containerStatuses"][0]["restartCount"] == 1
            and pods["mnist-worker-0"].status["containerStatuses"][0]["ready"]
        )
    )
    assert len(pods) == 2
    job = await harness.wait_phase("mnist", "Running")
    assert job.status.get("attempt", 0) == 0


# KF-C9
async def test_scaling_fills_missing_indexes_first(harness: ClusterHarness) -> None:
    await harness.submit(make_job(workers=4))
    await harness.wait_phase("mnist", "Running")
    await harness.delete(FULL_PODS, "mnist-worker-1")
    await harness.patch_spec("mnist", {"worker": {"replicas": 3}})
    await harness.wait_job(
        "mnist",
        lambda job: job.phase == "Running" and job.status["worker"]["replicas"] == 3 and run_ready_tasks(job.status),
    )
    assert sorted(await harness.list_pods()) == [f"mnist-worker-{index}" for index in range(3)]
    assert {each["PADDLE_TRAINERS_NUM"] for each in (await harness.get_environments("mnist")).values()} == {"3"}


def run_ready_tasks(status: Job) -> bool:
    return bool(status["observedGeneration"] == 2 and status["ready"] == "3/3")


# KF-C11: claims no orphan, releases nothing, adopts nothing while being deleted; a UID is more than a name
async def test_an_orphan_with_all_the_marks_of_a_child_is_not_adopted(harness: ClusterHarness) -> None:
    """It may run what its owner thinks is his; the job says who is in its way, and waits."""
    marks = {
        "labels": {"paddle-res-name": "mnist-worker-0", "paddle-res-type": "worker"},
        "annotations": {"paddle-resource": "worker"},
    }
    orphan = await harness.create(
        FULL_PODS,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mnist-worker-0", **marks}, **make_template()},
    )
    await harness.submit(make_job(workers=2))
    await harness.wait_not_running("mnist", "NameConflict")
    found = (await harness.list_pods())["mnist-worker-0"]
    assert (found.uid, found.metadata.owner_references) == (orphan.uid, ())
    assert not found.metadata.deletion_timestamp


async def test_a_child_whose_owner_was_taken_off_is_no_child_any_more(harness: ClusterHarness) -> None:
    await harness.submit(make_job(workers=2))
    await harness.wait_phase("mnist", "Running")
    key = Key(harness.namespace, "mnist-worker-1")
    freed = await harness.client.merge(FULL_PODS, key, {"metadata": {"ownerReferences": None}})
    job = await harness.wait_phase("mnist", "Restarting")
    assert job.status["attempt"] == 1
    await harness.wait_not_running("mnist", "NameConflict")
    assert (await harness.list_pods())["mnist-worker-1"].uid == freed.uid
    await harness.delete(FULL_PODS, "mnist-worker-1")
    await harness.wait_phase("mnist", "Running")


async def test_a_job_that_is_being_deleted_adopts_and_makes_nothing(harness: ClusterHarness) -> None:
    job = make_job(workers=1)
    job["metadata"]["finalizers"] = ["example.com/held"]
    job["spec"]["worker"]["template"]["spec"]["schedulerName"] = "nobody"
    await harness.submit(job)
    await harness.wait_not_running("mnist", "WaitingForAddresses")
    await harness.delete(FULL_JOBS, "mnist")
    await harness.delete(FULL_PODS, "mnist-worker-0")
    await harness.wait_phase("mnist", "Terminating")
    await harness.wait_cleaned_up()
    await harness.client.merge(FULL_JOBS, Key(harness.namespace, "mnist"), {"metadata": {"finalizers": None}})
    await harness.wait_deleted("mnist")


# KF-C12
async def test_labels_and_annotations_of_the_template_are_on_the_pods(harness: ClusterHarness) -> None:
    template = make_template() | {"metadata": {"labels": {"team": "vision"}, "annotations": {"example.com/cost": "7"}}}
    await harness.submit(with_template(make_job(ps=1, workers=1), template))
    await harness.wait_phase("mnist", "Running")
    for name, pod in (await harness.list_pods()).items():
        role = name.split("-")[1]
        assert (
            pod.metadata.labels.items() >= {"team": "vision", "paddle-res-name": name, "paddle-res-type": role}.items()
        )
        assert pod.metadata.annotations.items() >= {"example.com/cost": "7", "paddle-resource": role}.items()
