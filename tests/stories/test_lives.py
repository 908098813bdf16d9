"""Whole lives of jobs, as the documents promise them: applied with kubectl, on a real control plane."""

from testbed.hollow_script import exits
from tests.stories.jobs import a_job
from tests.stories.stage import ClusterHarness


async def test_a_parameter_server_job_runs_and_is_completed_when_its_workers_are(stage: ClusterHarness) -> None:
    await stage.apply(a_job("wide", ps=2, workers=2, cleanPodPolicy="OnCompletion"))
    job = await stage.phase("wide", "Running")
    assert job.status["ready"] == "4/4"
    await stage.exits("wide-worker-*")
    job = await stage.phase("wide", "Completed")
    assert job.status["ps"]["succeeded"] == 2
    await stage.cleaned()


async def test_a_collective_job_fails_with_its_cause_and_what_runs_is_stopped_but_kept(stage: ClusterHarness) -> None:
    await stage.apply(a_job("deep", workers=2, cleanPodPolicy="Never"))
    await stage.phase("deep", "Running")
    stage.nodes.script("deep-worker-1", exits(139), namespace=stage.namespace)
    job = await stage.phase("deep", "Failed")
    assert job.condition("Failed")["message"] == "deep-worker-1 exited 139: it crashed with a segmentation fault"
    pods = await stage.until_pods(lambda pods: all(pod.phase == "Failed" for pod in pods.values()))
    assert pods["deep-worker-0"].status["reason"] == "DeadlineExceeded"
