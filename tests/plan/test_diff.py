"""What is made, patched and deleted, in which order, and what is left for a later pass."""

import msgspec
import pytest

from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES
from paddle_operator.kube.writes import Create, StatusOrder
from paddle_operator.plan.children import Children
from paddle_operator.plan.diff import MAX_PODS_PER_RECONCILE, MAX_QUICK_WRITES
from paddle_operator.plan.metadata import ENDPOINTS_ANNOTATION
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    ETCD,
    SECONDS,
    T0,
    creates,
    deletes,
    make_barrier,
    make_job,
    make_pod,
    make_pods,
    make_refusal,
    make_running_children,
    make_service,
    make_services,
    make_waiting_pod,
    make_waiting_pods,
    not_running_reason,
    patches,
    with_replicas,
    with_status,
    writes_of,
)

# Creation


def test_services_come_first_then_role_by_role() -> None:
    job = make_job(ps=2, workers=2, heter=1, intranet="Service")
    desired = plan(job, Children(), T0)
    assert [[(each.kind, each.key.name) for each in wave if isinstance(each, Create)] for wave in desired.waves] == [
        [
            (SERVICES, name)
            for name in ("mnist-ps-0", "mnist-ps-1", "mnist-worker-0", "mnist-worker-1", "mnist-heter-0")
        ],
        [(PODS, "mnist-ps-0"), (PODS, "mnist-ps-1")],
        [(PODS, "mnist-worker-0"), (PODS, "mnist-worker-1")],
        [(PODS, "mnist-heter-0")],
    ]


def test_status_of_a_small_new_job_is_deferred() -> None:
    """Nothing can be lost yet, and a small job need not tell what is over before it is read."""
    assert plan(make_job(ps=MAX_QUICK_WRITES - 1, workers=1), Children(), T0).status_order is StatusOrder.DEFERRED
    assert plan(make_job(workers=MAX_QUICK_WRITES + 1), Children(), T0).status_order is not StatusOrder.DEFERRED
    known = make_job(workers=2)
    known = with_status(known, plan(known, Children(), T0).status)
    assert plan(known, Children(), T0).status_order is not StatusOrder.DEFERRED
    assert (
        plan(make_job(workers=2), Children(make_pods(known, phase="Pending")), T0).status_order
        is not StatusOrder.DEFERRED
    )


def test_what_is_there_is_not_made_again() -> None:
    job = make_job(workers=3)
    assert creates(plan(job, Children((make_pod(job, "worker", 1, phase="Pending"),)), T0)) == [
        "mnist-worker-0",
        "mnist-worker-2",
    ]


def test_a_job_that_runs_costs_nothing() -> None:
    for intranet in ("PodIP", "Service", "Host"):
        job = make_job(ps=1, workers=2, intranet=intranet, host_port=35000)
        status = plan(job, make_running_children(job), T0).status
        desired = plan(with_status(job, status), make_running_children(job), T0 + 600 * SECONDS)
        assert desired.status == status
        assert (desired.waves, desired.events, desired.requeue_at) == ((), (), None)


def test_large_role_is_created_in_parts() -> None:
    job = make_job(ps=MAX_PODS_PER_RECONCILE + 100, workers=2)
    first = plan(job, Children(), T0)
    assert creates(first) == [f"mnist-ps-{index}" for index in range(MAX_PODS_PER_RECONCILE)]
    pods = make_pods(job, phase="Pending")[:MAX_PODS_PER_RECONCILE]
    assert creates(plan(job, Children(pods), T0)) == [
        *(f"mnist-ps-{index}" for index in range(MAX_PODS_PER_RECONCILE, MAX_PODS_PER_RECONCILE + 100)),
        "mnist-worker-0",
        "mnist-worker-1",
    ]


def test_role_at_the_limit_does_not_delay_the_next() -> None:
    job = make_job(ps=MAX_PODS_PER_RECONCILE, workers=1)
    assert creates(plan(job, Children(), T0))[-1] == "mnist-worker-0"


def test_services_are_made_in_parts_as_well() -> None:
    job = make_job(workers=MAX_PODS_PER_RECONCILE + 1, intranet="Service")
    assert len(creates(plan(job, Children(), T0), SERVICES)) == MAX_PODS_PER_RECONCILE


# The barrier


def test_the_barrier_opens_and_whoever_waits_for_it_is_woken() -> None:
    job = make_job(workers=3)
    pods = (
        make_waiting_pod(job, "worker", 0),
        make_waiting_pod(job, "worker", 1),
        make_pod(job, "worker", 2, phase="Pending", address="10.2.0.3"),
    )
    desired = plan(job, Children(pods), T0)
    digest = make_barrier(job).endpoints_digest
    assert creates(desired) == ["mnist"]
    assert patches(desired) == {
        f"mnist-worker-{index}": {"metadata": {"annotations": {ENDPOINTS_ANNOTATION: digest}}} for index in range(2)
    }
    assert isinstance(desired.waves[0][0], Create)  # the barrier comes before the waking


def test_late_waiting_pod_is_nudged_once() -> None:
    job = make_job(workers=2)
    barrier = make_barrier(job)
    late = make_waiting_pod(job, "worker", 1)
    assert list(patches(plan(job, Children((make_pod(job, "worker", 0), late), (barrier,)), T0))) == ["mnist-worker-1"]
    with_requeue = msgspec.structs.replace(late, nudged_for=barrier.endpoints_digest)
    assert patches(plan(job, Children((make_pod(job, "worker", 0), with_requeue), (barrier,)), T0)) == {}


@pytest.mark.parametrize("waiting", ["", "ContainerCreating", "PodInitializing", "ImagePullBackOff"])
def test_nobody_else_is_woken(waiting: str) -> None:
    job = make_job(workers=1)
    pod = make_waiting_pod(job, "worker", 0, waiting=waiting)
    assert patches(plan(job, Children((pod,)), T0)) == {}
    assert patches(plan(job, Children((pod,), (make_barrier(job),)), T0)) == {}


def test_deleted_barrier_is_recreated_without_restart() -> None:
    job = make_job(workers=2, phase="Running", attempt=1)
    desired = plan(job, Children(make_pods(job)), T0)
    assert creates(desired) == ["mnist"]
    assert (desired.status.phase, desired.status.attempt) == ("Running", 1)


def test_a_pod_that_vanished_with_the_barrier_restarts_the_job() -> None:
    """The others hold the address that it had."""
    job = make_job(workers=2, phase="Running")
    assert plan(job, Children(make_pods(job)[:1]), T0).status.attempt == 1


# Scale, vanish, move: before the barrier


def test_scaling_before_the_barrier_does_not_restart() -> None:
    job = make_job(workers=3)
    pods = make_pods(job, phase="Pending")
    more = plan(with_replicas(job, worker=4), Children(pods), T0)
    assert (creates(more), deletes(more)) == (["mnist-worker-3"], [])
    fewer = plan(with_replicas(job, worker=1), Children(pods), T0)
    assert (creates(fewer), deletes(fewer)) == ([], ["mnist-worker-2", "mnist-worker-1"])
    assert fewer.status.attempt == more.status.attempt == 0


def test_surplus_pods_go_the_highest_number_first() -> None:
    job = make_job(workers=12)
    desired = plan(with_replicas(job, worker=8), Children(make_pods(job, phase="Pending")), T0)
    assert deletes(desired) == [f"mnist-worker-{index}" for index in (11, 10, 9, 8)]


def test_pod_deleted_before_the_barrier_is_recreated() -> None:
    job = make_job(workers=2)
    desired = plan(job, Children(make_waiting_pods(job)[:1]), T0)
    assert creates(desired) == ["mnist-worker-1"]
    assert desired.status.attempt == 0


def test_a_pod_on_its_way_out_still_has_its_name() -> None:
    job = make_job(workers=1)
    desired = plan(job, Children(make_pods(job, phase="Pending", terminating=True)), T0)
    assert writes_of(desired) == []
    assert not_running_reason(desired)[0] == "PodsTerminating"


def test_the_services_of_surplus_pods_go_with_them() -> None:
    job = make_job(workers=2, intranet="Service")
    children = Children(make_pods(job, phase="Pending"), services=make_services(job))
    assert deletes(plan(with_replicas(job, worker=1), children, T0), SERVICES) == ["mnist-worker-1"]


def test_obsolete_services_are_deleted_except_go_ones() -> None:
    job = make_job(workers=2)
    leaving = make_service(job, "worker", 2, terminating=True)
    services = (make_service(job, "worker", 0), make_service(job, "worker", 1, created_by_us=False), leaving)
    assert deletes(plan(job, Children(make_pods(job, phase="Pending"), services=services), T0)) == ["mnist-worker-0"]


# Refusals


def test_refused_create_waits_for_its_retry_time() -> None:
    job = make_job(workers=2)
    refusal = make_refusal(job, "pods", "mnist-worker-1", retry_at=T0 + 4 * SECONDS)
    early = plan(job, Children(refusals=(refusal,)), T0)
    assert creates(early) == []  # the other one would be refused as well
    assert early.requeue_at == T0 + 4 * SECONDS
    assert not_running_reason(early)[0] == "QuotaExceeded"
    in_time = plan(job, Children(refusals=(refusal,)), T0 + 4 * SECONDS)
    assert creates(in_time) == ["mnist-worker-0", "mnist-worker-1"]
    assert in_time.requeue_at is None


def test_a_name_that_is_taken_keeps_no_other_pod_back() -> None:
    job = make_job(workers=3)
    refusal = make_refusal(job, "pods", "mnist-worker-1", reason="NameConflict")
    assert creates(plan(job, Children(refusals=(refusal,)), T0)) == ["mnist-worker-0", "mnist-worker-2"]


def test_the_earliest_retry_wakes_us() -> None:
    job = make_job(workers=3)
    later = tuple(make_refusal(job, "pods", f"mnist-worker-{i}", retry_at=T0 + (9 - i) * SECONDS) for i in range(3))
    assert plan(job, Children(refusals=later), T0).requeue_at == T0 + 7 * SECONDS


def test_a_service_that_was_refused_does_not_keep_its_pod_back() -> None:
    job = make_job(workers=1, intranet="Service")
    desired = plan(job, Children(refusals=(make_refusal(job, "services", "mnist-worker-0"),)), T0)
    assert [each.kind for each in writes_of(desired) if isinstance(each, Create)] == [PODS]


def test_barrier_with_name_conflict_waits_for_retry_time() -> None:
    job = make_job(workers=2)
    refusal = make_refusal(job, "configmaps", "mnist", reason="NameConflict", message="another object has this name")
    desired = plan(job, Children(make_waiting_pods(job), refusals=(refusal,)), T0)
    assert writes_of(desired) == []  # nobody is woken for a barrier that is not there
    assert not_running_reason(desired)[0] == "NameConflict"
    assert desired.requeue_at == refusal.retry_at
    assert creates(plan(job, Children(make_waiting_pods(job), refusals=(refusal,)), refusal.retry_at)) == ["mnist"]


def test_barrier_name_must_be_free_before_pods() -> None:
    """A ConfigMap of somebody else would let containers start with what it says."""
    job = make_job(workers=2)
    assert plan(job, Children(), T0).required_names == ((CONFIG_MAPS, job.key),)
    for children in (Children(make_pods(job, phase="Pending")), make_running_children(job)):
        assert plan(job, children, T0).required_names == ()
    assert plan(make_job(workers=2, elastic=1), Children(), T0, ETCD).required_names == ()


def test_while_the_name_of_the_barrier_is_taken_no_pod_is_made() -> None:
    job = make_job(workers=2)
    refusal = make_refusal(job, "configmaps", "mnist", reason="NameConflict", message="another object has this name")
    desired = plan(job, Children(refusals=(refusal,)), T0)
    assert (writes_of(desired), desired.required_names) == ([], ())
    assert desired.requeue_at == refusal.retry_at
    assert len(creates(plan(job, Children(refusals=(refusal,)), refusal.retry_at))) == 2
