"""All pods of a job at once or none of them: what Volcano is told, and what is made of its answers."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from paddle_operator.kube.objects import PODS, SERVICES
from paddle_operator.kube.writes import Patch
from paddle_operator.plan.children import Children
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.paddlejob import PlanContext, plan
from paddle_operator.plan.pod_group import POD_GROUPS, GroupView
from paddle_operator.plan.scheduling_policy import is_gang
from tests.support.jobs import (
    ETCD,
    SECONDS,
    T0,
    VOLCANO,
    JSONObject,
    creates,
    deletes,
    get_condition,
    make_group,
    make_job,
    make_pod,
    make_pods,
    make_refusal,
    make_running_children,
    make_template,
    manifest,
    not_running_reason,
    patches,
    reasons,
    with_replicas,
    with_spec,
    with_status,
    writes_of,
)
from tests.support.model import Model

ABSENT = replace(VOLCANO, group_crd_missing=True)


def asking(cpu: str = "2", **told: Any) -> Job:
    """A job each of whose pods asks for that."""
    template = make_template({"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}})
    shape: JSONObject = {"workers": 2, "template": template} | told
    return make_job(**shape)


def group_spec(job: Job, context: PlanContext = VOLCANO) -> JSONObject:
    spec: JSONObject = manifest(plan(job, Children(), T0, context), POD_GROUPS, "mnist")["spec"]
    return spec


def its_group(job: Job, phase: str = "Running", **told: Any) -> GroupView:
    """As it was made for the job."""
    spec = group_spec(job)
    known: JSONObject = {
        "min_member": spec["minMember"],
        "min_resources": spec.get("minResources", {}),
        "queue": spec.get("queue", ""),
        "priority_class": spec.get("priorityClassName", ""),
    }
    return make_group(job, phase, **known | told)


# The group


def test_a_group_of_the_jobs_name_is_made_and_no_pod_yet() -> None:
    job = asking(ps=1, workers=2, intranet="Service")
    desired = plan(job, Children(), T0, VOLCANO)
    assert (creates(desired, POD_GROUPS), creates(desired, PODS), creates(desired, SERVICES)) == (["mnist"], [], [])
    assert not_running_reason(desired) == ("CreatingPodGroup", "PodGroup mnist is not created yet")
    assert [(each.reason, each.warning) for each in desired.events] == [("CreatingPodGroup", False)]
    made = manifest(desired, POD_GROUPS, "mnist")
    assert made["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert made["metadata"]["ownerReferences"][0]["uid"] == job.uid
    assert made["spec"] == {"minMember": 3, "minResources": {"cpu": "6", "memory": "3Gi"}}


@pytest.mark.parametrize(
    ("shape", "policy", "spec"),
    [
        ({"workers": 4}, {}, {"minMember": 4, "minResources": {"cpu": "8", "memory": "4Gi"}}),
        ({"workers": 4}, {"minAvailable": 3}, {"minMember": 3, "minResources": {"cpu": "6", "memory": "3Gi"}}),
        ({"ps": 2, "workers": 2}, {"minAvailable": 3}, {"minMember": 3, "minResources": {"cpu": "6", "memory": "3Gi"}}),
        ({"workers": 2}, {"minResources": {"cpu": "1"}}, {"minMember": 2, "minResources": {"cpu": "1"}}),
        (
            {"workers": 2},
            {"queue": "night", "priorityClass": "high"},
            {
                "minMember": 2,
                "minResources": {"cpu": "4", "memory": "2Gi"},
                "queue": "night",
                "priorityClassName": "high",
            },
        ),
    ],
)
def test_what_volcano_is_told(shape: JSONObject, policy: JSONObject, spec: JSONObject) -> None:
    assert group_spec(asking(**shape, policies={"schedulingPolicy": policy})) == spec


@pytest.mark.parametrize(("requests", "members"), [(2, 2), (None, 4), (0, 4)])
def test_an_elastic_job_may_start_with_its_fewest_workers(requests: int | None, members: int) -> None:
    context = replace(VOLCANO, etcd=ETCD.etcd)
    assert group_spec(asking(workers=4, elastic=1, requests=requests), context)["minMember"] == members


def test_pods_that_ask_for_nothing_ask_the_group_for_nothing() -> None:
    assert group_spec(make_job(workers=2)) == {"minMember": 2}


def test_invalid_quantity_does_not_block_the_group() -> None:
    job = make_job(workers=2, template=make_template({"resources": {"requests": {"cpu": "much"}}}))
    assert group_spec(job) == {"minMember": 2}


def test_the_group_follows_the_spec() -> None:
    job = asking(workers=2)
    there = replace(make_running_children(job), group=its_group(job))
    assert writes_of(plan(with_status(job, plan(job, there, T0, VOLCANO).status), there, T0, VOLCANO)) == []
    more = with_replicas(job, worker=3)
    desired = plan(more, Children(group=its_group(job)), T0, VOLCANO)
    change = {"spec": {"minMember": 3, "minResources": {"cpu": "6", "memory": "3Gi"}}}
    assert [each for each in writes_of(desired) if isinstance(each, Patch)] == [
        Patch(POD_GROUPS, job.key, "group-1", change)
    ]


def test_what_is_no_longer_asked_for_is_taken_out() -> None:
    job = asking()
    there = Children(group=its_group(job, min_resources={"cpu": "4", "memory": "2Gi", "nvidia.com/gpu": "2"}))
    (patch,) = [each for each in writes_of(plan(job, there, T0, VOLCANO)) if isinstance(each, Patch)]
    assert patch.change == {"spec": {"minResources": {"cpu": "4", "memory": "2Gi", "nvidia.com/gpu": None}}}


def test_a_queue_that_volcano_filled_in_is_left_alone() -> None:
    job = asking()
    there = Children(group=its_group(job, queue="default"))
    assert not [each for each in writes_of(plan(job, there, T0, VOLCANO)) if isinstance(each, Patch)]


def test_quantity_rewritten_by_volcano_is_not_patched() -> None:
    """It writes whole PodGroups, and Go spells amounts in one way: else each of its writes would bring one of ours."""
    job = asking(policies={"schedulingPolicy": {"minResources": {"cpu": 4, "memory": "2048Mi", "a/b": "1000m"}}})
    there = Children(group=its_group(job, min_resources={"cpu": "4", "memory": "2Gi", "a/b": "1"}))
    assert not [each for each in writes_of(plan(job, there, T0, VOLCANO)) if isinstance(each, Patch)]
    other = Children(group=its_group(job, min_resources={"cpu": "5", "memory": "2Gi", "a/b": "1"}))
    assert [each for each in writes_of(plan(job, other, T0, VOLCANO)) if isinstance(each, Patch)]


@pytest.mark.parametrize("owner", ["", "somebody-else"])
def test_a_group_that_the_user_made_counts_as_it_is(owner: str) -> None:
    job = asking()
    theirs = make_group(job, "Inqueue", owner_uid=owner, min_member=1, queue="theirs")
    desired = plan(job, Children(group=theirs), T0, VOLCANO)
    assert creates(desired) == ["mnist-worker-0", "mnist-worker-1"]
    assert not [each for each in writes_of(desired) if each.kind is POD_GROUPS]
    waits = plan(job, Children(group=msgspec.structs.replace(theirs, phase="Pending")), T0, VOLCANO)
    assert writes_of(waits) == []
    assert "in queue theirs" in not_running_reason(waits)[1]


def test_deleted_group_is_recreated_while_the_job_runs() -> None:
    job = asking()
    desired = plan(job, make_running_children(job), T0, VOLCANO)
    assert (creates(desired), desired.status.phase) == (["mnist"], "Running")


def test_refused_group_is_retried_and_reported() -> None:
    job = asking()
    refusal = make_refusal(job, "podgroups", "mnist", reason="Forbidden", message="queue is closed")
    early = plan(job, Children(refusals=(refusal,)), T0, VOLCANO)
    assert (writes_of(early), early.requeue_at) == ([], T0 + 4 * SECONDS)
    assert not_running_reason(early) == ("Forbidden", "the API server refused podgroups mnist: queue is closed")
    assert creates(plan(job, Children(refusals=(refusal,)), T0 + 4 * SECONDS, VOLCANO)) == ["mnist"]


# The pods


@pytest.mark.parametrize(
    ("phase", "may"),
    [("", False), ("Pending", False), ("Inqueue", True), ("Running", True), ("Unknown", True), ("Completed", True)],
)
def test_pods_are_made_when_the_group_may_run(phase: str, may: bool) -> None:
    job = asking()
    desired = plan(job, Children(group=its_group(job, phase)), T0, VOLCANO)
    assert creates(desired, PODS) == (["mnist-worker-0", "mnist-worker-1"] if may else [])
    assert (not_running_reason(desired)[0] == "WaitingForPodGroup") is not may


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_a_group_that_was_made_a_moment_ago_worries_nobody(phase: str) -> None:
    job = asking()
    young = Children(group=its_group(job, phase, created_at=T0 - 1 * SECONDS))
    desired = plan(job, young, T0, VOLCANO)
    assert not_running_reason(desired) == ("CreatingPodGroup", "PodGroup mnist was just created")
    assert [each.warning for each in desired.events] == [False]
    assert desired.requeue_at == T0 + 2 * SECONDS
    assert not_running_reason(plan(job, young, T0 + 2 * SECONDS, VOLCANO))[0] == "WaitingForPodGroup"


def test_user_group_may_arrive_after_the_job() -> None:
    """The user guide has the job first and the PodGroup second, in one file."""
    job = asking(template=make_template(schedulerName="volcano"))
    first = plan(job, Children(), T0, VOLCANO)
    assert (creates(first), first.requeue_at) == ([], T0 + 2 * SECONDS)
    later = with_status(job, first.status)
    assert creates(plan(later, Children(), T0 + 1 * SECONDS, VOLCANO)) == []
    assert creates(plan(later, Children(), T0 + 2 * SECONDS, VOLCANO)) == ["mnist"]


def test_gang_blocked_by_its_own_pods_is_admitted() -> None:
    """Its bound pods hold what Volcano wants to see free; then the group says again what it asks for."""
    job = asking(workers=3)
    bound = make_pod(job, "worker", 0, phase="Pending", node="node-0")
    stuck = Children((bound,), group=its_group(job, "Pending"))
    assert patches(plan(job, stuck, T0, VOLCANO))["mnist"]["spec"]["minResources"] == {"cpu": None, "memory": None}
    let_in = Children((bound,), group=its_group(job, "Inqueue", min_resources={}))
    assert patches(plan(job, let_in, T0, VOLCANO))["mnist"]["spec"]["minResources"]
    waits = Children(group=its_group(job, "Pending"))
    assert patches(plan(job, waits, T0, VOLCANO)) == {}


def test_a_group_on_its_way_out_lets_nobody_in() -> None:
    job = asking()
    assert writes_of(plan(job, Children(group=its_group(job, terminating=True)), T0, VOLCANO)) == []


def test_why_volcano_does_not_let_it_in_is_told_in_its_words() -> None:
    job = asking(policies={"schedulingPolicy": {"queue": "night"}})
    desired = plan(
        job,
        Children(group=its_group(job, "Pending", unschedulable_message="2/0 tasks in gang unschedulable")),
        T0,
        VOLCANO,
    )
    assert not_running_reason(desired) == (
        "WaitingForPodGroup",
        "PodGroup mnist is not yet enqueued in queue night: 2/0 tasks in gang unschedulable",
    )
    assert [(each.reason, each.warning) for each in desired.events] == [("WaitingForPodGroup", True)]


@pytest.mark.parametrize("phase", ["", "Pending", "Unknown"])
def test_once_there_are_pods_the_groups_phase_holds_nothing_up(phase: str) -> None:
    job = asking(workers=3)
    started = make_running_children(job)
    assert plan(job, replace(started, group=its_group(job, phase)), T0, VOLCANO).status.phase == "Running"
    half = Children((make_pod(job, "worker", 0, phase="Pending"),), group=its_group(job, phase))
    assert creates(plan(job, half, T0, VOLCANO), PODS) == ["mnist-worker-1", "mnist-worker-2"]


def test_a_pod_has_what_volcano_knows_it_by() -> None:
    job = asking(ps=1, attempt=2, policies={"schedulingPolicy": {"queue": "night"}})
    pod = manifest(plan(job, Children(group=its_group(job)), T0, VOLCANO), PODS, "mnist-ps-0")
    assert pod["spec"]["schedulerName"] == "volcano"
    wanted = {
        "scheduling.k8s.io/group-name": "mnist",
        "volcano.sh/task-spec": "ps",
        "volcano.sh/job-name": "mnist",
        "volcano.sh/job-version": "2",
        "volcano.sh/queue-name": "night",
    }
    assert wanted.items() <= pod["metadata"]["annotations"].items()


def test_the_group_is_kept_across_attempts_and_asked_again() -> None:
    life = Model(asking(policies={"backoffLimit": 1}), Children(), T0, VOLCANO)
    life.reconcile_until_idle()
    assert (life.pods, life.status.phase) == ({}, "Pending")
    life.admit_group()
    life.run_all_pods()
    assert life.status.phase == "Running"
    assert life.group
    uid = life.group.uid
    life.exit_pod("mnist-worker-0", 1)
    life.reconcile_until_idle()
    life.admit_group("Pending")
    life.advance(10)
    assert (life.pods, life.group.uid) == ({}, uid)
    assert get_condition(life.status, "Running").reason == "WaitingForPodGroup"
    life.admit_group()
    life.run_all_pods()
    assert (life.status.phase, life.status.attempt) == ("Running", 1)
    for name in list(life.pods):
        life.exit_pod(name, 0)
    life.reconcile_until_idle()
    assert life.status.phase == "Completed"
    assert life.children().group is None


def test_start_deadline_bounds_a_waiting_gang() -> None:
    life = Model(asking(policies={"startDeadlineSeconds": 60}), Children(), T0, VOLCANO)
    life.reconcile_until_idle()
    life.admit_group("Pending")
    life.advance(60)
    found = get_condition(life.status, "Failed")
    assert (found.reason, life.group) == ("StartDeadlineExceeded", None)
    assert "PodGroup mnist is not yet enqueued in queue default" in found.message


# Not a gang


@pytest.mark.parametrize(
    ("scheduling", "schedulers", "gang"),
    [
        ("volcano", (None, None), True),
        ("volcano", ("volcano", None), True),
        ("volcano", ("volcano", "volcano"), True),
        ("volcano", ("volcano", "mine"), False),
        ("volcano", (None, "mine"), False),
        ("", (None, None), False),
        ("", ("volcano", "volcano"), False),
    ],
)
def test_gang_needs_flag_and_no_foreign_scheduler(
    scheduling: str, schedulers: tuple[str | None, str | None], gang: bool
) -> None:
    job = make_job(ps=1, workers=1)
    assert job.spec
    parts = {
        role: msgspec.structs.replace(part, template=make_template(schedulerName=name) if name else make_template())
        for (role, part), name in zip(job.spec.roles.items(), schedulers, strict=True)
    }
    job = with_spec(job, **{str(role): part for role, part in parts.items()})
    assert job.spec
    assert is_gang(job.spec, scheduling) is gang
    context = PlanContext(scheduling=scheduling)
    later = with_status(job, plan(job, Children(), T0, context).status)
    desired = plan(later, Children(), T0 + 2 * SECONDS, context)
    assert (creates(desired, POD_GROUPS) == ["mnist"], creates(desired, PODS) == []) == (gang, gang)


def test_another_scheduler_stays_and_the_user_is_told_once() -> None:
    """KF-C13."""
    job = make_job(workers=1, template=make_template(schedulerName="mine"))
    desired = plan(job, Children(), T0, VOLCANO)
    pod = manifest(desired, PODS, "mnist-worker-0")
    assert pod["spec"]["schedulerName"] == "mine"
    assert "scheduling.k8s.io/group-name" not in pod["metadata"]["annotations"]
    found = get_condition(desired.status, "GangAtRisk")
    assert (found.status, found.reason, found.message) == (
        "True",
        "OtherScheduler",
        "spec.worker.template.spec.schedulerName is mine: the job is not scheduled as a gang; remove it "
        "to let Volcano schedule the job",
    )
    assert "OtherScheduler" in reasons(desired)
    assert "OtherScheduler" not in reasons(plan(with_status(job, desired.status), Children(), T0 + SECONDS, VOLCANO))
    assert "GangAtRisk" not in [each.type for each in plan(job, Children(), T0).status.conditions]


def test_volcano_template_without_flag_is_passed_through() -> None:
    job = make_job(workers=1, template=make_template(schedulerName="volcano"))
    pod = manifest(plan(job, Children(), T0), PODS, "mnist-worker-0")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert "scheduling.k8s.io/group-name" not in pod["metadata"]["annotations"]


def test_missing_pod_group_crd_is_reported_with_the_fix() -> None:
    desired = plan(asking(), Children(), T0, ABSENT)
    assert writes_of(desired) == []
    assert not_running_reason(desired) == (
        "PodGroupCRDNotFound",
        "the operator runs with --scheduling=volcano, but the cluster has no PodGroup CRD: install Volcano, or start "
        "the operator without --scheduling",
    )


def test_where_the_groups_are_gone_what_runs_runs_on() -> None:
    job = asking(workers=3)
    assert plan(job, make_running_children(job), T0, ABSENT).status.phase == "Running"
    there = Children(make_pods(job, phase="Pending")[:1])
    assert creates(plan(job, there, T0, ABSENT)) == ["mnist-worker-1", "mnist-worker-2"]
    assert deletes(plan(job, Children(), T0, ABSENT)) == []
