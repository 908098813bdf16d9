"""Whole lives of jobs, as the documents promise them: applied with kubectl, on a real control plane."""

from testbed.hollow_script import exits
from tests.stories.harness import ClusterHarness
from tests.stories.jobs import make_job


async def test_ps_job_completes_with_its_workers(harness: ClusterHarness) -> None:
    await harness.apply(make_job("wide", ps=2, workers=2, cleanPodPolicy="OnCompletion"))
    job = await harness.wait_phase("wide", "Running")
    assert job.status["ready"] == "4/4"
    await harness.exit_pods("wide-worker-*")
    job = await harness.wait_phase("wide", "Completed")
    assert job.status["ps"]["succeeded"] == 2
    await harness.wait_cleaned_up()


async def test_failed_collective_job_names_its_cause(harness: ClusterHarness) -> None:
    await harness.apply(make_job("deep", workers=2, cleanPodPolicy="Never"))
    await harness.wait_phase("deep", "Running")
    harness.nodes.script("deep-worker-1", exits(139), namespace=harness.namespace)
    job = await harness.wait_phase("deep", "Failed")
    assert job.condition("Failed")["message"] == "deep-worker-1 exited 139: it crashed with a segmentation fault"
    pods = await harness.wait_pods(lambda pods: all(pod.phase == "Failed" for pod in pods.values()))
    assert pods["deep-worker-0"].status["reason"] == "DeadlineExceeded"
