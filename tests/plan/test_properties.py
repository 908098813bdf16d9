"""What holds of every plan, for any job in any state of its cluster."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import given, note, settings
from hypothesis import strategies as st

from paddle_operator.api.paddlejob import Intranet
from paddle_operator.kube.objects import PODS
from paddle_operator.kube.writes import Create, Delete, DeleteAll, Plan, StatusOrder
from paddle_operator.plan import diff
from paddle_operator.plan.children import Children
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, JobPlan
from paddle_operator.plan.metadata import pod_name
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.paddlejob import PlanContext, plan
from paddle_operator.plan.success_policy import is_succeeded
from tests.plan.random_clusters import EDGES, quick, worlds
from tests.support.jobs import SECONDS, T0, with_spec, with_status, writes_of
from tests.support.model import Model


@quick
@given(worlds(), st.randoms(use_true_random=False))
def test_plan_is_pure_and_order_independent(observed: tuple[Job, Children, PlanContext], random: Any) -> None:
    job, children, context = observed
    first = plan(job, children, T0, context)
    again = plan(job, children, T0, context)
    assert (again, in_full(again)) == (first, in_full(first))
    pods, services = list(children.pods), list(children.services)
    random.shuffle(pods)
    random.shuffle(services)
    other = plan(job, replace(children, pods=tuple(pods), services=tuple(services)), T0, context)
    assert (other.status, other.events, other.requeue_at) == (first.status, first.events, first.requeue_at)
    assert sorted(in_full(other)) == sorted(in_full(first))


def in_full(desired: JobPlan) -> list[str]:
    """What is to be written, manifests and all."""
    return [f"{each} {each.manifest if isinstance(each, Create) else ''}" for each in writes_of(desired)]


@settings(quick, max_examples=150)
@given(worlds(), st.sets(st.sampled_from([("configmaps", "mnist"), ("pods", "mnist-worker-0")]), max_size=1))
def test_without_changes_from_outside_planning_comes_to_rest(
    observed: tuple[Job, Children, PlanContext], taken: set[tuple[str, str]]
) -> None:
    job, children, context = observed
    there = {("pods", pod.name) for pod in children.pods} | {("configmaps", each.name) for each in children.config_maps}
    model = Model(job, children, T0, context)
    model.foreign_names = taken - there
    if model.foreign_names:  # such a name is tried again for ever, and nothing else is left to do
        for _ in range(40):
            model.reconcile_and_advance()
        kept = model.plan()
        there = {("pods", name) for name in model.pods} | {("configmaps", name) for name in model.config_maps}
        assert not there & model.foreign_names
        assert kept.required_names or all(
            isinstance(each, Create) and (each.kind.plural, each.key.name) in taken for each in writes_of(kept)
        )
    else:
        model.run_until_idle()
    note(str(model.phases))
    for step in zip(model.phases[1:], model.phases[2:], strict=False):  # the first one was made up
        assert step in EDGES


@quick
@given(worlds())
def test_writes_match_what_exists(
    observed: tuple[Job, Children, PlanContext],
) -> None:
    job, children, context = observed
    desired = plan(job, children, T0, context)
    there = {pod.name: pod for pod in children.pods}
    assert job.spec
    rests = job.finished or job.spec.suspend
    seated = {} if rests else {pod.name for pod in ObservedJob(job, job.spec, children).pods()}
    for write in writes_of(desired):
        match write:
            case Create():
                kinds: dict[str, tuple[Any, ...]] = {
                    "pods": children.pods,
                    "configmaps": children.config_maps,
                    "services": children.services,
                    "podgroups": (children.group,) if children.group else (),
                }
                assert write.key.name not in {each.name for each in kinds[write.kind.plural]}
                assert not rests
            case Delete(kind=kind_) if kind_ is PODS:
                pod = there[write.key.name]
                assert (pod.uid, pod.terminating) == (write.uid, write.force)
                if desired.status.phase not in ("Completed", "Failed"):
                    assert pod.name not in seated
                elif not job.spec.cleans(desired.status.phase):
                    assert not pod.started
                    assert not pod.finished
            case DeleteAll():
                if desired.status.phase in ("Completed", "Failed"):
                    assert job.spec.cleans(desired.status.phase)
                else:
                    assert not seated


@quick
@given(worlds())
def test_a_finished_job_stays_as_it_ended_and_gets_no_pod(observed: tuple[Job, Children, PlanContext]) -> None:
    job, children, context = observed
    for phase in ("Completed", "Failed"):
        ended = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, phase=phase))
        desired = plan(ended, children, T0, context)
        assert desired.status == ended.status
        assert not [each for each in writes_of(desired) if isinstance(each, Create)]


@quick
@given(worlds())
def test_no_plan_makes_more_of_a_kind_and_role_than_it_may(observed: tuple[Job, Children, PlanContext]) -> None:
    job, children, context = observed
    with patch.object(diff, "MAX_PODS_PER_RECONCILE", 2):
        desired = plan(job, children, T0, context)
        for wave in desired.waves:
            assert sum(isinstance(each, Create) for each in wave) <= 2
        Model(job, children, T0, context).run_until_idle()


@quick
@given(worlds())
def test_barrier_needs_every_pod_reachable(
    observed: tuple[Job, Children, PlanContext],
) -> None:
    job, children, context = observed
    made = [each for each in writes_of(plan(job, children, T0, context)) if isinstance(each, Create)]
    if not [each for each in made if each.kind.plural == "configmaps"]:
        return
    assert job.spec
    by_name = {pod.name: pod for pod in children.pods}
    for role, part in job.spec.roles.items():
        for index in range(part.replicas):
            pod = by_name[pod_name(job.key, role, index)]
            assert pod.address
            assert pod.attempt == job.status.attempt
            assert job.spec.intranet is Intranet.SERVICE or ":" not in pod.address
    assert not children.config_maps


@quick
@given(worlds())
def test_a_suspended_job_gets_nothing_and_wants_no_waking(observed: tuple[Job, Children, PlanContext]) -> None:
    job, children, context = observed
    assert job.spec
    if (
        job.finished
        or job.spec.managed_by
        or is_succeeded(ObservedJob(job, job.spec, children.in_namespace(job.key.namespace)))
    ):
        return
    resting = with_spec(job, suspend=True)
    first = plan(resting, children, T0, context)
    second = plan(with_status(resting, first.status), children, T0, context)
    for desired in (first, second):
        assert not [each for each in writes_of(desired) if isinstance(each, Create)]
        assert (desired.status.phase, desired.requeue_at) == ("Suspended", None)
    assert second.status == first.status  # and so no pass counts anything twice
    after = with_spec(with_status(resting, second.status), suspend=False)
    assert after.spec
    left = {pod.uid for pod in ObservedJob(after, after.spec, children).pods()}
    if not any(each.type == "Suspended" and each.status == "True" for each in job.status.conditions):
        assert not left & {pod.uid for pod in children.pods if pod.attempt <= job.status.attempt}


@quick
@given(worlds())
def test_a_job_that_is_anothers_is_not_touched(observed: tuple[Job, Children, PlanContext]) -> None:
    job, children, context = observed
    job = with_spec(job, managed_by="example.org/other")
    assert plan(job, children, T0, context) == Plan(job.status)


@quick
@given(worlds(), st.sampled_from([None, 0, 5, 1000]), st.integers(-10, 1010))
def test_finished_job_is_deleted_at_its_ttl(
    observed: tuple[Job, Children, PlanContext], ttl: int | None, later: int
) -> None:
    job, children, context = observed
    ended = msgspec.structs.replace(job.status, phase="Completed", completion_time=T0)
    job = with_spec(with_status(job, ended), ttl_seconds_after_finished=ttl, managed_by="")
    now = T0 + later * SECONDS
    desired = plan(job, children, now, context)
    deleted = [each for each in writes_of(desired) if isinstance(each, Delete) and each.kind is PADDLE_JOBS]
    due = ttl is not None and later >= ttl
    assert len(deleted) == due
    assert desired.requeue_at == (None if ttl is None or due else T0 + ttl * SECONDS)


def times_ahead(job: Job, now: datetime) -> list[datetime]:
    """At which something is due of itself: by the status alone, as a person would read it."""
    spec, status = job.spec, job.status
    assert spec
    if spec.suspend or spec.managed_by or job.metadata.deletion_timestamp:
        return []
    if job.finished:
        ttl, ended = spec.ttl_seconds_after_finished, status.completion_time
        return [ended + ttl * SECONDS] if ended and ttl is not None and ended + ttl * SECONDS > now else []
    accepted = [each.last_transition_time for each in status.conditions if each.type == "Accepted"]
    since, limit = status.active_since or (accepted[0] if accepted else None), spec.active_deadline_seconds
    due = since + (limit - status.active_seconds) * SECONDS if since and limit else None
    return [each for each in (due,) if each and each > now]


@quick
@given(worlds())
def test_a_plan_that_changes_no_status_wakes_for_what_is_ahead(observed: tuple[Job, Children, PlanContext]) -> None:
    """Where it does change it, the echo of that brings the next pass."""
    job, children, context = observed
    model = Model(job, children, T0, context)
    for _ in range(6):
        before = model.job
        desired = model.reconcile()
        if desired.status != before.status or desired.status_order is StatusOrder.DEFERRED or model.deleted_at:
            continue
        assert all(desired.requeue_at and desired.requeue_at <= each for each in times_ahead(model.job, model.now))
        pause = before.status.next_attempt_time
        waits = not before.finished and not desired.waves and pause and pause > model.now
        if waits and desired.status.phase != "Suspended" and not before.spec.managed_by:  # type: ignore[union-attr]
            assert desired.requeue_at or not ObservedJob(model.job, model.job.spec, model.children()).missing  # type: ignore[arg-type]
