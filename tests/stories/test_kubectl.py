"""What people do with kubectl, and what they see."""

import re

import pytest

from paddle_operator.kube.objects import Key
from tests.stories.harness import FULL_CONFIG_MAPS, FULL_PODS, ClusterHarness, FullObject
from tests.stories.jobs import make_job

COLLECTIVE = make_job(workers=2)


def workers(pods: dict[str, FullObject]) -> list[str]:
    return sorted(pods)


async def numbers_told(harness: ClusterHarness) -> set[tuple[str, str]]:
    """How many ranks each worker was told of, in the two ways in which Paddle asks."""
    seen = (await harness.get_environments("mnist")).values()
    return {(each["PADDLE_TRAINERS_NUM"], str(len(each["PADDLE_TRAINERS"].split(",")))) for each in seen}


async def test_kubectl_get_shows_phase_ready_pods_and_age(harness: ClusterHarness) -> None:
    await harness.submit(make_job(ps=1, workers=2))
    await harness.wait_phase("mnist", "Running")
    header, row = (await harness.kubectl("get", "pdj")).splitlines()
    assert header.split() == ["NAME", "STATUS", "MODE", "READY", "STARTED", "AGE"]
    assert re.fullmatch(r"mnist +Running +PS +3/3 +\d+s +\d+s", row)
    assert "Running" in await harness.kubectl("get", "paddlejobs", "mnist", "-o", "wide")


async def test_describe_shows_conditions_and_events(harness: ClusterHarness) -> None:
    await harness.submit(COLLECTIVE)
    await harness.wait_phase("mnist", "Running")
    await harness.wait_event("mnist", "AllPodsRunning")
    text = await harness.kubectl("describe", "pdj", "mnist")
    conditions, events = text.split("\nEvents:")
    assert re.search(r"Reason: +AllPodsRunning\n +Status: +True\n +Type: +Running", conditions)
    assert re.search(r"Normal +AllPodsRunning +.*paddle-operator +all pods run", events)


async def test_scale_up_a_running_job(harness: ClusterHarness) -> None:
    """All pods are replaced: containers read the number of ranks and their addresses once, at the start."""
    await harness.submit(COLLECTIVE)
    await harness.wait_phase("mnist", "Running")
    await harness.kubectl("scale", "pdj/mnist", "--replicas=3")
    await harness.wait_running(1)
    assert workers(await harness.list_pods()) == ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"]
    assert await numbers_told(harness) == {("3", "3")}
    told = await harness.wait_single_event("mnist", "Restarting")
    assert told.note.startswith("replicas changed from worker=2 to worker=3")


async def test_scale_down_a_running_job(harness: ClusterHarness) -> None:
    await harness.submit(make_job(workers=3))
    await harness.wait_phase("mnist", "Running")
    await harness.kubectl("scale", "pdj/mnist", "--replicas=2")
    await harness.wait_running(1)
    assert workers(await harness.list_pods()) == ["mnist-worker-0", "mnist-worker-1"]
    assert await numbers_told(harness) == {("2", "2")}


@pytest.mark.parametrize("replicas", [1, 3])
async def test_scale_before_it_runs(harness: ClusterHarness, replicas: int) -> None:
    """Nothing has started yet, so nothing starts again."""
    await harness.cordon()
    await harness.submit(COLLECTIVE)
    await harness.wait_not_running("mnist", "Unschedulable")
    before = await harness.list_pods()
    await harness.kubectl("scale", "pdj/mnist", f"--replicas={replicas}")
    await harness.wait_pods(lambda pods: len(pods) == replicas)
    await harness.kubectl("uncordon", *(str(node) for node in harness.nodes))
    await harness.wait_running(0)
    pods = await harness.list_pods()
    assert workers(pods) == [f"mnist-worker-{index}" for index in range(replicas)]
    assert all(pods[name].uid == pod.uid for name, pod in before.items() if name in pods)
    assert await numbers_told(harness) == {(str(replicas), str(replicas))}


async def test_scale_subresource_has_replicas_and_selector(harness: ClusterHarness) -> None:
    await harness.submit(make_job(ps=1, workers=2))
    await harness.wait_phase("mnist", "Running")
    path = f"/apis/batch.paddlepaddle.org/v1/namespaces/{harness.namespace}/paddlejobs/mnist/scale"
    scale = await harness.kubectl("get", f"--raw={path}")
    assert '"spec":{"replicas":2}' in scale
    assert '"replicas":2,"selector":"' in scale
    selector = (await harness.get_job("mnist")).status["selector"]
    chosen = await harness.kubectl("get", "pods", f"--selector={selector}", "-o", "name")
    assert chosen.split() == ["pod/mnist-worker-0", "pod/mnist-worker-1"]


@pytest.mark.parametrize("cascade", ["background", "foreground"])
async def test_delete_takes_the_children_along(harness: ClusterHarness, cascade: str) -> None:
    await harness.submit(make_job(ps=1, workers=1, intranet="Service"))
    await harness.wait_phase("mnist", "Running")
    await harness.kubectl("delete", "pdj/mnist", f"--cascade={cascade}", "--timeout=120s")
    await harness.wait_cleaned_up()
    await harness.wait_deleted("mnist")


async def test_delete_can_leave_the_children_behind(harness: ClusterHarness) -> None:
    await harness.submit(COLLECTIVE)
    await harness.wait_phase("mnist", "Running")
    before = await harness.list_pods()
    await harness.kubectl("delete", "pdj/mnist", "--cascade=orphan", "--timeout=120s")
    await harness.wait_deleted("mnist")
    left = await harness.list_pods()
    assert {name: pod.uid for name, pod in left.items()} == {name: pod.uid for name, pod in before.items()}
    assert not any(pod.metadata.owner_references for pod in left.values())


async def test_delete_and_apply_again_at_once(harness: ClusterHarness) -> None:
    """What is left of the old job is neither taken for the new one's nor read by its containers."""
    await harness.submit(make_job(ps=1, workers=2))
    old = await harness.wait_phase("mnist", "Running")
    before = {pod.uid for pod in (await harness.list_pods()).values()}
    await harness.kubectl("delete", "pdj/mnist")
    await harness.submit(make_job(ps=1, workers=2))
    new = await harness.wait_job("mnist", lambda job: job.uid != old.uid and job.phase == "Running")
    pods, barrier = await harness.list_pods(), await harness.get_barrier("mnist")
    assert barrier
    assert barrier.metadata.owner_uid == new.uid
    assert len(pods) == 3
    assert not before & {pod.uid for pod in pods.values()}
    assert {each["uid"] for each in new.status["worker"]["refs"]} <= {pod.uid for pod in pods.values()}
    seen = await harness.get_environments("mnist")
    addresses = [pods[f"mnist-worker-{index}"].status["podIP"] for index in range(2)]
    assert seen["mnist-ps-0"]["PADDLE_TRAINERS"] == ",".join(addresses)


async def test_recreated_job_does_not_read_old_addresses(
    harness: ClusterHarness,
) -> None:
    """The pods' names are free at once, but the ConfigMap is there until the garbage collector comes: here, late."""
    await harness.submit(COLLECTIVE)
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-*")
    old = await harness.wait_phase("mnist", "Completed")
    await harness.wait_cleaned_up()
    barrier = Key(harness.namespace, "mnist")
    await harness.client.merge(FULL_CONFIG_MAPS, barrier, {"metadata": {"finalizers": ["example.com/late"]}})
    await harness.kubectl("delete", "pdj/mnist")
    await harness.submit(COLLECTIVE)
    await harness.wait_not_running("mnist", "NameConflict")
    assert not await harness.list_pods()
    await harness.client.merge(FULL_CONFIG_MAPS, barrier, {"metadata": {"finalizers": None}})
    await harness.wait_job("mnist", lambda job: job.uid != old.uid and job.phase == "Running")
    pods = await harness.list_pods()
    addresses = [pods[f"mnist-worker-{index}"].status["podIP"] for index in range(2)]
    assert (await harness.get_environments("mnist"))["mnist-worker-0"]["PADDLE_TRAINERS"] == ",".join(addresses)


async def test_a_finished_job_can_be_edited_and_stays_finished(harness: ClusterHarness) -> None:
    await harness.submit(COLLECTIVE)
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-*")
    await harness.wait_phase("mnist", "Completed")
    await harness.wait_cleaned_up()
    await harness.kubectl("scale", "pdj/mnist", "--replicas=4")
    job = await harness.wait_job("mnist", lambda job: job.status["observedGeneration"] == job.metadata.generation)
    await harness.submit(make_job("other", workers=1))
    await harness.wait_phase("other", "Running")
    assert workers(await harness.list_pods()) == ["other-worker-0"]
    assert (job.phase, job.metadata.generation) == ("Completed", 2)


async def test_a_pod_deleted_by_hand_ends_the_attempt_of_all(harness: ClusterHarness) -> None:
    await harness.submit(make_job(ps=1, workers=2))
    await harness.wait_phase("mnist", "Running")
    before = {pod.uid for pod in (await harness.list_pods()).values()}
    await harness.kubectl("delete", "pod/mnist-worker-1", "--wait=false")
    await harness.wait_running(1)
    pods = await harness.list_pods()
    assert len(pods) == 3
    assert not before & {pod.uid for pod in pods.values()}
    note = (await harness.wait_single_event("mnist", "Restarting")).note
    assert note == "mnist-worker-1 was deleted; replacing all pods"
    assert len({each["PADDLE_TRAINER_ENDPOINTS"] for each in (await harness.get_environments("mnist")).values()}) == 1


async def test_deleted_config_map_is_recreated_with_same_addresses(harness: ClusterHarness) -> None:
    await harness.submit(COLLECTIVE)
    await harness.wait_phase("mnist", "Running")
    barrier = await harness.get_barrier("mnist")
    pods = await harness.list_pods()
    assert barrier
    await harness.kubectl("delete", "configmap/mnist")
    again = await harness.wait_barrier("mnist", lambda each: each.uid != barrier.uid)
    assert again.data == barrier.data
    await harness.run_unrelated_job("other")
    assert {name: pod.uid for name, pod in pods.items()} == {
        name: pod.uid for name, pod in (await harness.list_pods()).items()
    }


async def test_pod_deleted_before_the_barrier_is_recreated_alone(harness: ClusterHarness) -> None:
    await harness.cordon()
    await harness.submit(COLLECTIVE)
    await harness.wait_not_running("mnist", "Unschedulable")
    old = (await harness.list_pods())["mnist-worker-0"].uid
    await harness.delete(FULL_PODS, "mnist-worker-0")
    await harness.wait_pods(lambda pods: "mnist-worker-0" in pods and pods["mnist-worker-0"].uid != old)
    await harness.kubectl("uncordon", *(str(node) for node in harness.nodes))
    await harness.wait_running(0)
