"""Which failures are tried again, when and how often (KF-C4, C5, C7 and C8); what is nobody's fault is not counted."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from paddle_operator.kube.client import Scope
from paddle_operator.kube.objects import Key, Object, Resource
from testbed.clock import OffsetClock
from testbed.hollow_script import exits, ignores_sigterm
from tests.stories.harness import (
    FULL_EVENTS,
    FULL_PODS,
    ClusterHarness,
    FullObject,
    on_both_planes,
    on_embedded_plane,
    on_real_plane,
    parse_time,
    pods_of_job,
    writes_for_job,
)
from tests.stories.jobs import Job, make_job, make_template, with_template
from tests.support.service_account import OPERATOR

pytestmark = on_embedded_plane

PRIORITIES = Resource("apis/scheduling.k8s.io/v1", "priorityclasses", Object, namespaced=False)
PAUSE = timedelta(seconds=10)


def rule(action: str, *values: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(values)}}


KUBEFLOW = {"rules": [rule("FailJob", *range(1, 128))]}  # its ExitCode policy: what is not a signal's is for good
FORGIVING = {"rules": [rule("Ignore", 130, 2), rule("FailJob", 3)]}

# The policy, if there is one, and the code that a worker exits with.
GIVEN_UP: list[tuple[dict[str, Any] | None, int, str]] = [
    (None, 2, "exited 2: a bad command line: retrying would not help"),
    (KUBEFLOW, 1, "exited 1: the program failed: its log has the reason; spec.podFailurePolicy fails the job"),
    (KUBEFLOW, 2, "exited 2: a bad command line: retrying would not help; spec.podFailurePolicy fails the job"),
    (KUBEFLOW, 127, "exited 127: the command was not found; spec.podFailurePolicy fails the job"),
    (FORGIVING, 3, "exited 3: its log has the reason; spec.podFailurePolicy fails the job"),
]
# The same, and how much it costs.
TRIED_AGAIN: list[tuple[dict[str, Any] | None, int, int]] = [
    (None, 1, 1),
    (None, 42, 1),
    (None, 137, 1),
    (KUBEFLOW, 128, 1),
    (KUBEFLOW, 130, 1),
    (KUBEFLOW, 137, 1),
    (KUBEFLOW, 139, 1),
    (KUBEFLOW, 143, 1),
    (KUBEFLOW, 255, 1),
    (FORGIVING, 130, 0),
    (FORGIVING, 2, 0),
    (FORGIVING, 1, 1),
]


# KF-C7
async def test_what_an_exit_code_brings_is_what_the_policy_says(bare_harness: ClusterHarness) -> None:
    harness, clock = bare_harness, OffsetClock()

    async def fails(name: str, policy: dict[str, Any] | None, code: int) -> FullObject:
        more: dict[str, Any] = {"podFailurePolicy": policy} if policy else {}
        await harness.submit(make_job(name, workers=1, backoffLimit=3, **more))
        await harness.wait_phase(name, "Running")
        await harness.exit_pods(f"{name}-worker-0", code=code)
        return await harness.wait_job(name, lambda job: job.phase == "Failed" or job.status.get("attempt") == 1)

    async def ends(name: str, policy: dict[str, Any] | None, code: int, message: str) -> None:
        job = await fails(name, policy, code)
        reason = "PodFailurePolicy" if policy else "PodFailed"
        failed = job.condition("Failed")
        assert (failed["status"], failed["reason"]) == ("True", reason)
        assert failed["message"] == f"{name}-worker-0 {message}"
        assert (job.status.get("restarts", 0), job.status.get("attempt", 0)) == (0, 0)

    async def comes_again(name: str, policy: dict[str, Any] | None, code: int, charge: int) -> None:
        job = await fails(name, policy, code)
        assert job.status.get("restarts", 0) == charge, (name, job.status)
        assert ("nextAttemptTime" in job.status) is bool(charge)

    async with harness.run_operator(clock=clock):
        names = [f"again-{number}" for number in range(len(TRIED_AGAIN))]
        async with asyncio.TaskGroup() as group:
            for number, (policy, code, message) in enumerate(GIVEN_UP):
                group.create_task(ends(f"over-{number}", policy, code, message))
            for name, (policy, code, charge) in zip(names, TRIED_AGAIN, strict=True):
                group.create_task(comes_again(name, policy, code, charge))
        clock.advance(PAUSE)
        await asyncio.gather(*(harness.wait_running(1, name) for name in names))


@on_real_plane
async def test_retries_back_off_exponentially_up_to_the_limit(
    bare_harness: ClusterHarness,
) -> None:
    harness, clock = bare_harness, OffsetClock()
    ends_of_pauses: list[datetime] = []
    async with harness.record_writes() as writes, harness.run_operator(clock=clock):
        await harness.submit(make_job(workers=2, backoffLimit=2, cleanPodPolicy="Always"))
        for number, pause in enumerate((10, 20)):
            await harness.wait_running(number)
            failed_at = clock.now()
            await harness.exit_pods("mnist-worker-1", code=1)
            job = await harness.wait_phase("mnist", "Restarting")
            again_at = parse_time(job.status["nextAttemptTime"])
            assert failed_at < again_at - timedelta(seconds=pause - 1)  # it is told in whole seconds
            assert again_at - timedelta(seconds=pause) <= clock.now()
            assert job.condition("Running")["message"].endswith(f"replacing all pods at {again_at:%H:%M:%S} UTC")
            assert (job.status["restarts"], job.status["attempt"]) == (number + 1, number + 1)
            await harness.wait_pods(lambda pods: not pods)
            clock.advance_to(again_at - timedelta(seconds=5))
            await harness.run_unrelated_job(f"beside-{number}")
            ends_of_pauses.append(clock.advance_to(again_at))
        await harness.wait_running(2)
        await harness.exit_pods("mnist-worker-1", code=1)
        job = await harness.wait_phase("mnist", "Failed")
        await harness.wait_pods(lambda pods: not pods)
    failed = job.condition("Failed")
    assert (failed["reason"], job.status["restarts"]) == ("BackoffLimitExceeded", 2)
    assert failed["message"] == (
        "mnist-worker-1 exited 1: the program failed: its log has the reason; spec.backoffLimit is 2"
    )
    made = [
        each.received_at for each in writes_for_job(writes, "mnist").by(OPERATOR).to("pods") if each.verb == "create"
    ]
    for number, end in enumerate(ends_of_pauses):
        assert made[2 * number + 1] < end < made[2 * number + 2]  # two pods at a time, and none in a pause


async def test_ps_worker_without_gloo_is_replaced_alone_and_counted(bare_harness: ClusterHarness) -> None:
    """Of any other pod the whole job starts again; each of the two costs one try."""
    harness, clock = bare_harness, OffsetClock()
    async with harness.run_operator(clock=clock):
        await harness.submit(make_job(ps=1, workers=3, withGloo=0, backoffLimit=2))
        await harness.wait_phase("mnist", "Running")
        before = await harness.list_pods()
        await harness.exit_pods("mnist-worker-1", code=1)
        await harness.wait_job("mnist", lambda job: job.status.get("restarts", 0) == 1)
        await harness.wait_pods(lambda pods: len(pods) == 3)
        clock.advance(PAUSE)
        await harness.wait_pods(lambda pods: len(pods) == 4)
        job = await harness.wait_running(0)
        after = await harness.list_pods()
        assert {name for name in before if before[name].uid != after[name].uid} == {"mnist-worker-1"}
        assert not job.status.get("replacing")
        await harness.exit_pods("mnist-ps-0", code=1)
        await harness.wait_job("mnist", lambda job: job.status.get("attempt") == 1)
        clock.advance(2 * PAUSE)
        job = await harness.wait_running(1)
    assert job.status["restarts"] == 2
    assert not {pod.uid for pod in after.values()} & {pod.uid for pod in (await harness.list_pods()).values()}


async def test_individually_replaceable_pod_is_replaced_alone(bare_harness: ClusterHarness) -> None:
    """Of elastic workers, and of workers of servers without gloo; evicted by its kubelet, drained or deleted."""
    harness = bare_harness

    async def lives(name: str, job: Job) -> None:
        await harness.submit(job)
        await harness.wait_phase(name, "Running")
        for number, pod in enumerate((f"{name}-worker-1", f"{name}-worker-2", f"{name}-worker-1")):
            before = pods_of_job(await harness.list_pods(), name)
            match number:
                case 0:
                    await harness.nodes.evict(pod, namespace=harness.namespace)
                case 1:
                    await harness.client.evict(Key(harness.namespace, pod))
                case 2:
                    await harness.delete(FULL_PODS, pod)
            await harness.wait_pods(lambda pods: pod in pods and pods[pod].uid != before[pod].uid)  # noqa: B023
            job_now = await harness.wait_running(0, name)
            after = pods_of_job(await harness.list_pods(), name)
            assert {key for key in before if before[key].uid != after[key].uid} == {pod}
            assert job_now.status.get("restarts", 0) == 0

    async with harness.run_operator(etcd="etcd.example:2379"):
        await asyncio.gather(
            lives("elastic", make_job("elastic", workers=3, elastic=1)),
            lives("served", make_job("served", ps=1, workers=3, withGloo=0, backoffLimit=0)),
        )


def by_kubelet(name: str, workers: int, limit: int, policy: str = "OnFailure") -> Job:
    template = make_template()
    template["spec"]["restartPolicy"] = policy
    return with_template(make_job(name, workers=workers, backoffLimit=limit, cleanPodPolicy="Always"), template)


def restarts(pods: dict[str, FullObject]) -> int:
    found = [status for pod in pods.values() for status in pod.status.get("containerStatuses", ())]
    return sum(each["restartCount"] for each in found if each["ready"])


# KF-C4
@pytest.mark.parametrize("kubelet_speed", [100.0])
async def test_what_kubelet_starts_again_counts_as_well(harness: ClusterHarness) -> None:
    async def four_of_four() -> None:
        await harness.submit(by_kubelet("four", 4, 4))
        await harness.wait_phase("four", "Running")
        await harness.exit_pods("four-worker-[012]", code=1)
        await harness.wait_pods(lambda pods: restarts(pods_of_job(pods, "four")) == 3)
        await harness.wait_phase("four", "Running")
        await harness.exit_pods("four-worker-3", code=1)
        await is_worn_out("four", 4, 4)

    async def three_of_one() -> None:
        harness.nodes.script("three-worker-1", exits(1), namespace=harness.namespace, times=3)
        await harness.submit(by_kubelet("three", 2, 3))
        await is_worn_out("three", 3, 3)

    async def first_of_none() -> None:
        await harness.submit(by_kubelet("first", 1, 0))
        await harness.wait_phase("first", "Running")
        await harness.exit_pods("first-worker-0", code=1)
        await is_worn_out("first", 1, 0)

    async def none_of_none() -> None:
        await harness.submit(by_kubelet("none", 2, 0))
        await harness.wait_phase("none", "Running")
        await harness.exit_pods("none-worker-*")
        await harness.wait_phase("none", "Completed")

    async def kept_when_pods_are_replaced() -> None:
        harness.nodes.script("summed-worker-0", exits(1), namespace=harness.namespace, times=2)
        await harness.submit(by_kubelet("summed", 2, 5))
        await harness.wait_pods(lambda pods: restarts(pods_of_job(pods, "summed")) == 2)
        await harness.wait_phase("summed", "Running")
        await harness.delete(FULL_PODS, "summed-worker-1")
        assert (await harness.wait_running(1, "summed")).status["restarts"] == 2

    async def is_worn_out(name: str, times: int, limit: int) -> None:
        failed = (await harness.wait_phase(name, "Failed")).condition("Failed")
        assert failed["reason"] == "BackoffLimitExceeded"
        assert failed["message"] == f"kubelet restarted containers {times} times; spec.backoffLimit is {limit}"
        await harness.wait_pods(lambda pods: not pods_of_job(pods, name))

    await asyncio.gather(four_of_four(), three_of_one(), first_of_none(), none_of_none(), kept_when_pods_are_replaced())


# KF-C5
async def test_clean_pod_policy_holds_at_the_backoff_limit(
    harness: ClusterHarness,
) -> None:
    async def lives(policy: str | None, left: int) -> None:
        name = (policy or "unset").lower()
        more: dict[str, Any] = {"cleanPodPolicy": policy} if policy else {}
        await harness.submit(make_job(name, ps=1, workers=2, backoffLimit=0, **more))
        await harness.wait_phase(name, "Running")
        await harness.exit_pods(f"{name}-worker-1", code=1)
        job = await harness.wait_phase(name, "Failed")
        assert job.condition("Failed")["reason"] == "BackoffLimitExceeded"
        await harness.wait_pods(lambda pods: is_left(pods_of_job(pods, name), left))

    def is_left(pods: dict[str, FullObject], count: int) -> bool:
        return len(pods) == count and all(pod.phase in ("Succeeded", "Failed") for pod in pods.values())

    cleans = {"Always", "OnFailure"}
    policies = (None, "Always", "Never", "OnFailure", "OnCompletion")
    await asyncio.gather(*(lives(policy, 0 if policy in cleans else 3) for policy in policies))


# KF-C8. Kubeflow's ExitCode is our podFailurePolicy, which wants Never.
async def test_the_restart_policy_of_the_template_is_the_pods(harness: ClusterHarness) -> None:
    for policy in ("Never", "OnFailure", "Always"):
        await harness.submit(by_kubelet(policy.lower(), 1, 3, policy))
    await harness.submit(make_job("unset", workers=1))
    pods = await harness.wait_pods(lambda pods: len(pods) == 4)
    assert {name: pod.spec["restartPolicy"] for name, pod in pods.items()} == {
        "never-worker-0": "Never",
        "onfailure-worker-0": "OnFailure",
        "always-worker-0": "Always",
        "unset-worker-0": "Never",
    }


@on_both_planes
async def test_an_evicted_or_deleted_pod_costs_no_try(harness: ClusterHarness) -> None:
    """Not one is allowed; what costs one would end the job."""

    async def lives(name: str) -> None:
        await harness.submit(make_job(name, ps=1, workers=2, backoffLimit=0))
        await harness.wait_phase(name, "Running")
        pod = f"{name}-worker-1"
        match name:
            case "drained":  # through the Eviction API
                await harness.client.evict(Key(harness.namespace, pod))
            case "pressed":  # by a kubelet that is short of memory
                await harness.nodes.evict(pod, namespace=harness.namespace)
            case "deleted":
                await harness.delete(FULL_PODS, pod)
        job = await harness.wait_running(1, name)
        assert job.status.get("restarts", 0) == 0
        assert "nextAttemptTime" not in job.status
        assert pod in (await harness.wait_single_event(name, "Restarting")).note

    await asyncio.gather(*(lives(name) for name in ("drained", "pressed", "deleted")))


@on_real_plane
async def test_preemption_is_not_counted_as_a_failure(harness: ClusterHarness) -> None:
    """Four nodes of 32 CPUs are full with four workers of 20; somebody more urgent takes the place of one."""
    urgent = f"{harness.namespace}-urgent"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": urgent}}
    await harness.client.create(PRIORITIES, {**kind, "value": 1000})
    template = make_template(resources={"requests": {"cpu": "20"}})
    await harness.submit(with_template(make_job(workers=4, backoffLimit=0), template))
    await harness.wait_phase("mnist", "Running")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}}
    await harness.create(FULL_PODS, {**pod, "spec": {**template["spec"], "priorityClassName": urgent}})
    await harness.wait_pods(lambda pods: "urgent" in pods and pods["urgent"].phase == "Running")
    await harness.wait_not_running("mnist", "Unschedulable")
    told = await harness.client.list_all(FULL_EVENTS, Scope(harness.namespace))
    assert "Preempted" in {each.reason for each in told}  # in the scheduler's own words
    await harness.delete(FULL_PODS, "urgent")
    job = await harness.wait_job("mnist", lambda job: job.phase == "Running" and job.status.get("attempt", 0) >= 1)
    assert job.status.get("restarts", 0) == 0
    await harness.client.delete(PRIORITIES, Key("", urgent))


def uids_of_terminating(pods: dict[str, FullObject]) -> dict[str, str]:
    return {name: pod.uid for name, pod in pods.items() if pod.metadata.deletion_timestamp}


@on_real_plane
async def test_names_of_terminating_pods_are_not_requested(harness: ClusterHarness) -> None:
    """All pods are deleted in one request, and its response shows them as they were before.

    The evicted pod has ended: its replacement may exist while the other three still terminate.
    """
    harness.nodes.script("mnist-*", ignores_sigterm(), namespace=harness.namespace)
    template = make_template()
    template["spec"]["terminationGracePeriodSeconds"] = 300
    async with harness.record_writes() as writes:
        await harness.submit(with_template(make_job(workers=4, backoffLimit=0), template))
        await harness.wait_phase("mnist", "Running")
        slow = {name: pod.uid for name, pod in (await harness.list_pods()).items() if name != "mnist-worker-1"}
        await harness.nodes.evict("mnist-worker-1", namespace=harness.namespace)
        await harness.wait_not_running("mnist", "PodsTerminating")
        await harness.wait_pods(lambda pods: slow.items() <= uids_of_terminating(pods).items())
        await harness.run_unrelated_job("beside")  # so the operator had time to create pods
        await harness.exit_pods(*slow, code=137)
        await harness.wait_running(1)
    made = [each for each in writes_for_job(writes, "mnist").by(OPERATOR).to("pods") if each.verb == "create"]
    assert [each.code for each in made] == [201] * 8
