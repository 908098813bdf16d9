"""Which pod is blamed for a failure, and in which words. Codes as Paddle was seen to end with."""

from datetime import datetime
from typing import Any

import pytest

from paddle_operator.plan.exit_codes import ROOT_FAILURE_WAIT, describe_failure
from paddle_operator.plan.job_view import JobPlan
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    SECONDS,
    T0,
    get_condition,
    make_job,
    make_pod,
    make_running_children,
    with_pods,
    without_pods,
    writes_of,
)


def after(*ends: tuple[int, int, float], now: datetime = T0 + 60 * SECONDS) -> JobPlan:
    """What is decided when workers ended so: index, exit code, seconds after T0."""
    job = make_job(workers=4, phase="Running")
    pods = [make_pod(job, "worker", i, exit_code=code, finished_at=T0 + at * SECONDS) for i, code, at in ends]
    return plan(job, with_pods(make_running_children(job), *pods), now)


def blamed(desired: JobPlan) -> str:
    assert desired.status.phase == "Failed"
    return get_condition(desired.status, "Failed").message.split()[0]


def test_a_pod_that_died_with_its_peer_is_not_blamed() -> None:
    desired = after((0, 134, 0), (2, 139, 2))
    assert get_condition(desired.status, "Failed").message == (
        "mnist-worker-2 exited 139: it crashed with a segmentation fault"
    )


def test_under_launch_the_victims_code_is_another() -> None:
    assert blamed(after((0, 250, 0), (1, 3, 2))) == "mnist-worker-1"


def test_of_several_causes_the_first_is_blamed() -> None:
    assert blamed(after((0, 1, 3), (3, 1, 2), (1, 1, 4))) == "mnist-worker-3"


def test_at_the_same_instant_the_lower_name_is_blamed() -> None:
    assert blamed(after((3, 1, 2), (1, 1, 2))) == "mnist-worker-1"


def test_where_everybody_is_a_victim_the_first_is_blamed() -> None:
    assert blamed(after((2, 134, 1), (0, 134, 2))) == "mnist-worker-2"


def test_the_cause_is_waited_for_while_only_victims_are_known() -> None:
    """Its status comes from another kubelet, and may come later than theirs."""
    desired = after((0, 134, 0), (1, 250, 1), now=T0 + 2 * SECONDS)
    assert desired.status.phase == "Running"
    assert writes_of(desired) == []
    assert desired.requeue_at == T0 + ROOT_FAILURE_WAIT == T0 + 5 * SECONDS


def test_patience_ends_at_its_last_instant() -> None:
    assert after((0, 134, 0), now=T0 + ROOT_FAILURE_WAIT).status.phase == "Failed"


@pytest.mark.parametrize(("ahead", "phase"), [(1, "Running"), (5, "Running"), (6, "Failed"), (3600, "Failed")])
def test_a_node_whose_clock_is_ahead_does_not_keep_a_job_waiting(ahead: int, phase: str) -> None:
    """Without a true time there is nothing to wait from: an hour ahead, the job would stand still for an hour."""
    assert after((0, 134, ahead), now=T0).status.phase == phase


def test_a_cause_that_comes_in_time_is_blamed_at_once() -> None:
    assert blamed(after((0, 134, 0), (1, 1, 1), now=T0 + 2 * SECONDS)) == "mnist-worker-1"


def test_a_victim_of_which_no_end_is_known_is_not_waited_with() -> None:
    job = make_job(workers=2, phase="Running")
    pod = make_pod(job, "worker", 0, exit_code=134)
    assert plan(job, with_pods(make_running_children(job), pod), T0).status.phase == "Failed"


def test_pod_without_finish_time_is_the_last_candidate() -> None:
    job = make_job(workers=2, phase="Running")
    pods = [make_pod(job, "worker", 0, exit_code=1), make_pod(job, "worker", 1, exit_code=1, finished_at=T0)]
    assert blamed(plan(job, with_pods(make_running_children(job), *pods), T0)) == "mnist-worker-1"


def test_victims_of_a_pod_that_vanished_are_restarted_with_it() -> None:
    """Nobody failed by himself: a pod was deleted, and its peers died of that."""
    job = make_job(workers=2, phase="Running")
    victim = make_pod(job, "worker", 0, exit_code=134, finished_at=T0)
    desired = plan(job, without_pods(with_pods(make_running_children(job), victim), "mnist-worker-1"), T0 + SECONDS)
    assert desired.status.phase == "Restarting"
    assert desired.status.attempt == 1


def test_a_cause_beside_a_pod_that_vanished_is_blamed() -> None:
    job = make_job(workers=2, phase="Running")
    cause = make_pod(job, "worker", 0, exit_code=2, finished_at=T0)
    assert (
        blamed(plan(job, without_pods(with_pods(make_running_children(job), cause), "mnist-worker-1"), T0))
        == "mnist-worker-0"
    )


def test_a_failure_of_an_earlier_attempt_is_not_one() -> None:
    job = make_job(workers=2, phase="Restarting", attempt=1)
    earlier = make_pod(job, "worker", 0, exit_code=1, attempt=0)
    assert plan(job, with_pods(make_running_children(job), earlier), T0).status.phase != "Failed"


def test_a_parameter_server_that_failed_is_a_cause() -> None:
    job = make_job(ps=1, workers=1, phase="Running")
    pods = [
        make_pod(job, "ps", 0, exit_code=139, finished_at=T0 + SECONDS),
        make_pod(job, "worker", 0, exit_code=134, finished_at=T0),
    ]
    assert blamed(plan(job, with_pods(make_running_children(job), *pods), T0 + SECONDS)) == "mnist-ps-0"


def test_the_job_ended_when_its_cause_did() -> None:
    """An operator that was away tells the true time, not that of its return."""
    assert after((0, 1, 7), now=T0 + 3600 * SECONDS).status.completion_time == T0 + 7 * SECONDS


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        ({"exit_code": 1, "exit_reason": "Error"}, "exited 1: the program failed: its log has the reason"),
        ({"exit_code": 2}, "exited 2: a bad command line: retrying would not help"),
        ({"exit_code": 3}, "exited 3: its log has the reason"),
        ({"exit_code": 15}, "exited 15: it was terminated by SIGTERM"),
        ({"exit_code": 127}, "exited 127: the command was not found"),
        ({"exit_code": 134}, "exited 134: it aborted because a peer died"),
        ({"exit_code": 137}, "exited 137: it was killed"),
        (
            {"exit_code": 137, "exit_reason": "OOMKilled"},
            "exited 137 (OOMKilled): it used more memory than its limit allows",
        ),
        ({"exit_code": 143}, "exited 143: it was terminated by SIGTERM"),
        ({"exit_code": 245}, "exited 245: it crashed with a segmentation fault"),
        ({"exit_code": 247}, "exited 247: it was killed"),
        ({"exit_code": 250}, "exited 250: it aborted because a peer died"),
        (
            {"exit_code": 128, "exit_reason": "StartError"},
            "exited 128 (StartError): its container cannot be started: check command and image",
        ),
        (
            {"exit_code": 143, "exit_reason": "DeadlineExceeded"},
            "exited 143 (DeadlineExceeded): it exceeded its own activeDeadlineSeconds",
        ),
        (
            {"exit_code": 137, "exit_reason": "PreemptionByScheduler"},
            "exited 137 (PreemptionByScheduler): a pod of higher priority preempted it",
        ),
        ({"exit_reason": "Evicted"}, "failed (Evicted): its node ran short of a resource and evicted it"),
        ({"exit_reason": "UnexpectedAdmissionError"}, "failed (UnexpectedAdmissionError)"),
        ({}, "failed (no reason given)"),
        (
            {"exit_code": 1, "failed_container": "fetch-data"},
            "(container fetch-data) exited 1: the program failed: its log has the reason",
        ),
    ],
)
def test_a_failure_is_told_with_what_its_code_means(ended: dict[str, Any], sentence: str) -> None:
    job = make_job(workers=1)
    assert describe_failure(make_pod(job, "worker", 0, phase="Failed", **ended)) == f"mnist-worker-0 {sentence}"


def test_start_error_has_the_runtimes_message() -> None:
    words = 'exec: "pyhton": executable file not found in $PATH'
    pod = make_pod(
        make_job(workers=1), "worker", 0, phase="Failed", exit_code=128, exit_reason="StartError", exit_message=words
    )
    assert describe_failure(pod) == f"mnist-worker-0 exited 128 (StartError): {words}"
