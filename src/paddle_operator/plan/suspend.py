"""A job that rests: it keeps its name, its ports and its history, and nothing of it runs."""

from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import Phase, RoleStatus
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import find_condition, is_true, with_conditions
from paddle_operator.kube.writes import EventIntent, Plan
from paddle_operator.plan.children import Job, JobPlan
from paddle_operator.plan.clean_pod_policy import child_deletes
from paddle_operator.plan.deadlines import seconds_active
from paddle_operator.plan.diff import waves
from paddle_operator.plan.failure_policy import restarts_to_persist
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.status import (
    RUNNING,
    SUSPENDED,
    counted_status,
    make_condition,
    with_counts,
)


def is_suspended(job: Job) -> bool:
    return is_true(find_condition(job.status.conditions, SUSPENDED))


def suspend(observed: ObservedJob, now: datetime) -> JobPlan:
    """Written down first, with a new attempt, so that no pod of before is ever taken for one of after; then it goes."""
    job, children = observed.job, observed.children
    message = f"spec.suspend is true: {'its pods are on their way out' if children.pods else 'no pod exists'}"
    held = make_condition(job, SUSPENDED, True, Reason.SUSPENDED, message, now)
    idle = make_condition(job, RUNNING, False, Reason.SUSPENDED, message, now)
    status = with_counts(
        observed, {role: RoleStatus() for role in observed.pods_by_role}, counted_status(observed, now)
    )
    status = msgspec.structs.replace(
        status,
        phase=Phase.SUSPENDED,
        conditions=with_conditions(status.conditions, held, idle),
        next_attempt_time=None,
        replacing=(),
    )
    if is_suspended(job):
        return Plan(status, waves(child_deletes(job, children)))
    had_pods = bool(children.pods or children.config_maps or children.services)
    status = msgspec.structs.replace(
        status,
        attempt=status.attempt + had_pods,
        restarts=restarts_to_persist(observed),  # kubelet's tries would be forgotten with the pods
        active_seconds=seconds_active(job, now),
        active_since=None,
    )
    return Plan(status, events=(EventIntent(Reason.SUSPENDED, message),))


def resume(job: Job, now: datetime) -> JobPlan:
    message = "spec.suspend is no longer true: the job starts afresh"
    held = make_condition(job, SUSPENDED, False, Reason.RESUMED, message, now)
    idle = make_condition(
        job, RUNNING, False, Reason.RESUMED, message, now
    )  # or it would go on saying that it is suspended
    status = msgspec.structs.replace(
        job.status,
        phase=Phase.PENDING,
        observed_generation=job.metadata.generation,
        start_time=None,
        active_since=now.replace(microsecond=0),
        conditions=with_conditions(job.status.conditions, held, idle),
    )
    return Plan(status, events=(EventIntent(Reason.RESUMED, message),))
