"""When a job is done, by which workers, and what the last words are."""

from typing import Any

import msgspec
import pytest

from paddle_operator.api.paddlejob import Phase
from paddle_operator.kube.objects import PODS
from paddle_operator.plan.children import Children
from paddle_operator.plan.paddlejob import plan
from paddle_operator.plan.pod_group import POD_GROUPS
from tests.support.jobs import (
    SECONDS,
    T0,
    VOLCANO,
    JSONObject,
    deletes,
    deletes_all,
    get_condition,
    make_group,
    make_job,
    make_pod,
    make_pods,
    make_running_children,
    patches,
    with_replicas,
    writes_of,
)
from tests.support.model import Model, start_scenario

CHIEF = {"succeededIndexes": "0"}
MIDDLE = {"succeededIndexes": "1-2"}
TWO = {"succeededCount": 2}
ONE_OF_MIDDLE = {"succeededIndexes": "1-2", "succeededCount": 1}


def alive(rule: JSONObject | None, **told: Any) -> Model:
    shape: JSONObject = {"workers": 4, "policies": {"successPolicy": {"rules": [rule]}} if rule else {}} | told
    return start_scenario(make_job(**shape))


@pytest.mark.parametrize(
    ("rule", "succeeded", "done"),
    [
        (None, (0, 1, 2), False),
        (None, (0, 1, 2, 3), True),
        (CHIEF, (1, 2, 3), False),
        (CHIEF, (0,), True),
        (CHIEF, (0, 3), True),
        (MIDDLE, (0, 1, 3), False),
        (MIDDLE, (1, 2), True),
        (TWO, (3,), False),
        (TWO, (1, 3), True),
        (TWO, (0, 1, 2), True),
        (ONE_OF_MIDDLE, (0, 3), False),
        (ONE_OF_MIDDLE, (2,), True),
        ({"succeededCount": 4}, (0, 1, 2), False),
        ({"succeededIndexes": "0-3"}, (0, 1, 2, 3), True),
    ],
)
def test_the_job_is_done_when_those_that_matter_are(
    rule: JSONObject | None, succeeded: tuple[int, ...], done: bool
) -> None:
    life = alive(rule)
    for index in succeeded:
        life.exit_pod(f"mnist-worker-{index}", 0)
    life.reconcile_until_idle()
    assert life.status.phase == ("Completed" if done else "Running")


def test_who_still_runs_is_ended_and_the_last_words_say_why() -> None:
    life = alive(CHIEF, ps=1)
    life.advance(50)
    life.exit_pod("mnist-worker-0", 0)
    life.reconcile_until_idle()
    assert life.pods == {}
    assert get_condition(life.status, "Completed").message == ("spec.successPolicy is met: 1 of 4 workers succeeded")
    assert life.status.worker
    assert life.status.ps
    assert (life.status.ready, life.status.worker.succeeded, life.status.ps.succeeded) == ("2/5", 1, 1)
    assert life.status.completion_time == T0 + 50 * SECONDS


def test_running_pods_are_stopped_where_pods_are_retained() -> None:
    job = make_job(workers=2, clean="Never", phase="Running", policies={"successPolicy": {"rules": [CHIEF]}})
    there = Children(
        (make_pod(job, "worker", 0, exit_code=0), make_pod(job, "worker", 1)), make_running_children(job).config_maps
    )
    desired = plan(job, there, T0)
    assert (desired.status.phase, list(patches(desired))) == ("Completed", ["mnist-worker-1"])


def test_message_says_all_succeeded_beyond_the_policy() -> None:
    life = alive(TWO, workers=2)
    for name in list(life.pods):
        life.exit_pod(name, 0)
    life.reconcile_until_idle()
    assert get_condition(life.status, "Completed").message == "all 2 workers succeeded"


@pytest.mark.parametrize(("rule", "phase"), [(CHIEF, "Failed"), (TWO, "Failed")])
def test_a_worker_that_does_not_matter_must_not_fail_either(rule: JSONObject, phase: str) -> None:
    life = alive(rule)
    life.exit_pod("mnist-worker-3", 1)
    life.reconcile_until_idle()
    assert life.status.phase == phase


def test_a_failure_after_the_rule_is_met_does_not_matter() -> None:
    life = alive(CHIEF)
    life.exit_pod("mnist-worker-0", 0)
    life.exit_pod("mnist-worker-3", 1)
    life.reconcile_until_idle()
    assert life.status.phase == "Completed"


def test_deleted_succeeded_worker_counts_if_all_indexes_do() -> None:
    life = alive({"succeededCount": 3})
    for index in range(3):
        life.exit_pod(f"mnist-worker-{index}", 0)
        life.advance(2)
        if life.status.phase == "Running":
            life.delete_pod(f"mnist-worker-{index}")
            life.advance(2)
    assert (life.status.phase, life.status.attempt) == ("Completed", 0)


def test_another_rule_is_heard_while_the_job_runs() -> None:
    life = alive(None)
    life.exit_pod("mnist-worker-0", 0)
    life.reconcile_until_idle()
    assert life.status.phase == "Running"
    assert life.job.spec
    policed = make_job(workers=4, policies={"successPolicy": {"rules": [CHIEF]}}).spec
    assert policed
    life.update_spec(success_policy=policed.success_policy)
    life.reconcile_until_idle()
    assert life.status.phase == "Completed"


# Sidecars


def test_failed_sidecar_does_not_fail_a_succeeded_worker() -> None:
    job = make_job(workers=2, phase="Running")
    there = Children(make_pods(job, phase="Failed", exit_code=0), make_running_children(job).config_maps)
    assert plan(job, there, T0).status.phase == "Completed"


def test_worker_evicted_after_exit_0_has_failed() -> None:
    job = make_job(workers=1, phase="Running", policies={"backoffLimit": 0})
    there = Children(make_pods(job, phase="Failed", exit_code=0, exit_reason="Evicted", disrupted=True))
    assert plan(job, there, T0).status.phase == "Restarting"


# What becomes of it then


def test_pod_group_is_deleted_under_every_clean_pod_policy() -> None:
    for phase in ("Completed", "Failed"):
        job = make_job(workers=1, clean="Never", phase=phase)
        assert deletes(plan(job, Children(group=make_group(job)), T0, VOLCANO)) == ["mnist"]
        assert writes_of(plan(job, Children(group=make_group(job, owner_uid="somebody")), T0, VOLCANO)) == []
        assert writes_of(plan(job, Children(group=make_group(job, terminating=True)), T0, VOLCANO)) == []


def test_the_group_goes_in_the_pass_that_ends_the_job() -> None:
    job = make_job(workers=3, phase="Running")
    desired = plan(job, Children(make_pods(job, exit_code=0), group=make_group(job)), T0, VOLCANO)
    assert (deletes(desired, POD_GROUPS), deletes_all(desired), deletes(desired, PODS)) == (["mnist"], True, [])


def test_job_beyond_backoff_limit_is_cleaned_by_policy() -> None:
    """KF-C5."""
    for policy, left in ((None, 2), ("Never", 2), ("Always", 0), ("OnFailure", 0), ("OnCompletion", 2)):
        life = start_scenario(make_job(workers=2, clean=policy, policies={"backoffLimit": 0}))
        life.exit_pod("mnist-worker-0", 1)
        life.reconcile_until_idle()
        assert (life.status.phase, len(life.pods)) == ("Failed", left), policy
        assert not [pod for pod in life.pods.values() if not pod.finished]


@pytest.mark.parametrize(("told_before", "told_now"), [(1, 2), (0, 0)], ids=["created_by_us", "the Go operator's"])
def test_of_a_finished_job_that_is_changed_only_that_is_told(told_before: int, told_now: int) -> None:
    job = with_replicas(make_job(workers=2, phase=Phase.COMPLETED, observed_generation=told_before), worker=4)
    job = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, generation=2))
    desired = plan(job, Children(), T0)
    assert writes_of(desired) == []
    assert desired.status == msgspec.structs.replace(job.status, observed_generation=told_now)
