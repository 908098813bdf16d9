"""A suspended job rests: nothing of it runs, it keeps what it is, and it starts afresh when it is resumed."""

from typing import Any

import msgspec
import pytest

from paddle_operator.api.paddlejob import PaddleJobStatus, RoleStatus, SchedulingPolicy
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, StoredObject
from paddle_operator.plan.children import Children
from paddle_operator.plan.job_view import cached_job_view, job_view
from paddle_operator.plan.paddlejob import PlanContext, plan
from paddle_operator.plan.pod_group import POD_GROUPS
from tests.support.jobs import (
    ETCD,
    SECONDS,
    T0,
    VOLCANO,
    JSONObject,
    deletes,
    deletes_all,
    get_condition,
    make_group,
    make_job,
    make_pods,
    make_running_children,
    make_template,
    with_status,
    writes_of,
)
from tests.support.model import Model, start_scenario

SUSPENDED = {"suspend": True}


def said(status: PaddleJobStatus) -> tuple[str, str, str]:
    found = get_condition(status, "Suspended")
    return found.status, found.reason, found.message


def suspended(life: Model) -> Model:
    life.update_spec(suspend=True)
    life.reconcile_until_idle()
    return life


# Suspend


@pytest.mark.parametrize("shape", [{"workers": 2}, {"ps": 1, "workers": 2, "intranet": "Service"}], ids=str)
def test_a_job_that_was_made_suspended_has_nothing(shape: JSONObject) -> None:
    life = Model(make_job(**shape, policies=SUSPENDED), Children(), T0)
    life.advance(10000)
    assert (life.pods, life.services, life.config_maps, life.group) == ({}, {}, {}, None)
    assert (life.status.phase, life.status.attempt, life.status.ready) == ("Suspended", 0, f"0/{life.job.spec.total}")  # type: ignore[union-attr]
    assert said(life.status) == ("True", "Suspended", "spec.suspend is true: no pod exists")
    assert get_condition(life.status, "Accepted").status == "True"
    assert life.event_reasons == ["Suspended"]


def test_it_is_written_down_before_the_first_pod_goes() -> None:
    """And with another attempt: whatever happens then, no pod of before is taken for one of after."""
    job = make_job(ps=1, workers=2, intranet="Service", phase="Running", start_time=T0, policies=SUSPENDED)
    there = make_running_children(job)
    first = plan(job, there, T0)
    assert writes_of(first) == []
    assert (first.status.phase, first.status.attempt, first.status.ready) == ("Suspended", 1, "0/3")
    assert first.status.worker == RoleStatus()
    assert said(first.status)[2] == "spec.suspend is true: terminating all pods"
    assert [(each.reason, each.warning) for each in first.events] == [("Suspended", False)]
    second = plan(with_status(job, first.status), there, T0 + SECONDS)
    assert deletes_all(second)
    assert {write.kind for write in writes_of(second)} == {PODS, SERVICES, CONFIG_MAPS}
    assert (second.status.attempt, second.events) == (1, ())


def test_suspend_deletes_children_and_keeps_history() -> None:
    life = start_scenario(make_job(ps=1, workers=2, intranet="Service"), PlanContext(free_host_port=35000))
    suspended(life)
    assert (life.pods, life.services, life.config_maps) == ({}, {}, {})
    assert (life.status.phase, life.status.host_port) == ("Suspended", 35000)
    assert get_condition(life.status, "Running").reason == "Suspended"
    assert life.event_reasons.count("Suspended") == 1


@pytest.mark.parametrize("clean", [None, "Always", "Never", "OnFailure", "OnCompletion"])
def test_suspend_ignores_clean_pod_policy(clean: str | None) -> None:
    """KF-C1: that policy is about finished jobs."""
    life = suspended(start_scenario(make_job(ps=1, workers=2, intranet="Service", clean=clean)))
    assert (life.status.phase, life.pods, life.services, life.config_maps) == ("Suspended", {}, {}, {})


def test_no_pod_goes_twice_while_it_takes_its_time() -> None:
    job = make_job(workers=3, policies=SUSPENDED)
    job = with_status(job, plan(job, make_running_children(job), T0).status)
    leaving = Children(make_pods(job, attempt=0, terminating=True))
    assert writes_of(plan(job, leaving, T0)) == []


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
def test_a_finished_job_is_not_touched(phase: str) -> None:
    job = make_job(workers=2, phase=phase, clean="Never", policies=SUSPENDED)
    desired = plan(job, Children(make_pods(job, exit_code=0)), T0)
    assert (desired.status, writes_of(desired)) == (job.status, [])


def test_unseen_failure_does_not_fail_a_suspended_job() -> None:
    life = start_scenario(make_job(workers=2))
    life.exit_pod("mnist-worker-0", 1)
    suspended(life)
    assert life.status.phase == "Suspended"


@pytest.mark.parametrize(
    ("shape", "done"),
    [
        ({"ps": 1, "workers": 2}, (0, 1)),
        ({"workers": 2, "policies": {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}}, (0,)),
    ],
    ids=str,
)
def test_a_success_that_nobody_has_seen_yet_is_not_thrown_away(shape: JSONObject, done: tuple[int, ...]) -> None:
    """The operator was down, or the user was a moment too late: what is done need not be done again."""
    life = start_scenario(make_job(**shape))
    for index in done:
        life.exit_pod(f"mnist-worker-{index}", 0)
    suspended(life)
    assert (life.status.phase, life.status.attempt) == ("Completed", 0)
    assert "Suspended" not in life.event_reasons


def test_a_success_of_some_is_none() -> None:
    life = start_scenario(make_job(workers=2))
    life.exit_pod("mnist-worker-0", 0)
    assert suspended(life).status.phase == "Suspended"


def test_go_children_are_deleted_one_by_one() -> None:
    job = make_job(workers=3, intranet="Service", policies=SUSPENDED)
    job = with_status(job, plan(job, make_running_children(job), T0).status)
    there = make_running_children(job, created_by_us=False)
    assert len(deletes(plan(job, there, T0), PODS)) == 3


def test_the_jobs_own_group_goes_and_the_users_stays() -> None:
    job = make_job(workers=1, policies=SUSPENDED)
    job = with_status(job, plan(job, Children(), T0, VOLCANO).status)
    assert deletes(plan(job, Children(group=make_group(job)), T0, VOLCANO), POD_GROUPS) == ["mnist"]
    assert writes_of(plan(job, Children(group=make_group(job, owner_uid="")), T0, VOLCANO)) == []


# Resume


def test_a_resumed_job_starts_afresh() -> None:
    life = start_scenario(make_job(workers=2))
    before = {pod.uid for pod in life.pods.values()}
    suspended(life).advance(500)
    life.update_spec(suspend=False)
    life.reconcile_until_idle()
    assert said(life.status) == ("False", "Resumed", "spec.suspend is false: starting the job again")
    assert (life.status.phase, life.status.start_time, life.status.active_since) == ("Pending", None, life.now)
    assert len(life.pods) == 2
    life.run_all_pods()
    assert (life.status.phase, life.status.attempt) == ("Running", 1)
    assert life.status.start_time == T0 + 500 * SECONDS
    assert not before & {pod.uid for pod in life.pods.values()}
    assert life.phases == ["", "Pending", "Starting", "Running", "Suspended", "Pending", "Starting", "Running"]
    assert life.event_reasons.count("Resumed") == 1


def test_a_job_that_was_made_suspended_starts_as_any_other() -> None:
    life = Model(make_job(workers=2, policies=SUSPENDED), Children(), T0)
    life.advance(100)
    life.update_spec(suspend=False)
    life.run_all_pods()
    assert (life.status.phase, life.status.attempt) == ("Running", 0)


def test_a_pod_of_before_that_does_not_go_is_never_one_of_after() -> None:
    life = start_scenario(make_job(workers=2))
    stuck = life.pods["mnist-worker-0"]
    life.unresponsive_nodes.add(stuck.node)
    suspended(life)
    life.update_spec(suspend=False)
    life.advance(1)
    assert life.pods["mnist-worker-0"].uid == stuck.uid
    assert get_condition(life.status, "Running").reason == "PodsTerminating"
    life.advance(100)  # its node is given up
    life.run_all_pods()
    assert (life.status.phase, life.pods["mnist-worker-0"].uid != stuck.uid) == ("Running", True)


def test_resumed_job_has_no_suspended_condition() -> None:
    life = suspended(start_scenario(make_job(workers=2)))
    life.update_spec(suspend=False)
    resumed = life.plan()
    told = get_condition(resumed.status, "Running")
    message = "spec.suspend is false: starting the job again"
    assert (told.status, told.reason, told.message) == ("False", "Resumed", message)


def test_resumed_job_can_be_restarting() -> None:
    life = suspended(start_scenario(make_job(workers=2)))
    life.update_spec(suspend=False)
    life.reconcile_until_idle()
    for name in list(life.pods):
        life.assign_address(name)
    life.reconcile_until_idle()
    del life.pods["mnist-worker-1"]
    life.run_all_pods()
    assert life.phases[-5:] == ["Pending", "Starting", "Restarting", "Starting", "Running"]


def test_what_changed_meanwhile_counts() -> None:
    life = start_scenario(make_job(workers=2))
    suspended(life)
    life.update_spec(scheduling_policy=SchedulingPolicy(queue="other"))
    life.update_spec(worker=make_job(workers=3).spec.worker)  # type: ignore[union-attr]
    life.update_spec(suspend=False)
    life.run_all_pods()
    assert (life.status.phase, len(life.pods), life.status.attempt) == ("Running", 3, 1)


def test_suspended_and_resumed_again_and_again() -> None:
    life = start_scenario(make_job(workers=2, policies={"activeDeadlineSeconds": 1000}))
    for number in range(1, 5):
        life.advance(100)
        suspended(life).advance(5000)
        assert life.status.active_seconds == 100 * number
        life.update_spec(suspend=False)
        life.run_all_pods()
        assert (life.status.phase, life.status.attempt) == ("Running", number)
    assert life.event_reasons.count("Suspended") == life.event_reasons.count("Resumed") == 4


def test_a_change_of_mind_that_nobody_saw_changes_nothing() -> None:
    life = start_scenario(make_job(workers=2))
    before = life.pods
    life.update_spec(suspend=True)
    life.update_spec(suspend=False)
    life.reconcile_until_idle()
    assert (life.status.phase, life.pods, life.status.attempt) == ("Running", before, 0)


def test_an_elastic_job_is_suspended_and_resumed_as_well() -> None:
    life = start_scenario(make_job(workers=2, elastic=1), ETCD)
    suspended(life)
    assert life.pods == {}
    life.update_spec(suspend=False)
    life.run_all_pods()
    assert (life.status.phase, life.status.attempt) == ("Running", 1)


# With tries


def failing(**told: Any) -> Model:
    shape: JSONObject = {"workers": 2, "policies": {"backoffLimit": 3}} | told
    return start_scenario(make_job(**shape))


def test_the_tries_that_are_used_up_stay_used_up() -> None:
    life = failing()
    life.exit_pod("mnist-worker-0", 1)
    life.advance(10)
    life.run_all_pods()
    suspended(life)
    life.update_spec(suspend=False)
    life.run_all_pods()
    assert life.status.restarts == 1


def test_kubelets_tries_stay_used_up_as_well() -> None:
    life = failing(template=make_template(restartPolicy="OnFailure"))
    life.restart_container("mnist-worker-0", 2)
    life.reconcile_until_idle()
    suspended(life)
    assert life.status.restarts == 2
    suspended(life)
    assert life.status.restarts == 2
    life.update_spec(suspend=False)
    life.run_all_pods()
    life.restart_container("mnist-worker-0", 1)
    life.reconcile_until_idle()
    assert get_condition(life.status, "Failed").reason == "BackoffLimitExceeded"


def test_kubelets_tries_while_its_pods_go_are_no_more_than_all() -> None:
    life = failing(template=make_template(restartPolicy="OnFailure"))
    life.update_spec(suspend=True)
    life.restart_container("mnist-worker-0", 9)
    life.reconcile_until_idle()
    assert (life.status.phase, life.status.restarts) == ("Suspended", 3)


def test_a_pause_ends_with_the_suspension_in_it() -> None:
    life = failing()
    life.exit_pod("mnist-worker-0", 1)
    life.reconcile_until_idle()
    suspended(life)
    assert life.status.next_attempt_time is None
    life.update_spec(suspend=False)
    life.reconcile_until_idle()
    assert len(life.pods) == 2


def test_who_was_about_to_be_replaced_alone_is_not_any_more() -> None:
    life = failing(ps=1, workers=3, with_gloo=0)
    life.exit_pod("mnist-worker-1", 1)
    life.reconcile()
    assert life.status.replacing
    life.update_spec(suspend=True)
    assert (life.reconcile().status.replacing, life.status.restarts) == ((), 1)


# Another's


@pytest.mark.parametrize("by", ["kueue.x-k8s.io/multikueue", "example.org/other"])
@pytest.mark.parametrize("told", [{}, {"phase": "Running"}, {"phase": "Completed"}, {"deleted_at": T0}], ids=str)
def test_a_job_that_is_anothers_is_left_alone_entirely(by: str, told: JSONObject) -> None:
    """KF-C10."""
    policies = {"managedBy": by, "suspend": True, "ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 1}
    job = make_job(workers=2, policies=policies, **told)
    desired = plan(job, make_running_children(job), T0 + 9 * SECONDS, PlanContext(free_host_port=35000))
    assert (desired.status, desired.waves, desired.events, desired.requeue_at) == (job.status, (), (), None)


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("kueue.x-k8s.io/multikueue", False),
        ("batch.paddlepaddle.org/paddle-operator", True),
        ("no domain", True),  # this is what is wrong with it, or some of it
        (7, True),
        (None, True),
    ],
)
@pytest.mark.parametrize("view", [job_view, cached_job_view])
def test_invalid_job_of_another_controller_is_ignored(by: object, told: bool, view: Any) -> None:
    """It may have been stored before there were rules, and they are not its manager's."""
    metadata = {"name": "mnist", "namespace": "paddle-system", "uid": "1", "resourceVersion": "7", "generation": 1}
    written = {"metadata": metadata, "spec": {"managedBy": by, "worker": {"replicas": -1, "template": {}}}}
    stored = msgspec.json.decode(msgspec.json.encode(written), type=StoredObject)
    first = view(stored)
    for job in (first, view(stored, first)):
        assert job.problems
        desired = plan(job, Children(), T0)
        assert bool(desired.events) is (desired.status != job.status) is told


@pytest.mark.parametrize("by", ["", "batch.paddlepaddle.org/paddle-operator"])
def test_a_job_that_is_nobodys_or_ours_is_ours(by: str) -> None:
    """KF-C10."""
    assert start_scenario(make_job(workers=2, policies={"managedBy": by})).status.phase == "Running"
