"""Counts, phases, conditions: what people are told, and how little of it."""

from typing import Any

import msgspec
import pytest

from paddle_operator.api.paddlejob import PaddleJobStatus, RoleStatus, read_status
from paddle_operator.plan.children import Children
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    SECONDS,
    T0,
    UID,
    get_condition,
    make_barrier,
    make_job,
    make_pod,
    make_pods,
    make_refusal,
    make_running_children,
    make_waiting_pod,
    not_running_reason,
    reasons,
    with_pods,
    with_status,
)

# Counts


def test_pods_are_counted_by_role_and_sort() -> None:
    job = make_job(ps=1, workers=6)
    pods = (
        make_pod(job, "ps", 0),
        make_pod(job, "worker", 0),
        make_pod(job, "worker", 1, exit_code=0),
        make_pod(job, "worker", 2, phase="Pending"),
        make_waiting_pod(job, "worker", 3),
        make_pod(job, "worker", 4, phase="Unknown"),
        make_pod(job, "worker", 5),
    )
    status = plan(job, Children(pods), T0).status
    assert status.ps
    assert msgspec.structs.replace(status.ps, refs=()) == RoleStatus(replicas=1, running=1)
    assert status.worker
    assert msgspec.structs.replace(status.worker, refs=()) == RoleStatus(
        replicas=6, running=2, succeeded=1, pending=1, starting=1, unknown=1
    )
    assert status.heter is None
    assert status.ready == "4/7"


def test_the_first_sixteen_pods_of_a_role_are_named() -> None:
    job = make_job(workers=20)
    worker = plan(job, make_running_children(job), T0).status.worker
    assert worker
    assert [each.name for each in worker.refs] == [f"mnist-worker-{index}" for index in range(16)]
    assert (worker.refs[0].uid, worker.refs[0].namespace) == ("mnist-worker-0-0", "paddle-system")


def test_a_role_that_left_the_spec_leaves_the_status() -> None:
    job = with_status(make_job(workers=2), PaddleJobStatus(heter=RoleStatus(replicas=3, running=3)))
    assert plan(job, make_running_children(job), T0).status.heter is None


def test_status_has_mode_generation_and_selector() -> None:
    job = make_job(workers=2)
    status = plan(job, make_running_children(job), T0).status
    assert (status.mode, status.observed_generation) == ("Collective", 1)
    assert status.selector == f"batch.paddlepaddle.org/job-uid={UID},paddle-res-type=worker"


def test_a_status_is_small_however_large_the_job_and_the_words() -> None:
    """The Go operator's had 318 KB for 1,000 workers."""
    name = "n" * 51
    job = make_job(name, ps=100, workers=5000, heter=100)
    refusal = make_refusal(job, "pods", f"{name}-worker-4999", message="字" * 5000)
    before = plan(job, Children(make_pods(job)[:-1], refusals=(refusal,)), T0).status
    failed = make_pod(job, "worker", 0, exit_code=1, exit_reason="x" * 5000)
    status = plan(with_status(job, before), with_pods(make_running_children(job), failed), T0).status
    for each in (before, status):
        written = msgspec.json.encode(each)
        assert len(written) < 16 * 1024
        assert read_status(written) == each


# Phases


@pytest.mark.parametrize(
    ("told", "phase"),
    [
        ([{"phase": "Pending"}, {"phase": "Pending"}], "Pending"),
        ([{"phase": "Pending"}, {"phase": "Pending", "address": "10.0.0.1"}], "Starting"),
        ([{"phase": "Pending"}, {"phase": "Running"}], "Starting"),
        ([{"phase": "Running"}, {"phase": "Running", "ready": False}], "Starting"),
        ([{"phase": "Running"}, {"phase": "Running"}], "Running"),
        ([{"phase": "Running"}, {"exit_code": 0}], "Running"),
        ([{"phase": "Running"}, {"phase": "Unknown"}], "Starting"),
        ([{"phase": "Unknown"}, {"phase": "Unknown"}], "Pending"),
    ],
)
def test_the_phase_is_derived_afresh_from_the_pods(told: list[dict[str, Any]], phase: str) -> None:
    for stored in ("", "Pending", "Starting", "Running"):
        job = make_job(workers=2, phase=stored)
        pods = [make_pod(job, "worker", index, **each) for index, each in enumerate(told)]
        assert plan(job, with_pods(make_running_children(job), *pods), T0).status.phase == phase


def test_without_a_pod_a_job_is_pending() -> None:
    assert plan(make_job(workers=2), Children(), T0).status.phase == "Pending"


def test_a_later_attempt_is_restarting_until_its_barrier_is_open() -> None:
    job = make_job(workers=2, phase="Restarting", attempt=1)
    pods = tuple(make_waiting_pod(job, "worker", index) for index in range(2))
    assert plan(job, Children(pods), T0).status.phase == "Restarting"
    assert plan(job, Children(pods, (make_barrier(job),)), T0).status.phase == "Starting"


def test_elastic_job_is_never_restarting() -> None:
    job = make_job(workers=1, elastic=1, attempt=1)
    assert plan(job, Children(make_pods(job)), T0).status.phase == "Running"


def test_the_start_is_when_all_pods_ran_for_the_first_time() -> None:
    job = make_job(workers=1)
    first = plan(job, make_running_children(job), T0).status
    assert first.start_time == T0
    assert plan(with_status(job, first), make_running_children(job), T0 + SECONDS).status.start_time == T0
    assert plan(job, Children(), T0).status.start_time is None


# Conditions


def test_a_condition_keeps_its_time_as_long_as_it_says_the_same() -> None:
    job = make_job(workers=2)
    first = plan(job, Children(), T0).status
    later = plan(with_status(job, first), Children(make_pods(job, phase="Pending")), T0 + 5 * SECONDS).status
    assert get_condition(later, "Running").reason != get_condition(first, "Running").reason
    assert get_condition(later, "Running").last_transition_time == T0
    runs = plan(with_status(job, later), make_running_children(job), T0 + 9 * SECONDS).status
    assert get_condition(runs, "Running").last_transition_time == T0 + 9 * SECONDS
    assert get_condition(runs, "Running").status == "True"
    assert get_condition(runs, "Running").observed_generation == 1


def test_conditions_stand_in_a_fixed_order() -> None:
    job = make_job(workers=1)
    status = plan(job, make_running_children(job), T0).status
    assert [each.type for each in status.conditions] == ["Accepted", "Running"]
    assert get_condition(status, "Accepted").status == "True"


CONTAINER_TROUBLE: list[tuple[dict[str, Any], tuple[str, str]]] = [
    (
        {"waiting": "ImagePullBackOff", "waiting_message": "no such image"},
        ("ImagePullFailed", "mnist-worker-1: no such image"),
    ),
    *(
        ({"waiting": word}, ("ImagePullFailed", f"mnist-worker-1: {word}"))
        for word in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
    ),
    (
        {"waiting": "CreateContainerError", "waiting_message": "no command specified"},
        ("CreateContainerFailed", "mnist-worker-1: no command specified"),
    ),
    (
        {"waiting": "CrashLoopBackOff", "waiting_message": "back-off 10s", "restarts": 3},
        ("CrashLoopBackOff", "mnist-worker-1 has crashed 3 times: back-off 10s"),
    ),
    (
        {"waiting": "CreateContainerConfigError", "waiting_message": 'secret "mine" not found'},
        ("ContainerConfigError", 'mnist-worker-1: secret "mine" not found'),
    ),
    (
        {"unschedulable": "0/4 nodes are available"},
        ("Unschedulable", "mnist-worker-1: 0/4 nodes are available"),
    ),
]


@pytest.mark.parametrize(("told", "said"), CONTAINER_TROUBLE)
def test_what_keeps_a_pod_from_running_is_told(told: dict[str, Any], said: tuple[str, str]) -> None:
    job = make_job(workers=2)
    desired = plan(job, Children((make_pod(job, "worker", 0), make_pod(job, "worker", 1, phase="Pending", **told))), T0)
    assert not_running_reason(desired) == said
    assert [(each.reason, each.note, each.warning) for each in desired.events] == [(*said, True)]


@pytest.mark.parametrize("words", ['configmap "mnist" not found', "failed to sync configmap cache: timed out"])
def test_waiting_for_the_barrier_is_progress(words: str) -> None:
    """Kubelet goes on saying so until it has looked again: no warning for that in every job's life."""
    job = make_job(workers=1)
    pod = make_waiting_pod(job, "worker", 0, waiting_message=words)
    barrier = make_barrier(job)
    for children in (
        Children((pod,)),
        Children((msgspec.structs.replace(pod, nudged_for=barrier.endpoints_digest),), (barrier,)),
    ):
        assert not_running_reason(plan(job, children, T0))[0] == "StartingContainers"


def test_a_refusal_comes_before_what_else_keeps_the_job() -> None:
    job = make_job(workers=2)
    refusal = make_refusal(job, "pods", "mnist-worker-1")
    stuck = make_pod(job, "worker", 0, phase="Pending", unschedulable="0/4 nodes")
    desired = plan(job, Children((stuck,), refusals=(refusal,)), T0)
    assert not_running_reason(desired) == (
        "QuotaExceeded",
        "the API server refused pods mnist-worker-1: exceeded quota: pods",
    )


def test_obsolete_refusal_is_ignored() -> None:
    job = make_job(workers=1)
    refusal = make_refusal(job, "pods", "mnist-worker-1")
    desired = plan(job, Children(make_pods(job, phase="Pending"), refusals=(refusal,)), T0)
    assert not_running_reason(desired)[0] == "WaitingForAddresses"
    assert desired.requeue_at is None


PROGRESS = [
    (Children(), "CreatingPods", "2 of 2 pods are not created yet"),
    (
        Children(make_pods(make_job(workers=2), phase="Pending")),
        "WaitingForAddresses",
        "2 of 2 pods have no address yet",
    ),
    (
        make_running_children(make_job(workers=2), ready=False),
        "StartingContainers",
        "2 of 2 pods are starting",
    ),
    (
        Children((*make_pods(make_job(workers=2), phase="Pending", terminating=True),)),
        "PodsTerminating",
        "waiting for 2 pods of the previous attempt to terminate",
    ),
    (make_running_children(make_job(workers=2)), "AllPodsRunning", "all pods run"),
]


@pytest.mark.parametrize(("children", "reason", "message"), PROGRESS)
def test_progress_is_told_and_is_no_warning(children: Children, reason: str, message: str) -> None:
    desired = plan(make_job(workers=2), children, T0)
    assert not_running_reason(desired) == (reason, message)
    assert [each.warning for each in desired.events] == [False]


def test_news_are_told_once() -> None:
    job = make_job(workers=2)
    first = plan(job, Children(), T0)
    assert reasons(first) == ["CreatingPods"]
    assert (
        reasons(plan(with_status(job, first.status), Children(make_pods(job, phase="Pending")[:1]), T0 + 9 * SECONDS))
        == []
    )


def test_another_reason_is_news() -> None:
    job = make_job(workers=2)
    job = with_status(job, plan(job, Children(), T0).status)
    assert reasons(plan(job, Children(make_pods(job, phase="Pending")), T0)) == ["WaitingForAddresses"]
