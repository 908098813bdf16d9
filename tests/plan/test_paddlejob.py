"""The life of a job, decision by decision."""

import msgspec
import pytest

from paddle_operator.api.paddlejob import Intranet, PaddleJobStatus, RoleStatus
from paddle_operator.kube.objects import CONFIG_MAPS, PODS
from paddle_operator.kube.writes import DeleteAll, StatusOrder
from paddle_operator.plan.children import Children
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.paddlejob import PlanContext, plan
from tests.support.jobs import (
    ETCD,
    GO_FINALIZER,
    SECONDS,
    T0,
    creates,
    deletes,
    deletes_all,
    get_condition,
    make_barrier,
    make_job,
    make_pod,
    make_pods,
    make_refusal,
    make_running_children,
    make_services,
    make_waiting_pod,
    not_running_reason,
    patches,
    reasons,
    with_pods,
    with_replicas,
    with_spec,
    with_status,
    without_pods,
    writes_of,
)

# Scale, vanish, move: after the barrier


def restarts(job: Job, children: Children, why: str) -> None:
    desired = plan(job, children, T0)
    message = f"{why}; replacing all pods"
    assert desired.status.phase == "Restarting"
    assert desired.status.attempt == 1
    assert not_running_reason(desired) == ("Restarting", message)
    assert writes_of(desired) == []  # first it is written down
    assert [(each.reason, each.note, each.warning) for each in desired.events] == [("Restarting", message, True)]


@pytest.mark.parametrize("replicas", [1, 3])
def test_changed_replicas_after_the_barrier_restart_the_job(replicas: int) -> None:
    job = make_job(ps=1, workers=2)
    restarts(
        with_replicas(job, worker=replicas),
        make_running_children(job),
        f"replicas changed from ps=1,worker=2 to ps=1,worker={replicas}",
    )


def test_a_role_that_is_removed_restarts_the_job_without_it() -> None:
    job = make_job(workers=2, heter=1)
    restarts(
        with_spec(job, heter=None), make_running_children(job), "replicas changed from worker=2,heter=1 to worker=2"
    )


def test_before_the_barrier_a_role_that_is_removed_just_goes() -> None:
    job = make_job(workers=1, heter=1)
    desired = plan(with_spec(job, heter=None), Children(make_pods(job, phase="Pending")), T0)
    assert deletes(desired) == ["mnist-heter-0"]
    assert desired.status.attempt == 0


def test_a_pod_that_vanished_restarts_the_job() -> None:
    job = make_job(workers=3)
    restarts(job, without_pods(make_running_children(job), "mnist-worker-1"), "mnist-worker-1 was deleted")
    restarts(
        job,
        without_pods(make_running_children(job), "mnist-worker-1", "mnist-worker-2"),
        "mnist-worker-1 and 1 more were deleted",
    )


@pytest.mark.parametrize("end", [None, 143, 15, 137])
def test_terminating_pod_is_lost_whatever_its_exit_code(end: int | None) -> None:
    job = make_job(workers=2)
    going = make_pod(job, "worker", 1, terminating=True, exit_code=end)
    restarts(job, with_pods(make_running_children(job), going), "mnist-worker-1 was deleted")


def test_a_pod_with_another_address_restarts_the_job() -> None:
    job = make_job(workers=2)
    moved = make_pod(job, "worker", 1, address="10.9.9.9")
    restarts(job, with_pods(make_running_children(job), moved), "the address of a pod changed")


def test_a_pod_that_has_lost_its_address_is_waited_for() -> None:
    job = make_job(workers=2)
    desired = plan(job, with_pods(make_running_children(job), make_pod(job, "worker", 1, address="", ready=False)), T0)
    assert desired.status.attempt == 0
    assert not_running_reason(desired)[0] == "WaitingForAddresses"


def test_service_mode_tolerates_a_changed_address() -> None:
    job = make_job(workers=2, intranet="Service")
    moved = make_pod(job, "worker", 1, address="10.9.9.9")
    assert plan(job, with_pods(make_running_children(job), moved), T0).status.attempt == 0


def test_deleted_service_is_recreated_without_restart() -> None:
    job = make_job(workers=2, intranet="Service")
    there = make_running_children(job)
    desired = plan(job, Children(there.pods, there.config_maps, there.services[:1]), T0)
    assert creates(desired) == ["mnist-worker-1"]
    assert desired.status.attempt == 0


def test_a_restart_counts_nobody_of_before() -> None:
    job = with_status(make_job(workers=2), PaddleJobStatus(worker=RoleStatus(replicas=2, succeeded=1)))
    children = with_pods(make_running_children(job), make_pod(job, "worker", 0, exit_code=0))
    status = plan(job, without_pods(children, "mnist-worker-1"), T0).status
    assert status.worker == RoleStatus()
    assert status.ready == "0/2"


def test_next_attempt_waits_for_the_old_barrier_to_go() -> None:
    """Containers would start with the addresses of before."""
    old, new = make_job(ps=1, workers=2), make_job(ps=1, workers=2, attempt=1, phase="Restarting")
    first = plan(new, make_running_children(old), T0)
    assert deletes(first, CONFIG_MAPS) == ["mnist"]
    assert deletes_all(first)
    assert creates(first) == []
    gone = plan(new, Children(make_pods(old, terminating=True)), T0)
    assert writes_of(gone) == []
    assert not_running_reason(gone)[0] == "PodsTerminating"
    assert len(creates(plan(new, Children(), T0), PODS)) == 3


def test_a_place_is_taken_anew_as_soon_as_it_is_free() -> None:
    old, new = make_job(workers=3), make_job(workers=3, attempt=1, phase="Restarting")
    left = make_pods(old, terminating=True)[1:]
    assert creates(plan(new, Children(left), T0)) == ["mnist-worker-0"]


def test_pods_of_the_new_attempt_stay_while_those_of_the_last_go() -> None:
    old, new = make_job(workers=5), make_job(workers=5, attempt=1, phase="Restarting")
    children = Children((make_pod(new, "worker", 0, phase="Pending"), *make_pods(old)[1:]))
    desired = plan(new, children, T0)
    assert not deletes_all(desired)
    assert deletes(desired) == [f"mnist-worker-{index}" for index in (4, 3, 2, 1)]


def test_the_barrier_on_its_way_out_is_not_deleted_twice() -> None:
    job = make_job(workers=1, attempt=1, phase="Restarting")
    assert writes_of(plan(job, Children((), (make_barrier(job, attempt=0, terminating=True),)), T0)) == []


# Success


def test_job_completes_with_its_workers() -> None:
    job = make_job(ps=2, workers=2, phase="Running", start_time=T0)
    done = [make_pod(job, "worker", i, exit_code=0, finished_at=T0 + (i + 1) * SECONDS) for i in range(2)]
    desired = plan(job, with_pods(make_running_children(job), *done), T0 + 60 * SECONDS)
    status = desired.status
    assert (status.phase, status.ready) == ("Completed", "4/4")
    assert status.ps
    assert (status.ps.succeeded, status.ps.running, status.ps.replicas) == (2, 0, 2)
    assert (status.start_time, status.completion_time) == (T0, T0 + 2 * SECONDS)
    completed = get_condition(status, "Completed")
    assert (completed.status, completed.reason) == ("True", "WorkersSucceeded")
    assert completed.message == "all 2 workers succeeded"
    assert get_condition(status, "Running").status == "False"
    assert isinstance(writes_of(desired)[0], DeleteAll)
    assert [(each.reason, each.note) for each in desired.events] == [
        ("Completed", "all 2 workers succeeded; deleting the pods: spec.cleanPodPolicy is OnCompletion"),
    ]


def test_a_job_of_which_one_worker_still_runs_is_not() -> None:
    job = make_job(ps=1, workers=2, phase="Running")
    desired = plan(job, with_pods(make_running_children(job), make_pod(job, "worker", 0, exit_code=0)), T0)
    assert desired.status.phase == "Running"


@pytest.mark.parametrize("lost", ["vanished", "failed"])
def test_servers_do_not_matter_once_workers_succeeded(lost: str) -> None:
    job = make_job(ps=1, workers=1, phase="Running")
    children = with_pods(
        make_running_children(job), make_pod(job, "worker", 0, exit_code=0), make_pod(job, "ps", 0, exit_code=1)
    )
    status = plan(job, without_pods(children, "mnist-ps-0") if lost == "vanished" else children, T0).status
    assert status.phase == "Completed"
    assert status.ps
    assert (status.ps.succeeded, status.ps.failed) == (1, 0)


def test_unobserved_short_job_has_a_start_time() -> None:
    job = make_job(workers=1, phase="Starting")
    pod = make_pod(job, "worker", 0, exit_code=0, finished_at=T0)
    status = plan(job, with_pods(make_running_children(job), pod), T0 + 5 * SECONDS).status
    assert status.start_time == status.completion_time == T0


@pytest.mark.parametrize("skew", [-30, 30])
def test_wrong_node_clock_keeps_times_in_order(skew: int) -> None:
    job = make_job(workers=1, phase="Running", start_time=T0)
    pod = make_pod(job, "worker", 0, exit_code=0, finished_at=T0 + skew * SECONDS)
    status = plan(job, with_pods(make_running_children(job), pod), T0 + 5 * SECONDS).status
    assert status.completion_time in (T0, T0 + 5 * SECONDS)


def test_deleted_succeeded_worker_does_not_restart() -> None:
    """A node that is scaled away takes the pods that are done with it; the other workers go on for hours."""
    job = make_job(ps=1, workers=2, phase="Running")
    children = with_pods(make_running_children(job), make_pod(job, "worker", 0, exit_code=0))
    counted = with_status(job, plan(job, children, T0).status)
    without_it = without_pods(children, "mnist-worker-0")
    for second in range(1, 4):  # the count outlives the pod
        desired = plan(counted, without_it, T0 + second * SECONDS)
        assert (desired.status.phase, desired.status.ready) == ("Running", "3/3")
        assert writes_of(desired) == []
        counted = with_status(counted, desired.status)
    ended = plan(counted, with_pods(without_it, make_pod(job, "worker", 1, exit_code=0)), T0 + 9 * SECONDS)
    assert ended.status.phase == "Completed"


def test_running_sidecar_does_not_block_completion() -> None:
    job = make_job(workers=1, phase="Running")
    pod = make_pod(job, "worker", 0, phase="Running", exit_code=0, ready=False)
    desired = plan(job, with_pods(make_running_children(job), pod), T0)
    assert desired.status.phase == "Completed"
    assert deletes(desired) == ["mnist-worker-0"]


# Failure


def test_failed_job_names_its_cause_and_stops_its_pods() -> None:
    job = make_job(ps=1, workers=2, phase="Running", start_time=T0)
    cause = make_pod(job, "worker", 1, exit_code=137, exit_reason="OOMKilled", finished_at=T0 + 3 * SECONDS)
    desired = plan(job, with_pods(make_running_children(job), cause), T0 + 4 * SECONDS)
    said = "mnist-worker-1 exited 137 (OOMKilled): it used more memory than its limit allows"
    assert desired.status.phase == "Failed"
    failed = get_condition(desired.status, "Failed")
    assert (failed.status, failed.reason, failed.message) == ("True", "PodFailed", said)
    assert get_condition(desired.status, "Running").reason == "Failed"
    assert desired.status.worker
    assert (desired.status.worker.failed, desired.status.worker.running) == (1, 1)
    assert sorted(patches(desired)) == ["mnist-ps-0", "mnist-worker-0"]
    assert [(each.reason, each.note, each.warning) for each in desired.events] == [
        ("Failed", f"{said}; stopping the running pods: spec.cleanPodPolicy is OnCompletion", True),
    ]


# How often the status is written


def test_counters_go_out_once_a_second_and_a_phase_at_once() -> None:
    job = make_job(workers=3)
    pods = make_pods(job, phase="Pending")
    status = plan(job, Children(pods), T0).status
    job = with_status(job, status)
    written = PlanContext(status_written_at=T0)
    unknown = with_pods(Children(pods), make_pod(job, "worker", 0, phase="Unknown"))
    early = plan(job, unknown, T0 + 0.4 * SECONDS, written)
    assert early.status == status
    assert early.requeue_at == T0 + SECONDS
    assert plan(job, unknown, T0 + SECONDS, written).status != status
    assert plan(job, unknown, T0, PlanContext()).status != status
    starting = with_pods(Children(pods), make_waiting_pod(job, "worker", 0))
    assert plan(job, starting, T0 + 0.4 * SECONDS, written).status.phase == "Starting"


def test_where_nothing_changed_nobody_is_woken() -> None:
    job = make_job(workers=2)
    job = with_status(job, plan(job, make_running_children(job), T0).status)
    assert (
        plan(job, make_running_children(job), T0 + 0.5 * SECONDS, PlanContext(status_written_at=T0)).requeue_at is None
    )


def test_steps_are_throttled_and_obstacles_are_not() -> None:
    job = make_job(workers=2)
    job = with_status(job, plan(job, Children(), T0).status)
    written = PlanContext(status_written_at=T0)
    made = Children(make_pods(job, phase="Pending"))
    early = plan(job, made, T0, written)
    assert (early.status, early.events, early.status_order) == (job.status, (), StatusOrder.THROTTLED)
    late = plan(job, made, T0 + SECONDS, written)
    assert not_running_reason(late)[0] == "WaitingForAddresses"
    assert ([each.reason for each in late.events], late.status_order) == (["WaitingForAddresses"], StatusOrder.FIRST)
    stuck = with_pods(made, make_pod(job, "worker", 0, phase="Pending", unschedulable="no room"))
    assert not_running_reason(plan(job, stuck, T0, written))[0] == "Unschedulable"


def test_counters_wait_longer_where_many_jobs_change_at_once() -> None:
    job = make_job(workers=2)
    job = with_status(job, plan(job, Children(), T0).status)
    crowded = PlanContext(status_written_at=T0, status_interval=9 * SECONDS)
    made = Children(make_pods(job, phase="Pending"))
    assert plan(job, made, T0 + 8 * SECONDS, crowded).requeue_at == T0 + 9 * SECONDS
    assert not_running_reason(plan(job, made, T0 + 9 * SECONDS, crowded))[0] == "WaitingForAddresses"


def test_progress_events_are_suppressed_under_load() -> None:
    job = make_job(workers=2)
    job = with_status(job, plan(job, Children(), T0).status)
    pods = make_pods(job, phase="Pending")
    crowded = PlanContext(status_written_at=T0, status_interval=10 * SECONDS)
    waiting = plan(job, Children(pods), T0 + 10 * SECONDS, crowded)
    assert (not_running_reason(waiting)[0], waiting.events) == ("WaitingForAddresses", ())
    started = Children(tuple(make_waiting_pod(job, "worker", index) for index in range(2)))
    starting = plan(job, started, T0 + 60 * SECONDS, PlanContext(status_written_at=T0))
    assert (starting.status.phase, not_running_reason(starting)[0]) == ("Starting", "StartingContainers")
    assert starting.events == ()


def test_an_obstacle_that_is_gone_is_told() -> None:
    job = make_job(workers=2)
    stuck = Children(make_pods(job, phase="Pending", unschedulable="no room"))
    job = with_status(job, plan(job, stuck, T0).status)
    assert not_running_reason(plan(job, stuck, T0))[0] == "Unschedulable"
    written = PlanContext(status_written_at=T0)
    freed = plan(job, Children(make_pods(job, phase="Pending")), T0 + SECONDS, written)
    assert [each.reason for each in freed.events] == ["WaitingForAddresses"]


def test_what_is_to_be_done_is_done_though_its_counters_wait() -> None:
    job = make_job(workers=2)
    pods = make_pods(job, phase="Pending")
    job = with_status(job, plan(job, Children(pods[:1]), T0).status)
    refusal = make_refusal(job, "pods", "mnist-worker-1", reason="NameConflict", retry_at=T0 + 0.5 * SECONDS)
    desired = plan(job, Children((), refusals=(refusal,)), T0, PlanContext(status_written_at=T0))
    assert creates(desired) == ["mnist-worker-0"]
    assert desired.requeue_at == T0 + 0.5 * SECONDS


# Elastic


def test_elastic_job_without_etcd_reports_the_fix() -> None:
    desired = plan(make_job(workers=2, elastic=1), Children(), T0)
    assert writes_of(desired) == []
    assert desired.status.phase == "Pending"
    assert not_running_reason(desired) == (
        "EtcdNotConfigured",
        "spec.elastic requires etcd: start the operator with --etcd-server=host:port, or remove spec.elastic",
    )
    assert desired.events[0].warning


def test_running_elastic_job_continues_without_etcd() -> None:
    job = make_job(workers=2, elastic=1, phase="Running")
    assert plan(job, Children(make_pods(job)), T0).status.phase == "Running"
    assert not_running_reason(plan(job, Children(make_pods(job, ready=False)), T0))[0] == "StartingContainers"
    assert plan(job, Children(make_pods(job, exit_code=0)), T0).status.phase == "Completed"


def test_an_elastic_job_has_no_barrier_and_its_pods_come_and_go() -> None:
    job = make_job(workers=3, elastic=1, phase="Running")
    assert writes_of(plan(job, Children(make_pods(job)), T0, ETCD)) == []
    lost = plan(job, Children(make_pods(job)[:2]), T0, ETCD)
    assert (creates(lost), lost.status.attempt) == (["mnist-worker-2"], 0)
    fewer = plan(with_replicas(job, worker=2), Children(make_pods(job)), T0, ETCD)
    assert (deletes(fewer), fewer.status.attempt) == (["mnist-worker-2"], 0)


def test_succeeded_elastic_worker_is_not_recreated() -> None:
    job = make_job(workers=2, elastic=1, phase="Running")
    pods = (make_pod(job, "worker", 0, exit_code=0), make_pod(job, "worker", 1))
    counted = with_status(job, plan(job, Children(pods), T0, ETCD).status)
    assert writes_of(plan(counted, Children(pods[1:]), T0 + SECONDS, ETCD)) == []


# Deletion, and what cannot be read


def test_deleted_job_loses_the_go_finalizer() -> None:
    job = make_job(workers=2, phase="Running", deleted_at=T0, finalizers=("foregroundDeletion", GO_FINALIZER))
    desired = plan(job, Children(), T0)
    assert desired.status.phase == "Terminating"
    assert patches(desired) == {"mnist": {"metadata": {"finalizers": ["foregroundDeletion"], "resourceVersion": "7"}}}
    assert len(writes_of(desired)) == 1


def test_deleted_job_without_finalizer_is_left_alone() -> None:
    job = make_job(workers=2, phase="Running", deleted_at=T0)
    desired = plan(job, Children(), T0)
    assert (desired.status, desired.waves) == (job.status, ())


def test_invalid_spec_is_reported_and_children_left_alone() -> None:
    job = msgspec.structs.replace(make_job(workers=1), spec=None, problems=("spec.worker is wrong", "and so is more"))
    desired = plan(job, make_running_children(make_job(workers=1)), T0)
    found = get_condition(desired.status, "Accepted")
    assert (found.status, found.reason, found.message) == (
        "False",
        "SpecInvalid",
        "spec.worker is wrong; and so is more",
    )
    assert (desired.status.phase, desired.waves) == ("Pending", ())
    assert [(each.reason, each.warning) for each in desired.events] == [("SpecInvalid", True)]
    assert reasons(plan(with_status(job, desired.status), Children(), T0 + SECONDS)) == []


def test_invalid_job_loses_the_go_finalizer() -> None:
    job = make_job(workers=1, finalizers=(GO_FINALIZER,))
    broken = msgspec.structs.replace(job, spec=None, problems=("wrong",))
    assert list(patches(plan(broken, make_running_children(job), T0))) == ["mnist"]


def test_invalid_spec_leaves_the_other_status_fields() -> None:
    job = msgspec.structs.replace(make_job(workers=1, phase="Completed"), spec=None, problems=("wrong",))
    assert plan(job, Children(), T0).status.phase == "Completed"


def test_a_spec_that_was_mended_is_accepted() -> None:
    broken = msgspec.structs.replace(make_job(workers=1), spec=None, problems=("wrong",))
    job = with_status(make_job(workers=1), plan(broken, Children(), T0).status)
    for children in (Children(), make_running_children(job), Children(make_pods(job, exit_code=0))):
        assert get_condition(plan(job, children, T0).status, "Accepted").status == "True"


def test_an_object_of_another_namespace_is_not_touched() -> None:
    job = make_job(workers=1, phase="Completed")
    stray = make_pod(job, "worker", 0, namespace="elsewhere")
    assert writes_of(plan(job, Children((stray,)), T0)) == []
    assert creates(plan(make_job(workers=1), Children((stray,)), T0)) == ["mnist-worker-0"]


def test_another_intranet_after_the_barrier_restarts_the_job() -> None:
    job = make_job(workers=2)
    moved = with_spec(job, intranet=Intranet.SERVICE)
    there = make_running_children(job)
    children = Children(there.pods, there.config_maps, make_services(moved))
    assert plan(moved, children, T0).status.attempt == 1
