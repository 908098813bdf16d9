"""Nodes that go away under a running job: what becomes of it is decided, and said."""

from tests.stories.jobs import a_job
from tests.stories.stage import Stage


async def test_a_drained_node_ends_the_attempt_of_all_and_the_next_runs_elsewhere(stage: Stage) -> None:
    await stage.submit(a_job(ps=1, workers=2))
    await stage.phase("mnist", "Running")
    node = stage.nodes.node_of("mnist-worker-1", namespace=stage.namespace)
    await stage.kubectl("drain", str(node), "--force", "--timeout=30s")
    await stage.until("mnist", lambda job: job.phase == "Running" and job.status.get("attempt", 0) >= 1)
    assert all(pod.spec["nodeName"] != str(node) for pod in (await stage.pods()).values())
    assert (await stage.told("mnist", "Restarting")).type == "Warning"


async def test_a_pod_evicted_by_its_node_fails_the_job_with_that_cause(stage: Stage) -> None:
    await stage.submit(a_job(workers=2, cleanPodPolicy="Never"))
    await stage.phase("mnist", "Running")
    await stage.nodes.evicts("mnist-worker-1", namespace=stage.namespace)
    job = await stage.phase("mnist", "Failed")
    assert "mnist-worker-1" in job.condition("Failed")["message"]
    assert "its node was short of something and evicted it" in job.condition("Failed")["message"]


async def test_a_node_that_dies_and_comes_back_costs_one_attempt(stage: Stage) -> None:
    """Kubernetes waits 16 s here, and stock 50 s, before it gives a silent node up, and keeps its pods' names until
    kubelet or an administrator says that they are gone: until then two of a rank might run.
    """
    await stage.submit(a_job(ps=1, workers=4, intranet="Host"))  # so that there is a worker on every node
    await stage.phase("mnist", "Running")
    node = stage.nodes.node_of("mnist-worker-1", namespace=stage.namespace)
    node.dies()
    restarting = await stage.phase("mnist", "Restarting", within_seconds=60)
    assert restarting.status["attempt"] == 1
    assert "mnist-" in (await stage.told("mnist", "Restarting")).note
    await stage.waits("mnist", "PodsLeaving")
    await node.comes_back()
    await stage.runs_in_attempt(1)
