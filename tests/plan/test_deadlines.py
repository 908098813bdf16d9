"""Deadlines fire at their time though nothing else happens: `Model.wait` looks only when a plan asked to be woken."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from paddle_operator.plan.children import Children
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    ETCD,
    SECONDS,
    T0,
    JSONObject,
    creates,
    get_condition,
    make_job,
    make_pod,
    make_pods,
    make_running_children,
    with_pods,
    with_status,
    without_pods,
    writes_of,
)
from tests.support.model import Model, start_scenario


def alive(shape: JSONObject | None = None, **policies: Any) -> Model:
    shape = shape or {"workers": 2}
    return start_scenario(make_job(**shape, policies=policies), ETCD if shape.get("elastic") else None)


def waiting(shape: JSONObject | None = None, **policies: Any) -> Model:
    """Its pods are made, and get no further."""
    shape = shape or {"workers": 2}
    model = Model(make_job(**shape, policies=policies), Children(), T0, ETCD if shape.get("elastic") else None)
    model.reconcile_until_idle()
    return model


def failed(life: Model) -> tuple[str, str, datetime | None]:
    found = get_condition(life.status, "Failed")
    assert life.status.phase == "Failed"
    return found.reason, found.message, life.status.completion_time


# The whole job


def test_job_fails_exactly_at_its_active_deadline() -> None:
    life = alive(activeDeadlineSeconds=3600)
    life.advance(3599)
    assert life.status.phase == "Running"
    life.advance(1)
    assert failed(life) == (
        "DeadlineExceeded",
        "not finished within spec.activeDeadlineSeconds, which is 3600",
        T0 + 3600 * SECONDS,
    )


def test_the_time_before_all_pods_run_counts() -> None:
    life = waiting(activeDeadlineSeconds=60)
    life.advance(50)
    life.run_all_pods()
    life.advance(10)
    assert failed(life)[0] == "DeadlineExceeded"


def test_tries_and_pauses_count_as_well() -> None:
    life = alive(activeDeadlineSeconds=15, backoffLimit=5)
    life.exit_pod("mnist-worker-0", 1)
    life.advance(10)
    life.run_all_pods()
    life.exit_pod("mnist-worker-0", 1)
    life.advance(4)
    assert life.status.phase == "Restarting"
    life.advance(1)
    assert failed(life)[0] == "DeadlineExceeded"
    assert (life.pods, life.status.next_attempt_time) == ({}, None)


def test_missed_deadline_is_enforced_later() -> None:
    life = alive(activeDeadlineSeconds=60)
    life.now = T0 + 5000 * SECONDS
    life.reconcile_until_idle()
    assert failed(life)[0] == "DeadlineExceeded"


def test_success_in_time_beats_the_deadline() -> None:
    life = alive(activeDeadlineSeconds=60)
    for name in list(life.pods):
        life.exit_pod(name, 0)
    life.now = T0 + 5000 * SECONDS
    assert life.reconcile_until_idle().requeue_at is None
    assert life.status.phase == "Completed"


def test_a_cause_that_is_known_is_told_rather_than_the_deadline() -> None:
    life = alive(activeDeadlineSeconds=60)
    life.exit_pod("mnist-worker-0", 1)
    life.now = T0 + 60 * SECONDS
    life.reconcile_until_idle()
    assert failed(life)[0] == "PodFailed"


def test_another_deadline_is_heard_while_the_job_runs() -> None:
    life = alive(activeDeadlineSeconds=60)
    life.update_spec(active_deadline_seconds=90)
    life.advance(89)
    assert life.status.phase == "Running"
    life.update_spec(active_deadline_seconds=None)
    life.advance(1000)
    assert life.status.phase == "Running"
    life.update_spec(active_deadline_seconds=900)
    life.reconcile_until_idle()
    assert failed(life)[0] == "DeadlineExceeded"


def test_the_time_in_which_a_spec_broke_the_rules_does_not_count() -> None:
    mended = make_job(workers=1, policies={"activeDeadlineSeconds": 60})
    broken = msgspec.structs.replace(mended, spec=None, problems=("spec.worker is wrong",))
    job = with_status(mended, plan(broken, Children(), T0).status)
    later = T0 + 3600 * SECONDS
    desired = plan(job, Children(), later)
    assert creates(desired) == ["mnist-worker-0"]
    assert desired.requeue_at == later + 60 * SECONDS


def test_a_clock_that_goes_back_brings_no_deadline_nearer() -> None:
    job = make_job(workers=1, policies={"activeDeadlineSeconds": 60})
    job = with_status(job, plan(job, make_running_children(job), T0).status)
    assert plan(job, make_running_children(job), T0 - 30 * SECONDS).requeue_at == T0 + 30 * SECONDS


# The start


def test_start_deadline_names_what_was_missing() -> None:
    life = waiting(startDeadlineSeconds=60)
    life.assign_address("mnist-worker-0")
    life.advance(59)
    assert life.status.phase == "Starting"
    life.advance(1)
    assert failed(life) == (
        "StartDeadlineExceeded",
        "not started within spec.startDeadlineSeconds, which is 60: 1 of 2 pods have no address yet",
        T0 + 60 * SECONDS,
    )


def test_where_no_pod_can_be_made_the_reason_is_told() -> None:
    life = Model(make_job(workers=2, elastic=1, policies={"startDeadlineSeconds": 5}), Children(), T0)
    life.advance(5)
    assert "spec.elastic requires etcd" in failed(life)[1]


def test_one_pod_that_has_not_started_is_enough() -> None:
    life = waiting(startDeadlineSeconds=60)
    for name in list(life.pods):
        life.assign_address(name)
    life.reconcile_until_idle()
    life.start_container("mnist-worker-0")
    life.advance(60)
    assert failed(life)[0] == "StartDeadlineExceeded"


@pytest.mark.parametrize("ready", [True, False])
def test_a_pod_has_started_when_its_container_has_ready_or_not(ready: bool) -> None:
    life = alive(startDeadlineSeconds=60)
    life.pods = {name: msgspec.structs.replace(pod, ready=ready) for name, pod in life.pods.items()}
    life.advance(1)
    assert life.plan().requeue_at is None
    life.advance(1000)
    assert life.status.phase == ("Running" if ready else "Starting")


def test_start_deadline_begins_again_at_each_attempt() -> None:
    life = alive(startDeadlineSeconds=60, backoffLimit=1)
    life.advance(500)
    life.exit_pod("mnist-worker-0", 1)
    life.advance(10 + 59)
    assert life.status.phase == "Restarting"
    life.advance(1)
    assert failed(life)[0] == "StartDeadlineExceeded"


@pytest.mark.parametrize("shape", [{"workers": 2}, {"ps": 1, "workers": 2, "with_gloo": 0}], ids=str)
def test_late_deleted_pod_has_a_start_deadline(shape: JSONObject) -> None:
    """The start was in time: what comes later is another one."""
    life = alive(shape, startDeadlineSeconds=60)
    life.advance(5000)
    del life.pods["mnist-worker-1"]
    life.reconcile_until_idle()
    assert life.status.phase in ("Restarting", "Starting")
    life.advance(59)
    assert life.status.phase in ("Restarting", "Starting")
    life.advance(1)
    assert failed(life)[0] == "StartDeadlineExceeded"


def test_a_pod_that_vanishes_and_comes_back_in_time_is_no_matter() -> None:
    life = alive(startDeadlineSeconds=60)
    life.advance(5000)
    life.delete_pod("mnist-worker-1")
    life.advance(30)
    life.run_all_pods()
    life.advance(5000)
    assert (life.status.phase, life.status.attempt) == ("Running", 1)


def test_elastic_pods_start_together_once_and_then_come_and_go() -> None:
    life = alive({"workers": 2, "elastic": 1}, startDeadlineSeconds=60)
    del life.pods["mnist-worker-1"]
    life.advance(1000)
    assert life.status.phase == "Starting"
    stuck = waiting({"workers": 2, "elastic": 1}, startDeadlineSeconds=60)
    stuck.advance(60)
    assert failed(stuck)[0] == "StartDeadlineExceeded"


def test_of_two_deadlines_the_first_wakes() -> None:
    life = waiting(startDeadlineSeconds=60, activeDeadlineSeconds=100)
    life.advance(1)
    assert life.plan().requeue_at == T0 + 60 * SECONDS
    life.run_all_pods()
    life.advance(1)
    assert life.plan().requeue_at == T0 + 100 * SECONDS


# After the end


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("ttl", [0, 3, 86400])
def test_a_finished_job_is_deleted_at_its_time_and_once(code: int, ttl: int) -> None:
    life = alive({"workers": 1}, ttlSecondsAfterFinished=ttl)
    life.advance(100)
    life.exit_pod("mnist-worker-0", code)
    if ttl:
        life.advance(ttl - 1)
        assert life.deleted_at is None
    life.advance(1)
    assert life.deleted_at == T0 + (100 + ttl) * SECONDS
    life.advance(100)


def test_without_a_time_to_live_a_job_stays() -> None:
    life = alive({"workers": 1})
    life.exit_pod("mnist-worker-0", 0)
    assert life.reconcile_until_idle().requeue_at is None


def test_ttl_counts_from_the_completion_time() -> None:
    life = alive({"workers": 1}, ttlSecondsAfterFinished=60)
    life.exit_pod("mnist-worker-0", 0)
    life.now = T0 + 3600 * SECONDS
    life.reconcile_until_idle()
    assert (life.status.completion_time, life.deleted_at) == (T0, life.now)


def test_a_time_to_live_that_is_given_after_the_end_is_heard() -> None:
    life = alive({"workers": 1})
    life.exit_pod("mnist-worker-0", 0)
    life.advance(100)
    life.update_spec(ttl_seconds_after_finished=300)
    life.advance(199)
    assert life.deleted_at is None
    life.advance(1)
    assert life.deleted_at == T0 + 300 * SECONDS


def test_job_without_completion_time_has_no_ttl() -> None:
    """Go operators of old wrote none; nobody can tell how long it has been there."""
    job = make_job(workers=1, phase="Completed", policies={"ttlSecondsAfterFinished": 0})
    assert writes_of(plan(job, Children(), T0)) == []


def test_the_pods_of_a_failed_job_are_kept_until_the_job_goes() -> None:
    job = make_job(workers=1, phase="Failed", completion_time=T0, policies={"ttlSecondsAfterFinished": 60})
    there = Children(make_pods(job, exit_code=1))
    assert (writes_of(plan(job, there, T0)), plan(job, there, T0).requeue_at) == ([], T0 + 60 * SECONDS)


# Never without a time at which to wake


def test_who_waits_for_a_cause_is_woken_by_a_deadline_as_well() -> None:
    job = make_job(workers=2, phase="Running", policies={"activeDeadlineSeconds": 3})
    job = with_status(job, plan(job, make_running_children(job), T0).status)
    victim = make_pod(job, "worker", 0, exit_code=134, finished_at=T0)
    assert plan(job, with_pods(make_running_children(job), victim), T0).requeue_at == T0 + 3 * SECONDS
    vanished = without_pods(make_running_children(job), "mnist-worker-0")
    assert plan(job, vanished, T0).requeue_at == T0 + 3 * SECONDS


def test_waiting_for_old_barrier_keeps_the_requeue() -> None:
    """Somebody's finalizer holds the ConfigMap: no event is to come."""
    job = make_job(workers=1, policies={"backoffLimit": 1}, phase="Running")
    there = with_pods(make_running_children(job), make_pod(job, "worker", 0, exit_code=1, finished_at=T0))
    again = with_status(job, plan(job, there, T0).status)
    assert plan(again, Children((), there.config_maps), T0).requeue_at == T0 + 10 * SECONDS


def test_never_ready_job_gets_a_full_start_deadline() -> None:
    job = make_job(workers=2, policies={"startDeadlineSeconds": 60})
    started = make_running_children(job, ready=False)
    first = with_status(job, plan(job, started, T0).status)
    later = T0 + 5000 * SECONDS
    desired = plan(first, without_pods(started, "mnist-worker-1"), later)
    assert (desired.status.phase, desired.status.attempt_time) == ("Restarting", later)
    again = plan(with_status(job, desired.status), Children(), later + 59 * SECONDS)
    assert again.status.phase == "Restarting"
    assert again.requeue_at == later + 60 * SECONDS
    late = plan(with_status(job, again.status), Children(), later + 60 * SECONDS)
    assert get_condition(late.status, "Failed").reason == "StartDeadlineExceeded"
