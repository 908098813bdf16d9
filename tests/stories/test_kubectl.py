"""What people do with kubectl, and what they see."""

import re

import pytest

from paddle_operator.kube.objects import Key
from tests.stories.jobs import a_job
from tests.stories.stage import WHOLE_CONFIG_MAPS, WHOLE_PODS, ClusterHarness, Whole

COLLECTIVE = a_job(workers=2)


def workers(pods: dict[str, Whole]) -> list[str]:
    return sorted(pods)


async def numbers_told(stage: ClusterHarness) -> set[tuple[str, str]]:
    """How many ranks each worker was told of, in the two ways in which Paddle asks."""
    seen = (await stage.environments("mnist")).values()
    return {(each["PADDLE_TRAINERS_NUM"], str(len(each["PADDLE_TRAINERS"].split(",")))) for each in seen}


async def test_get_answers_whether_it_runs_how_many_of_how_many_and_since_when(stage: ClusterHarness) -> None:
    await stage.submit(a_job(ps=1, workers=2))
    await stage.phase("mnist", "Running")
    header, row = (await stage.kubectl("get", "pdj")).splitlines()
    assert header.split() == ["NAME", "STATUS", "MODE", "READY", "STARTED", "AGE"]
    assert re.fullmatch(r"mnist +Running +PS +3/3 +\d+s +\d+s", row)
    assert "Running" in await stage.kubectl("get", "paddlejobs", "mnist", "-o", "wide")


async def test_describe_shows_conditions_and_events(stage: ClusterHarness) -> None:
    await stage.submit(COLLECTIVE)
    await stage.phase("mnist", "Running")
    await stage.told("mnist", "AllPodsRunning")
    text = await stage.kubectl("describe", "pdj", "mnist")
    conditions, events = text.split("\nEvents:")
    assert re.search(r"Reason: +AllPodsRunning\n +Status: +True\n +Type: +Running", conditions)
    assert re.search(r"Normal +AllPodsRunning +.*paddle-operator +all pods run", events)


async def test_scale_up_a_running_job(stage: ClusterHarness) -> None:
    """All pods are replaced: containers read the number of ranks and their addresses once, at the start."""
    await stage.submit(COLLECTIVE)
    await stage.phase("mnist", "Running")
    await stage.kubectl("scale", "pdj/mnist", "--replicas=3")
    await stage.runs_in_attempt(1)
    assert workers(await stage.pods()) == ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"]
    assert await numbers_told(stage) == {("3", "3")}
    told = await stage.told_once("mnist", "Restarting")
    assert told.note.startswith("replicas changed from worker=2 to worker=3")


async def test_scale_down_a_running_job(stage: ClusterHarness) -> None:
    await stage.submit(a_job(workers=3))
    await stage.phase("mnist", "Running")
    await stage.kubectl("scale", "pdj/mnist", "--replicas=2")
    await stage.runs_in_attempt(1)
    assert workers(await stage.pods()) == ["mnist-worker-0", "mnist-worker-1"]
    assert await numbers_told(stage) == {("2", "2")}


@pytest.mark.parametrize("replicas", [1, 3])
async def test_scale_before_it_runs(stage: ClusterHarness, replicas: int) -> None:
    """Nothing has started yet, so nothing starts again."""
    await stage.cordon()
    await stage.submit(COLLECTIVE)
    await stage.waits("mnist", "Unschedulable")
    before = await stage.pods()
    await stage.kubectl("scale", "pdj/mnist", f"--replicas={replicas}")
    await stage.until_pods(lambda pods: len(pods) == replicas)
    await stage.kubectl("uncordon", *(str(node) for node in stage.nodes))
    await stage.runs_in_attempt(0)
    pods = await stage.pods()
    assert workers(pods) == [f"mnist-worker-{index}" for index in range(replicas)]
    assert all(pods[name].uid == pod.uid for name, pod in before.items() if name in pods)
    assert await numbers_told(stage) == {(str(replicas), str(replicas))}


async def test_an_autoscaler_can_read_how_many_workers_there_are_and_which(stage: ClusterHarness) -> None:
    await stage.submit(a_job(ps=1, workers=2))
    await stage.phase("mnist", "Running")
    path = f"/apis/batch.paddlepaddle.org/v1/namespaces/{stage.namespace}/paddlejobs/mnist/scale"
    scale = await stage.kubectl("get", f"--raw={path}")
    assert '"spec":{"replicas":2}' in scale
    assert '"replicas":2,"selector":"' in scale
    selector = (await stage.job("mnist")).status["selector"]
    chosen = await stage.kubectl("get", "pods", f"--selector={selector}", "-o", "name")
    assert chosen.split() == ["pod/mnist-worker-0", "pod/mnist-worker-1"]


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_delete_takes_the_children_along(stage: ClusterHarness, cascade: str) -> None:
    await stage.submit(a_job(ps=1, workers=1, intranet="Service"))
    await stage.phase("mnist", "Running")
    await stage.kubectl("delete", "pdj/mnist", f"--cascade={cascade}", "--timeout=120s")
    await stage.cleaned()
    await stage.gone("mnist")


async def test_delete_can_leave_the_children_behind(stage: ClusterHarness) -> None:
    await stage.submit(COLLECTIVE)
    await stage.phase("mnist", "Running")
    before = await stage.pods()
    await stage.kubectl("delete", "pdj/mnist", "--cascade=orphan", "--timeout=120s")
    await stage.gone("mnist")
    left = await stage.pods()
    assert {name: pod.uid for name, pod in left.items()} == {name: pod.uid for name, pod in before.items()}
    assert not any(pod.metadata.owner_references for pod in left.values())


async def test_delete_and_apply_again_at_once(stage: ClusterHarness) -> None:
    """What is left of the old job is neither taken for the new one's nor read by its containers."""
    await stage.submit(a_job(ps=1, workers=2))
    old = await stage.phase("mnist", "Running")
    before = {pod.uid for pod in (await stage.pods()).values()}
    await stage.kubectl("delete", "pdj/mnist")
    await stage.submit(a_job(ps=1, workers=2))
    new = await stage.until("mnist", lambda job: job.uid != old.uid and job.phase == "Running")
    pods, barrier = await stage.pods(), await stage.barrier("mnist")
    assert barrier
    assert barrier.metadata.owner_uid == new.uid
    assert len(pods) == 3
    assert not before & {pod.uid for pod in pods.values()}
    assert {each["uid"] for each in new.status["worker"]["refs"]} <= {pod.uid for pod in pods.values()}
    seen = await stage.environments("mnist")
    addresses = [pods[f"mnist-worker-{index}"].status["podIP"] for index in range(2)]
    assert seen["mnist-ps-0"]["PADDLE_TRAINERS"] == ",".join(addresses)


async def test_a_finished_job_applied_anew_after_its_deletion_does_not_read_the_old_addresses(
    stage: ClusterHarness,
) -> None:
    """The pods' names are free at once, but the ConfigMap is there until the garbage collector comes: here, late."""
    await stage.submit(COLLECTIVE)
    await stage.phase("mnist", "Running")
    await stage.exits("mnist-worker-*")
    old = await stage.phase("mnist", "Completed")
    await stage.cleaned()
    barrier = Key(stage.namespace, "mnist")
    await stage.client.merge(WHOLE_CONFIG_MAPS, barrier, {"metadata": {"finalizers": ["example.com/late"]}})
    await stage.kubectl("delete", "pdj/mnist")
    await stage.submit(COLLECTIVE)
    await stage.waits("mnist", "NameConflict")
    assert not await stage.pods()
    await stage.client.merge(WHOLE_CONFIG_MAPS, barrier, {"metadata": {"finalizers": None}})
    await stage.until("mnist", lambda job: job.uid != old.uid and job.phase == "Running")
    pods = await stage.pods()
    addresses = [pods[f"mnist-worker-{index}"].status["podIP"] for index in range(2)]
    assert (await stage.environments("mnist"))["mnist-worker-0"]["PADDLE_TRAINERS"] == ",".join(addresses)


async def test_a_finished_job_can_be_edited_and_stays_finished(stage: ClusterHarness) -> None:
    await stage.submit(COLLECTIVE)
    await stage.phase("mnist", "Running")
    await stage.exits("mnist-worker-*")
    await stage.phase("mnist", "Completed")
    await stage.cleaned()
    await stage.kubectl("scale", "pdj/mnist", "--replicas=4")
    job = await stage.until("mnist", lambda job: job.status["observedGeneration"] == job.metadata.generation)
    await stage.submit(a_job("other", workers=1))
    await stage.phase("other", "Running")
    assert workers(await stage.pods()) == ["other-worker-0"]
    assert (job.phase, job.metadata.generation) == ("Completed", 2)


async def test_a_pod_deleted_by_hand_ends_the_attempt_of_all(stage: ClusterHarness) -> None:
    await stage.submit(a_job(ps=1, workers=2))
    await stage.phase("mnist", "Running")
    before = {pod.uid for pod in (await stage.pods()).values()}
    await stage.kubectl("delete", "pod/mnist-worker-1", "--wait=false")
    await stage.runs_in_attempt(1)
    pods = await stage.pods()
    assert len(pods) == 3
    assert not before & {pod.uid for pod in pods.values()}
    note = (await stage.told_once("mnist", "Restarting")).note
    assert note == "mnist-worker-1 vanished: all pods are replaced, so that all ranks agree"
    assert len({each["PADDLE_TRAINER_ENDPOINTS"] for each in (await stage.environments("mnist")).values()}) == 1


async def test_the_config_map_deleted_by_hand_is_made_again_with_the_same_addresses(stage: ClusterHarness) -> None:
    await stage.submit(COLLECTIVE)
    await stage.phase("mnist", "Running")
    barrier = await stage.barrier("mnist")
    pods = await stage.pods()
    assert barrier
    await stage.kubectl("delete", "configmap/mnist")
    again = await stage.opened("mnist", lambda each: each.uid != barrier.uid)
    assert again.data == barrier.data
    await stage.run_unrelated_job("other")
    assert {name: pod.uid for name, pod in pods.items()} == {
        name: pod.uid for name, pod in (await stage.pods()).items()
    }


async def test_a_pod_deleted_before_the_others_have_addresses_is_just_made_again(stage: ClusterHarness) -> None:
    await stage.cordon()
    await stage.submit(COLLECTIVE)
    await stage.waits("mnist", "Unschedulable")
    old = (await stage.pods())["mnist-worker-0"].uid
    await stage.delete(WHOLE_PODS, "mnist-worker-0")
    await stage.until_pods(lambda pods: "mnist-worker-0" in pods and pods["mnist-worker-0"].uid != old)
    await stage.kubectl("uncordon", *(str(node) for node in stage.nodes))
    await stage.runs_in_attempt(0)
