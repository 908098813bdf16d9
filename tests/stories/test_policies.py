"""Who looks after a job, when it is done, and who decides how many workers it has: KF-P4 and C10 among it."""

import asyncio
import json

import pytest

from paddle_operator.kube.errors import Invalid
from tests.stories.harness import FULL_JOBS, ClusterHarness, on_both_planes, on_embedded_plane, writes_for_job
from tests.stories.jobs import Job, make_job, make_template, with_template
from tests.support.service_account import OPERATOR

OURS = "batch.paddlepaddle.org/paddle-operator"
THEIRS = {"multikueue": "kueue.x-k8s.io/multikueue", "other": "example.com/trainer"}


# KF-P4 and KF-C10
async def test_job_managed_by_another_controller_is_ignored(harness: ClusterHarness) -> None:
    """Suspended and resumed, as Kueue does; those beside it, which are ours, run."""
    async with harness.record_writes() as writes:
        await harness.submit(
            *(make_job(name, managedBy=manager, suspend=True) for name, manager in THEIRS.items()),
            make_job("ours", managedBy=OURS),
            make_job("unsaid"),
        )
        for name in THEIRS:
            await harness.patch_spec(name, {"suspend": False})
        await asyncio.gather(harness.wait_phase("ours", "Running"), harness.wait_phase("unsaid", "Running"))
        await harness.run_unrelated_job("beside")
    for name in THEIRS:
        assert not writes_for_job(writes, name).by(OPERATOR)
        assert (await harness.get_job(name)).status is None
        assert await harness.list_events(name) == []
    assert len(await harness.list_pods()) == 4


@on_both_planes
async def test_who_manages_a_job_is_decided_once(harness: ClusterHarness) -> None:
    await harness.submit(make_job("unsaid", suspend=True), make_job("theirs", managedBy=THEIRS["other"]))
    for name in ("unsaid", "theirs"):
        with pytest.raises(Invalid, match=r"spec\.managedBy cannot change: delete the job and create it again"):
            await harness.patch_spec(name, {"managedBy": OURS})
    with pytest.raises(Invalid, match=r"spec\.managedBy"):
        await harness.submit(make_job("nobody", managedBy=""))


@on_embedded_plane
async def test_a_job_is_done_when_its_success_policy_is_met(harness: ClusterHarness) -> None:
    """The chief alone, two of three, and two of the first three of four; who still runs is ended."""

    async def lives(name: str, rule: Job, workers: int, *done: str) -> None:
        await harness.submit(make_job(name, ps=1, workers=workers, successPolicy={"rules": [rule]}))
        await harness.wait_phase(name, "Running")
        for pod in done[:-1]:
            await harness.exit_pods(f"{name}-{pod}")
        before = len(done) - 1
        await harness.wait_job(name, lambda job: job.status["worker"].get("succeeded", 0) == before)
        assert (await harness.get_job(name)).phase == "Running"
        await harness.exit_pods(f"{name}-{done[-1]}")
        job = await harness.wait_phase(name, "Completed")
        assert job.condition("Completed")["message"] == (
            f"spec.successPolicy is met: {len(done)} of {workers} workers succeeded"
        )
        assert (job.status["worker"]["succeeded"], job.status["ps"]["succeeded"]) == (len(done), 1)

    await asyncio.gather(
        lives("chief", {"succeededIndexes": "0"}, 3, "worker-0"),
        lives("after-others", {"succeededIndexes": "0"}, 3, "worker-2", "worker-0"),
        lives("two-of-three", {"succeededCount": 2}, 3, "worker-2", "worker-1"),
        lives("two-of-some", {"succeededIndexes": "0-2", "succeededCount": 2}, 4, "worker-3", "worker-0", "worker-2"),
    )
    await harness.wait_cleaned_up()


@on_embedded_plane
async def test_failed_worker_fails_job_despite_success_policy(harness: ClusterHarness) -> None:
    await harness.submit(make_job(workers=3, successPolicy={"rules": [{"succeededIndexes": "0"}]}))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-2", code=1)
    assert (
        (await harness.wait_phase("mnist", "Failed"))
        .condition("Failed")["message"]
        .startswith("mnist-worker-2 exited 1")
    )


@on_embedded_plane
async def test_training_container_alone_decides_success(harness: ClusterHarness) -> None:
    """A proxy that never exits, one that fails after the training was done, and one that fails before."""
    template = make_template({"name": "proxy", "image": "envoy"})

    async def lives(name: str, *ends: tuple[str, int]) -> None:
        await harness.submit(with_template(make_job(name, workers=2, cleanPodPolicy="Never"), template))
        await harness.wait_phase(name, "Running")
        for container, code in ends:
            await harness.nodes.exit(f"{name}-worker-*", code, container=container, namespace=harness.namespace)
        job = await harness.wait_phase(name, "Completed")
        assert job.status["worker"]["succeeded"] == 2
        assert job.condition("Completed")["message"] == "all 2 workers succeeded"

    trained = ("paddle", 0)
    await asyncio.gather(
        lives("endless", trained), lives("after", trained, ("proxy", 1)), lives("before", ("proxy", 1), trained)
    )
    pods = await harness.wait_pods(lambda pods: all(pod.phase in ("Succeeded", "Failed") for pod in pods.values()))
    assert {name: pod.phase for name, pod in pods.items() if name.startswith("before")} == {
        "before-worker-0": "Failed",
        "before-worker-1": "Failed",
    }


async def test_autoscaler_scales_workers_to_its_minimum(harness: ClusterHarness) -> None:
    """Kubernetes' own: there are no metrics here, but what is below its minimum it scales up without any."""
    await harness.submit(make_job(ps=1, workers=2))
    await harness.wait_phase("mnist", "Running")
    await harness.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "mnist"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "name": "mnist"},
                "minReplicas": 3,
                "maxReplicas": 4,
            },
        }
    )
    job = await harness.wait_running(1)  # within the 15 s that it lets pass
    assert job.spec["worker"]["replicas"] == 3
    await harness.kubectl("wait", "--for=jsonpath={.status.desiredReplicas}=3", "--timeout=120s", "hpa/mnist")
    told = json.loads(await harness.kubectl("get", "hpa/mnist", "-o", "json"))
    able = next(each for each in told["status"]["conditions"] if each["type"] == "AbleToScale")
    assert able["status"] == "True"
    assert "PaddleJob/mnist" in await harness.kubectl("get", "hpa")
    path = f"/apis/batch.paddlepaddle.org/v1/namespaces/{harness.namespace}/paddlejobs/mnist/scale"
    scale = json.loads(await harness.kubectl("get", f"--raw={path}"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    chosen = await harness.kubectl("get", "pods", f"--selector={scale['status']['selector']}", "-o", "name")
    assert chosen.split() == [f"pod/mnist-worker-{index}" for index in range(3)]
    assert (await harness.client.get(FULL_JOBS, job.key)).status["ready"] == "4/4"
