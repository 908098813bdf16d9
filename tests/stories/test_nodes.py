"""Nodes that go away under a running job: what becomes of it is decided, and said."""

from datetime import UTC, datetime, timedelta

from paddle_operator.kube.objects import Key
from paddle_operator.plan.diff import FORCE_DELETE_AFTER
from testbed.clock import OffsetClock
from testbed.hollow_script import ignores_sigterm
from tests.stories.harness import FULL_PODS, ClusterHarness, on_embedded_plane, writes_for_job
from tests.stories.jobs import make_job, make_template, with_template
from tests.support.service_account import OPERATOR


async def test_drained_node_restarts_the_job_elsewhere(harness: ClusterHarness) -> None:
    await harness.submit(make_job(ps=1, workers=2))
    await harness.wait_phase("mnist", "Running")
    node = harness.nodes.node_of("mnist-worker-1", namespace=harness.namespace)
    await harness.kubectl("drain", str(node), "--force", "--timeout=120s")
    await harness.wait_job("mnist", lambda job: job.phase == "Running" and job.status.get("attempt", 0) >= 1)
    assert all(pod.spec["nodeName"] != str(node) for pod in (await harness.list_pods()).values())
    assert (await harness.wait_event("mnist", "Restarting")).type == "Warning"


@on_embedded_plane
async def test_a_pod_evicted_by_its_node_fails_the_job_with_that_cause(harness: ClusterHarness) -> None:
    await harness.submit(make_job(workers=2, cleanPodPolicy="Never"))
    await harness.wait_phase("mnist", "Running")
    await harness.nodes.evict("mnist-worker-1", namespace=harness.namespace)
    job = await harness.wait_phase("mnist", "Failed")
    assert "mnist-worker-1" in job.condition("Failed")["message"]
    assert "its node ran short of a resource and evicted it" in job.condition("Failed")["message"]


async def test_a_node_that_dies_and_comes_back_costs_one_attempt(harness: ClusterHarness) -> None:
    """Kubernetes waits 16 s here, and stock 50 s, before it gives a silent node up, and keeps its pods' names until
    kubelet or an administrator says that they are gone: until then two of a rank might run.
    """
    await harness.submit(make_job(ps=1, workers=4, intranet="Host"))  # so that there is a worker on every node
    await harness.wait_phase("mnist", "Running")
    node = harness.nodes.node_of("mnist-worker-1", namespace=harness.namespace)
    node.fail()
    restarting = await harness.wait_phase("mnist", "Restarting")
    assert restarting.status["attempt"] == 1
    assert "mnist-" in (await harness.wait_event("mnist", "Restarting")).note
    await harness.wait_not_running("mnist", "PodsTerminating")
    await node.recover()
    await harness.wait_running(1)


async def test_pod_on_dead_node_is_force_deleted_a_minute_after_grace(
    bare_harness: ClusterHarness,
) -> None:
    """Not a moment before, since until then two of a rank might run; nobody else does anything about it."""
    harness, clock = bare_harness, OffsetClock()
    async with harness.record_writes() as writes, harness.run_operator(clock=clock):
        await harness.submit(make_job(ps=1, workers=4, backoffLimit=0))
        await harness.wait_phase("mnist", "Running")
        node = harness.nodes.node_of("mnist-worker-1", namespace=harness.namespace)
        held = {pod.key.name: pod.uid for pod in node.pods if pod.key.namespace == harness.namespace}
        await node.cordon()  # as the taint does that a silent node is given after a while
        node.fail()
        await harness.client.evict(Key(harness.namespace, "mnist-worker-1"))
        await harness.wait_not_running("mnist", "PodsTerminating")
        pods = await harness.wait_pods(lambda pods: all(pods[name].metadata.deletion_timestamp for name in held))
        left_at = max(at for name in held if (at := pods[name].metadata.deletion_timestamp))
        await harness.run_unrelated_job(
            "before"
        )  # so the operator has seen it, too: it counts from then, by its own clock
        clock.advance_to(left_at + FORCE_DELETE_AFTER - timedelta(seconds=45))
        await harness.run_unrelated_job("beside")
        pods = await harness.list_pods()
        assert {name: pods[name].uid for name in held} == held
        assert (await harness.get_job("mnist")).phase == "Restarting"
        given_up_at = clock.advance_to(left_at + FORCE_DELETE_AFTER)
        job = await harness.wait_running(1)
    pods = await harness.list_pods()
    assert len(pods) == 5
    assert not set(held.values()) & {pod.uid for pod in pods.values()}
    assert all(pod.spec["nodeName"] != str(node) for pod in pods.values())
    assert job.status.get("restarts", 0) == 0
    deleted = {
        each.name
        for each in writes_for_job(writes, "mnist").by(OPERATOR).to("pods")
        if each.verb == "delete" and each.received_at > given_up_at
    }
    assert deleted == set(held)
    for name in held:
        events = [each.note for each in await harness.list_events("mnist") if each.reason == "NodeLost"]
        assert f"{name} is stuck terminating on {node}; force-deleting it" in events


async def test_clock_ahead_does_not_shorten_termination(bare_harness: ClusterHarness) -> None:
    """Or two of a rank would run at a time; and pods are waited for no less by one that has just started."""
    harness = bare_harness
    harness.nodes.script("mnist-*", ignores_sigterm(), namespace=harness.namespace)
    template = make_template()
    template["spec"]["terminationGracePeriodSeconds"] = 60
    async with harness.record_writes() as writes:
        async with harness.run_operator(clock=OffsetClock(timedelta(minutes=5))):
            await harness.submit(with_template(make_job(workers=3), template))
            await harness.wait_phase("mnist", "Running")
            await harness.delete(FULL_PODS, "mnist-worker-1")
            await harness.wait_not_running("mnist", "PodsTerminating")
        async with harness.run_operator(clock=OffsetClock(timedelta(minutes=10))):
            await harness.run_unrelated_job("beside")  # so it had time to give them up
            end_at = datetime.now(UTC)
            await harness.exit_pods("mnist-worker-*", code=137)
            await harness.wait_running(1)
    operator = writes_for_job(writes, "mnist").by(OPERATOR).to("pods")
    assert [each.code for each in operator if each.verb == "create"] == [201] * 6
    assert [each.received_at > end_at for each in operator if each.verb == "create"] == [False] * 3 + [True] * 3
    assert max(each.received_at for each in operator if each.verb == "delete") < end_at
    assert "NodeLost" not in {each.reason for each in await harness.list_events("mnist")}
