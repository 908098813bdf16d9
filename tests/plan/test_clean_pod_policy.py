"""What remains of a finished job, by its cleanPodPolicy; go-operator.md section 2.9 has the table."""

import pytest

from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES
from paddle_operator.kube.writes import DeleteAll
from paddle_operator.plan.children import Children
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    GO_FINALIZER,
    SECONDS,
    T0,
    UID,
    creates,
    deletes,
    deletes_all,
    make_go_barrier,
    make_job,
    make_pod,
    make_pods,
    make_running_children,
    make_service,
    make_services,
    patches,
    with_pods,
    with_status,
    writes_of,
)

STOPS = {"spec": {"activeDeadlineSeconds": 1}}

TABLE = [
    (None, "Failed", False),
    (None, "Completed", True),
    ("Always", "Failed", True),
    ("Always", "Completed", True),
    ("OnFailure", "Failed", True),
    ("OnFailure", "Completed", False),
    ("OnFailed", "Failed", True),
    ("OnCompletion", "Failed", False),
    ("OnCompletion", "Completed", True),
    ("Never", "Failed", False),
    ("Never", "Completed", False),
]


@pytest.mark.parametrize(("policy", "phase", "cleans"), TABLE)
def test_the_policy_decides_whether_pods_are_deleted_or_stopped(policy: str | None, phase: str, cleans: bool) -> None:
    job = make_job(ps=1, workers=1, clean=policy, phase=phase, intranet="Service")
    desired = plan(job, make_running_children(job), T0)
    assert deletes(desired, PODS) == (["mnist-worker-0", "mnist-ps-0"] if cleans else [])
    assert sorted(deletes(desired, SERVICES)) == (["mnist-ps-0", "mnist-worker-0"] if cleans else [])
    assert patches(desired) == ({} if cleans else {"mnist-ps-0": STOPS, "mnist-worker-0": STOPS})
    assert deletes(desired, CONFIG_MAPS) == []  # it stays until the job goes
    assert desired.status == job.status


@pytest.mark.parametrize(("policy", "phase", "cleans"), TABLE)
def test_the_clean_up_begins_in_the_pass_that_ends_the_job(policy: str | None, phase: str, cleans: bool) -> None:
    job = make_job(ps=1, workers=1, clean=policy, phase="Running")
    worker = make_pod(job, "worker", 0, exit_code=0 if phase == "Completed" else 1, finished_at=T0)
    desired = plan(job, with_pods(make_running_children(job), worker), T0)
    assert desired.status.phase == phase
    assert deletes(desired, PODS) == (["mnist-worker-0", "mnist-ps-0"] if cleans else [])
    assert patches(desired) == ({} if cleans else {"mnist-ps-0": STOPS})


def test_more_than_a_few_pods_are_deleted_in_one_request() -> None:
    job = make_job(workers=3, phase="Completed")
    assert writes_of(plan(job, make_running_children(job), T0)) == [
        DeleteAll(PODS, "paddle-system", f"batch.paddlepaddle.org/job-uid={UID}")
    ]


def test_pods_without_our_label_are_deleted_one_by_one() -> None:
    job = make_job(workers=4, phase="Completed")
    desired = plan(job, with_pods(make_running_children(job), make_pod(job, "worker", 1, created_by_us=False)), T0)
    assert not deletes_all(desired)
    assert len(deletes(desired, PODS)) == 4


def test_what_is_leaving_already_is_left_alone() -> None:
    job = make_job(workers=4, phase="Completed", intranet="Service")
    pods, services = make_pods(job, terminating=True), make_services(job, terminating=True)
    assert writes_of(plan(job, Children(pods, services=services), T0)) == []
    kept = make_job(workers=4, phase="Completed", clean="Never")
    assert writes_of(plan(kept, Children(pods), T0)) == []


def test_many_services_go_in_one_request() -> None:
    job = make_job("mnist", workers=3, intranet="Service", phase="Completed")
    services = make_services(job)
    assert writes_of(plan(job, Children((), services=services), T0)) == [
        DeleteAll(SERVICES, "paddle-system", f"batch.paddlepaddle.org/job-uid={UID}")
    ]


def test_services_of_the_go_operator_go_as_well() -> None:
    job = make_job(workers=1, phase="Completed")
    services = (make_service(job, "worker", 0, created_by_us=False),)
    assert deletes(plan(job, Children((), (make_go_barrier(job),), services), T0)) == ["mnist-worker-0"]


@pytest.mark.parametrize(("deadline", "is_patched"), [(None, True), (3600, True), (2, True), (1, False)])
def test_a_pod_that_is_kept_and_runs_is_stopped_once(deadline: int | None, is_patched: bool) -> None:
    """A deadline can only be brought nearer, also one that the user set."""
    job = make_job(workers=1, clean="Never", phase="Failed")
    desired = plan(job, make_running_children(job, deadline_seconds=deadline), T0)
    assert patches(desired) == ({"mnist-worker-0": STOPS} if is_patched else {})


def test_a_pod_that_is_kept_and_has_ended_stays_as_it_is() -> None:
    job = make_job(workers=2, clean="Never", phase="Failed")
    ended = (make_pod(job, "worker", 0, exit_code=0), make_pod(job, "worker", 1, exit_code=1))
    assert writes_of(plan(job, Children(ended), T0)) == []


def test_unstarted_pod_is_deleted_at_the_end() -> None:
    job = make_job(workers=2, clean="Never", phase="Failed")
    desired = plan(job, Children((make_pod(job, "worker", 0), make_pod(job, "worker", 1, phase="Pending"))), T0)
    assert deletes(desired) == ["mnist-worker-1"]
    assert list(patches(desired)) == ["mnist-worker-0"]


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
@pytest.mark.parametrize("policy", ["Always", "Never", "OnFailure", "OnCompletion", None])
@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_nothing_is_made_for_a_finished_job(phase: str, policy: str | None, intranet: str) -> None:
    job = make_job(ps=1, workers=2, clean=policy, phase=phase, intranet=intranet)
    assert creates(plan(job, Children(), T0)) == []


def test_pods_of_an_earlier_attempt_are_cleaned_as_well() -> None:
    job = make_job(workers=1, attempt=2, phase="Completed")
    desired = plan(job, Children((make_pod(job, "worker", 0, attempt=1), make_pod(job, "worker", 9))), T0)
    assert sorted(deletes(desired)) == ["mnist-worker-0", "mnist-worker-9"]


def test_the_go_operators_finalizer_goes_from_a_finished_job() -> None:
    """Or it could not be deleted while no operator runs."""
    job = make_job(workers=1, phase="Completed", finalizers=("a/b", GO_FINALIZER))
    desired = plan(job, Children(), T0)
    assert patches(desired) == {"mnist": {"metadata": {"finalizers": ["a/b"], "resourceVersion": "7"}}}


def test_a_policy_that_is_changed_after_the_end_is_heard() -> None:
    kept = make_job(workers=1, clean="Never", phase="Running")
    ended = plan(kept, with_pods(make_running_children(kept), make_pod(kept, "worker", 0, exit_code=0)), T0).status
    changed = with_status(make_job(workers=1, clean="Always"), ended)
    pods = Children((make_pod(changed, "worker", 0, exit_code=0),))
    assert deletes(plan(changed, pods, T0 + SECONDS)) == ["mnist-worker-0"]
