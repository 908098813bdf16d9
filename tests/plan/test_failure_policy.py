"""Which failure is tried again, what it costs, and when the next try is."""

from datetime import timedelta
from typing import Any

import pytest

from paddle_operator.api.paddlejob import RootFailure
from paddle_operator.plan.failure_policy import MAX_REASON_LENGTH, backoff_before
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    ETCD,
    SECONDS,
    T0,
    JSONObject,
    get_condition,
    make_job,
    make_pod,
    make_running_children,
    make_template,
    not_running_reason,
    with_pods,
    with_status,
    writes_of,
)
from tests.support.model import Model, start_scenario


def tried(limit: int | None = 1, *rules: JSONObject, **told: Any) -> Job:
    """A job of two workers, unless told otherwise, that may be tried so often; rules are about exit codes."""
    policies: JSONObject = {} if limit is None else {"backoffLimit": limit}
    policies |= {"podFailurePolicy": {"rules": list(rules)}} if rules else {}
    shape: JSONObject = {"workers": 2, "policies": policies} | told
    return make_job(**shape)


def rule(action: str, *codes: int, operator: str = "In") -> JSONObject:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes)}}


def ended(life: Model) -> tuple[str, str]:
    """The phase, and the reason of its last word."""
    assert life.status.phase in ("Completed", "Failed")
    return life.status.phase, get_condition(life.status, life.status.phase).reason


def fails(life: Model, name: str = "mnist-worker-1", code: int = 1, **told: Any) -> None:
    life.exit_pod(name, code, **told)
    life.reconcile_until_idle()


# The root failure in the status


def test_status_names_the_pod_that_failed_first() -> None:
    """Its peer is a victim, although it ended first."""
    job = make_job(workers=3)
    victim = make_pod(job, "worker", 0, exit_code=134, finished_at=T0)
    cause = make_pod(job, "worker", 2, exit_code=137, exit_reason="OOMKilled", finished_at=T0 + 2 * SECONDS)
    desired = plan(job, with_pods(make_running_children(job), victim, cause), T0 + 9 * SECONDS)
    assert desired.status.root_failure == RootFailure("mnist-worker-2", "worker", 2, 137, "OOMKilled")


def test_root_failure_stays_while_the_job_restarts() -> None:
    life = start_scenario(tried(2))
    fails(life, code=3)
    life.advance(10)
    life.run_all_pods()
    assert life.status.root_failure == RootFailure("mnist-worker-1", "worker", 1, 3)


def test_root_failure_is_cleared_by_another_reason_to_end() -> None:
    failure = RootFailure("mnist-worker-1", "worker", 1, 3)
    job = make_job(workers=2, policies={"activeDeadlineSeconds": 60}, root_failure=failure, active_since=T0)
    assert plan(job, make_running_children(job), T0 + 59 * SECONDS).status.root_failure == failure
    assert plan(job, make_running_children(job), T0 + 60 * SECONDS).status.root_failure is None


def test_reason_of_a_root_failure_is_bounded() -> None:
    job = make_job(workers=1)
    failed = make_pod(job, "worker", 0, phase="Failed", exit_reason="x" * 10_000)
    failure = plan(job, with_pods(make_running_children(job), failed), T0).status.root_failure
    assert failure
    assert len(failure.reason) == MAX_REASON_LENGTH


# By the code


@pytest.mark.parametrize("code", [1, 3, 15, 126, 127, 130, 137, 139, 143, 245, 247, 255])
def test_a_failure_is_tried_again_and_counts(code: int) -> None:
    life = start_scenario(tried(1))
    fails(life, code=code)
    assert (life.status.phase, life.status.attempt, life.status.restarts) == ("Restarting", 1, 1)
    life.advance(10)
    life.run_all_pods()
    assert (life.status.phase, len(life.pods)) == ("Running", 2)


def test_a_bad_command_line_is_never_tried_again() -> None:
    life = start_scenario(tried(5))
    fails(life, code=2)
    assert ended(life) == ("Failed", "PodFailed")
    assert life.status.restarts == 0


def test_exit_2_of_a_sidecar_is_retried() -> None:
    life = start_scenario(tried(1))
    fails(life, code=2, failed_container="fetch-data")
    assert (life.status.phase, life.status.restarts) == ("Restarting", 1)


def test_victims_alone_are_retried_after_the_wait() -> None:
    life = start_scenario(tried(1))
    fails(life, code=134)
    assert (life.status.phase, life.status.restarts) == ("Running", 0)
    life.advance(5)
    assert (life.status.phase, life.status.restarts) == ("Restarting", 1)


def test_late_root_failure_counts_not_its_victims() -> None:
    life = start_scenario(tried(1, rule("FailJob", 139)))
    fails(life, "mnist-worker-0", 134)
    fails(life, "mnist-worker-1", 139)
    assert ended(life) == ("Failed", "PodFailurePolicy")


@pytest.mark.parametrize("code", [1, 2, 137, 143])
def test_without_a_limit_the_first_failure_fails_the_job(code: int) -> None:
    life = start_scenario(tried(None))
    fails(life, code=code)
    assert ended(life) == ("Failed", "PodFailed")


FAIL_1, IGNORE_3, COUNT_2 = rule("FailJob", 1), rule("Ignore", 3, 4), rule("Count", 2)
ONLY_9_COUNTS = rule("FailJob", 9, operator="NotIn")

BY_RULE = [
    # rules, the code, what becomes of the job, how many tries it costs
    ([FAIL_1], 1, "PodFailurePolicy", 0),
    ([FAIL_1], 3, "Restarting", 1),
    ([FAIL_1], 2, "PodFailed", 0),
    ([IGNORE_3], 3, "Restarting", 0),
    ([IGNORE_3], 4, "Restarting", 0),
    ([IGNORE_3], 5, "Restarting", 1),
    ([COUNT_2], 2, "Restarting", 1),
    ([ONLY_9_COUNTS], 9, "Restarting", 1),
    ([ONLY_9_COUNTS], 1, "PodFailurePolicy", 0),
    ([ONLY_9_COUNTS], 2, "PodFailurePolicy", 0),
    ([IGNORE_3, rule("FailJob", 3)], 3, "Restarting", 0),
    ([rule("FailJob", 3), IGNORE_3], 3, "PodFailurePolicy", 0),
    ([FAIL_1, rule("Ignore", 1, operator="NotIn")], 139, "Restarting", 0),
]


@pytest.mark.parametrize(("rules", "code", "becomes", "cost"), BY_RULE)
def test_the_first_rule_that_fits_decides(rules: list[JSONObject], code: int, becomes: str, cost: int) -> None:
    life = start_scenario(tried(3, *rules))
    fails(life, code=code)
    said = life.status.phase if life.status.phase == "Restarting" else ended(life)[1]
    assert (said, life.status.restarts) == (becomes, cost)


def test_a_rule_that_ends_the_job_is_named() -> None:
    life = start_scenario(tried(3, FAIL_1))
    fails(life, code=1)
    assert get_condition(life.status, "Failed").message == (
        "mnist-worker-1 exited 1: the program failed: its log has the reason; spec.podFailurePolicy fails the job"
    )


def test_a_rule_says_nothing_of_another_container() -> None:
    life = start_scenario(tried(3, FAIL_1))
    fails(life, code=1, failed_container="logs")
    assert (life.status.phase, life.status.restarts) == ("Restarting", 1)


def test_what_is_ignored_may_happen_more_often_than_the_limit() -> None:
    life = start_scenario(tried(0, IGNORE_3))
    for attempt in range(1, 5):
        fails(life, code=3)
        assert (life.status.phase, life.status.attempt, life.status.restarts) == ("Restarting", attempt, 0)
        assert life.status.next_attempt_time is None
        life.run_all_pods()
        assert life.status.phase == "Running"


# The count and the pause


def test_backoff_limit_is_exact_and_backoff_doubles() -> None:
    life = start_scenario(tried(3))
    for number, pause in enumerate((10, 20, 40), 1):
        failed_at = life.now
        fails(life)
        assert (life.status.phase, life.status.restarts, life.status.attempt) == ("Restarting", number, number)
        assert life.status.next_attempt_time == failed_at + pause * SECONDS
        life.advance(pause - 1)
        assert life.pods == {}
        life.advance(1)
        assert sorted(life.pods) == ["mnist-worker-0", "mnist-worker-1"]
        life.run_all_pods()
        life.advance(100)
    fails(life)
    assert ended(life) == ("Failed", "BackoffLimitExceeded")
    assert get_condition(life.status, "Failed").message == (
        "mnist-worker-1 exited 1: the program failed: its log has the reason; spec.backoffLimit is 3"
    )
    assert (life.status.restarts, life.status.attempt, life.status.next_attempt_time) == (3, 3, None)


def test_a_limit_of_0_allows_no_try() -> None:
    life = start_scenario(tried(0))
    fails(life)
    assert ended(life) == ("Failed", "BackoffLimitExceeded")


def test_who_waits_is_told_why_and_until_when() -> None:
    life = start_scenario(tried(1))
    fails(life)
    said = "mnist-worker-1 exited 1: the program failed: its log has the reason; replacing all pods at 12:00:10 UTC"
    assert (get_condition(life.status, "Running").reason, get_condition(life.status, "Running").message) == (
        "Restarting",
        said,
    )
    assert life.event_reasons.count("Restarting") == 1


@pytest.mark.parametrize(
    ("number", "seconds"),
    [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 360), (8, 360), (2**31 - 1, 360)],
)
def test_a_pause_grows_up_to_six_minutes(number: int, seconds: int) -> None:
    assert backoff_before(number) == timedelta(seconds=seconds)


def test_several_pods_that_fail_together_cost_one_try() -> None:
    life = start_scenario(tried(1, workers=4))
    for index in range(3):
        life.exit_pod(f"mnist-worker-{index}", 1)
    life.reconcile_until_idle()
    assert (life.status.attempt, life.status.restarts) == (1, 1)
    life.advance(10)
    life.run_all_pods()
    assert (life.status.phase, life.status.restarts) == ("Running", 1)


def test_unwritten_failure_is_counted_once() -> None:
    """The operator died before it wrote: the next one sees the same, and decides the same."""
    job = tried(1, phase="Running")
    there = with_pods(make_running_children(job), make_pod(job, "worker", 1, exit_code=1, finished_at=T0))
    assert plan(job, there, T0) == plan(job, there, T0)
    counted = with_status(job, plan(job, there, T0).status)
    again = plan(counted, there, T0 + SECONDS)
    assert (again.status.restarts, again.status.attempt) == (1, 1)


# What nobody is to blame for


def test_disruption_is_not_counted_and_has_no_backoff() -> None:
    life = start_scenario(tried(0))
    fails(life, code=143, disrupted=True, exit_reason="PreemptionByScheduler")
    assert (life.status.phase, life.status.attempt, life.status.restarts) == ("Restarting", 1, 0)
    assert life.status.next_attempt_time is None
    life.run_all_pods()
    assert life.status.phase == "Running"


@pytest.mark.parametrize("code", [1, 2, 134, 139])
def test_what_its_peers_then_end_with_is_of_that(code: int) -> None:
    life = start_scenario(tried(0, FAIL_1))
    life.exit_pod("mnist-worker-0", code)
    fails(life, code=143, disrupted=True, exit_reason="EvictionByEvictionAPI")
    assert (life.status.phase, life.status.restarts) == ("Restarting", 0)
    assert any("mnist-worker-1 exited 143 (EvictionByEvictionAPI)" in each.note for each in life.events)


def test_a_pod_that_somebody_deletes_costs_nothing() -> None:
    life = start_scenario(tried(0))
    life.delete_pod("mnist-worker-1")
    life.exit_pod("mnist-worker-0", 134)
    life.reconcile_until_idle()
    assert (life.status.attempt, life.status.restarts, life.status.next_attempt_time) == (1, 0, None)


def test_disruption_without_limit_fails_the_job() -> None:
    life = start_scenario(tried(None))
    fails(life, code=143, disrupted=True)
    assert ended(life) == ("Failed", "PodFailed")


def test_an_elastic_pod_that_was_taken_away_comes_back_alone() -> None:
    life = start_scenario(tried(None, elastic=1), ETCD)
    kept = life.pods["mnist-worker-0"].uid
    fails(life, code=143, disrupted=True)
    life.run_all_pods()
    assert (life.status.phase, life.status.attempt, life.status.restarts) == ("Running", 0, 0)
    assert life.pods["mnist-worker-0"].uid == kept


def test_an_elastic_pod_that_fails_by_itself_fails_the_job() -> None:
    life = start_scenario(tried(None, elastic=1), ETCD)
    life.exit_pod("mnist-worker-0", 143, disrupted=True)
    fails(life, code=1)
    assert ended(life) == ("Failed", "PodFailed")


# Alone, or everybody

WHO = [
    # the job, who fails, whether it is replaced alone
    ({"ps": 1, "workers": 3, "with_gloo": 0}, "worker-1", True),
    ({"ps": 1, "workers": 3, "with_gloo": 0}, "worker-2", True),
    ({"ps": 1, "workers": 3, "with_gloo": 0}, "worker-0", False),  # it would push its first parameters over the rest
    ({"ps": 1, "workers": 3, "with_gloo": 0}, "ps-0", False),
    ({"ps": 1, "workers": 3, "with_gloo": 0, "heter": 2}, "heter-1", False),
    ({"ps": 1, "workers": 3, "with_gloo": 1}, "worker-1", False),
    ({"ps": 1, "workers": 3}, "worker-1", False),
    ({"workers": 3}, "worker-1", False),
    ({"workers": 3, "with_gloo": 0}, "worker-1", False),
    ({"workers": 1}, "worker-0", False),
]


@pytest.mark.parametrize(("shape", "who", "alone"), WHO)
def test_only_who_can_come_back_by_itself_is_replaced_alone(shape: JSONObject, who: str, alone: bool) -> None:
    life = start_scenario(tried(1, **shape))
    before = {name: pod.uid for name, pod in life.pods.items()}
    fails(life, f"mnist-{who}")
    assert (life.status.attempt, life.status.restarts) == (0 if alone else 1, 1)
    life.advance(10)
    life.run_all_pods()
    kept = {name for name, pod in life.pods.items() if pod.uid == before[name]}
    assert kept == ({*before} - {f"mnist-{who}"} if alone else set())
    assert life.status.phase == "Running"
    assert life.status.replacing == ()


def apart(limit: int, workers: int = 4) -> Model:
    return start_scenario(tried(limit, ps=1, workers=workers, with_gloo=0))


def test_pods_that_are_replaced_alone_are_charged_one_by_one() -> None:
    life = apart(2)
    life.exit_pod("mnist-worker-1", 1)
    fails(life, "mnist-worker-2")
    assert (life.status.restarts, life.status.attempt) == (2, 0)
    assert life.status.next_attempt_time == T0 + 20 * SECONDS
    life.advance(20)
    life.run_all_pods()
    fails(life, "mnist-worker-3")
    assert ended(life) == ("Failed", "BackoffLimitExceeded")
    assert life.status.restarts == 2


def test_replaced_pod_is_counted_once() -> None:
    life = apart(5)
    life.unresponsive_nodes.add(life.pods["mnist-worker-1"].node)  # so that it stays for a while
    fails(life, "mnist-worker-1")
    uid = life.pods["mnist-worker-1"].uid
    assert (life.status.restarts, life.status.replacing) == (1, (uid,))
    for _ in range(3):
        life.reconcile()
    assert life.status.restarts == 1


def test_counted_pod_is_not_counted_with_the_next() -> None:
    life = apart(5)
    life.unresponsive_nodes.add(life.pods["mnist-worker-1"].node)
    fails(life, "mnist-worker-1")
    fails(life, "mnist-worker-2")
    assert life.status.restarts == 2
    assert life.pods["mnist-worker-1"].uid in life.status.replacing


def test_kubelet_restarts_of_replaced_pod_are_kept() -> None:
    life = start_scenario(tried(6, ps=1, workers=3, with_gloo=0, template=make_template(restartPolicy="OnFailure")))
    life.restart_container("mnist-worker-1", 2)
    life.restart_container("mnist-worker-2", 1)
    fails(life, "mnist-worker-1", 143, disrupted=True)
    assert (life.status.attempt, life.status.restarts) == (0, 2)
    life.run_all_pods()
    life.restart_container("mnist-worker-2", 2)
    life.reconcile_until_idle()
    assert life.status.phase == "Running"
    life.restart_container("mnist-worker-2", 1)
    life.reconcile_until_idle()
    assert ended(life) == ("Failed", "BackoffLimitExceeded")


def test_others_train_while_one_pod_is_replaced() -> None:
    life = apart(5)
    fails(life, "mnist-worker-1")
    assert sorted(life.pods) == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-2", "mnist-worker-3"]
    life.advance(1)
    desired = life.plan()
    assert not_running_reason(desired) == (
        "Replacing",
        "mnist-worker-1 exited 1: the program failed: its log has the reason; replacing this pod at 12:00:10 UTC",
    )
    assert (writes_of(desired), desired.requeue_at) == ([], T0 + 10 * SECONDS)


def test_mixed_failures_restart_all_for_one_retry() -> None:
    life = apart(1)
    life.exit_pod("mnist-worker-0", 1)
    fails(life, "mnist-worker-1")
    assert (life.status.phase, life.status.attempt, life.status.restarts) == ("Restarting", 1, 1)


def test_replacements_are_capped_per_reconcile() -> None:
    life = apart(100, workers=81)
    for index in range(1, 81):
        life.exit_pod(f"mnist-worker-{index}", 1)
    first = life.reconcile()
    assert (first.status.restarts, len(first.status.replacing)) == (64, 64)
    life.reconcile_until_idle()
    assert life.status.restarts == 80


def test_however_many_fail_alone_the_status_stays_small() -> None:
    """No more UIDs are noted until pods of those that are noted have gone."""
    life = apart(1000, workers=501)
    for index in range(1, 501):
        life.exit_pod(f"mnist-worker-{index}", 1)
    most = 0
    for _ in range(40):
        life.reconcile()
        life.now += SECONDS
        most = max(most, len(life.status.replacing))
    assert (most, life.status.restarts, len(life.pods)) == (64, 500, 2)
    life.advance(400)
    life.run_all_pods()
    assert (life.status.phase, life.status.restarts, life.status.replacing) == ("Running", 500, ())


def test_failure_at_the_replacement_limit_waits() -> None:
    life = apart(1000, workers=82)
    for index in range(1, 81):
        life.unresponsive_nodes.add(life.pods[f"mnist-worker-{index}"].node)  # so that they stay for a while
        life.exit_pod(f"mnist-worker-{index}", 1)
    life.reconcile_until_idle()
    assert (life.status.restarts, len(life.status.replacing)) == (64, 64)
    assert not life.plan().events
    life.unresponsive_nodes.clear()
    life.reconcile_until_idle()
    assert life.status.restarts == 80


def test_a_pause_is_not_cut_short_by_one_that_is_taken_away() -> None:
    life = apart(3)
    fails(life, "mnist-worker-1")
    life.advance(4)
    fails(life, "mnist-worker-2", 143, disrupted=True)
    assert (life.status.restarts, life.status.next_attempt_time) == (1, T0 + 10 * SECONDS)
    assert "mnist-worker-1" not in life.pods
    life.advance(6)
    life.run_all_pods()
    assert life.status.phase == "Running"


def test_disrupted_replaceable_worker_is_not_counted() -> None:
    life = apart(0)
    before = {name: pod.uid for name, pod in life.pods.items()}
    fails(life, "mnist-worker-2", 143, disrupted=True)
    assert (life.status.attempt, life.status.restarts, life.status.next_attempt_time) == (0, 0, None)
    life.run_all_pods()
    assert {name for name, pod in life.pods.items() if pod.uid != before[name]} == {"mnist-worker-2"}


def test_failure_beside_a_disruption_is_counted() -> None:
    """Without gloo nobody dies of it."""
    life = apart(3)
    life.exit_pod("mnist-worker-1", 1)
    fails(life, "mnist-worker-2", 143, disrupted=True)
    assert (life.status.attempt, life.status.restarts) == (0, 1)


def test_deleted_replaceable_worker_is_not_counted() -> None:
    life = apart(0)
    del life.pods["mnist-worker-2"]
    life.run_all_pods()
    assert (life.status.phase, life.status.attempt, life.status.restarts) == ("Running", 0, 0)


# Kubelet's own tries (KF-C4)


def restarting_itself(limit: int, *times: int) -> Model:
    """Workers that kubelet has started again so many times."""
    life = start_scenario(tried(limit, workers=len(times), template=make_template(restartPolicy="OnFailure")))
    for index, number in enumerate(times):
        life.restart_container(f"mnist-worker-{index}", number)
    life.reconcile_until_idle()
    return life


@pytest.mark.parametrize(
    ("limit", "times", "failed"),
    [
        (4, (1, 1, 1, 1), True),
        (4, (1, 1, 1, 0), False),
        (5, (1, 1, 1, 1), False),
        (0, (0, 0), False),
        (0, (1, 0), True),
        (1, (1, 0), True),
        (2, (1, 0), False),
        (3, (3,), True),
        (3, (2,), False),
    ],
)
def test_what_kubelet_starts_again_counts_as_in_a_batch_job(limit: int, times: tuple[int, ...], failed: bool) -> None:
    life = restarting_itself(limit, *times)
    assert life.status.phase == ("Failed" if failed else "Running")
    if failed:
        assert life.status.restarts == sum(times)
        found = get_condition(life.status, "Failed")
        assert (found.reason, found.message) == (
            "BackoffLimitExceeded",
            f"kubelet restarted containers {sum(times)} times; spec.backoffLimit is {limit}",
        )


def test_without_a_limit_kubelet_may_start_containers_for_ever() -> None:
    life = start_scenario(tried(None, template=make_template(restartPolicy="OnFailure")))
    life.restart_container("mnist-worker-0", 1000)
    life.reconcile_until_idle()
    assert (life.status.phase, life.status.restarts) == ("Running", 0)


def test_kubelet_restarts_survive_replacement() -> None:
    """Only those of the pod that is gone are gone with it."""
    life = restarting_itself(4, 0, 1, 1)
    del life.pods["mnist-worker-0"]
    life.reconcile_until_idle()
    assert (life.status.restarts, life.status.next_attempt_time) == (2, None)
    life.run_all_pods()
    life.restart_container("mnist-worker-0")
    life.reconcile_until_idle()
    assert life.status.phase == "Running"
    life.restart_container("mnist-worker-1")
    life.reconcile_until_idle()
    assert ended(life) == ("Failed", "BackoffLimitExceeded")


def test_kubelets_tries_and_ours_are_one_count() -> None:
    life = restarting_itself(4, 1, 1)
    fails(life, code=1)  # its restartPolicy is OnFailure: a pod that has failed was evicted, or cannot be helped
    assert (life.status.phase, life.status.restarts) == ("Restarting", 3)
    assert life.status.next_attempt_time == life.now + 40 * SECONDS


def test_completed_job_has_kubelet_restarts() -> None:
    life = restarting_itself(4, 1, 1)
    for index in range(2):
        life.exit_pod(f"mnist-worker-{index}", 0)
    life.reconcile_until_idle()
    assert (life.status.phase, life.status.restarts) == ("Completed", 2)
