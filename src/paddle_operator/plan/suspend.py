"""spec.suspend: a suspended job retains its name, ports and history, and has no pods."""

from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import Phase, RoleStatus
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import find_condition, is_true, with_conditions
from paddle_operator.kube.writes import EventIntent, Plan
from paddle_operator.plan.clean_pod_policy import child_deletes
from paddle_operator.plan.deadlines import seconds_active
from paddle_operator.plan.diff import waves
from paddle_operator.plan.failure_policy import restarts_to_persist
from paddle_operator.plan.job_view import Job, JobPlan
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.status import RUNNING, SUSPENDED, counted_status, make_condition, with_counts


def is_suspended(job: Job) -> bool:
    return is_true(find_condition(job.status.conditions, SUSPENDED))


def suspend(observed: ObservedJob, now: datetime) -> JobPlan:
    """Write the condition and a new attempt first, so that no earlier pod counts for it; then delete."""
    job, children = observed.job, observed.children
    message = f"spec.suspend is true: {'terminating all pods' if children.pods else 'no pod exists'}"
    suspended = make_condition(job, SUSPENDED, True, Reason.SUSPENDED, message, now)
    running = make_condition(job, RUNNING, False, Reason.SUSPENDED, message, now)
    status = with_counts(
        observed, {role: RoleStatus() for role in observed.pods_by_role}, counted_status(observed, now)
    )
    status = msgspec.structs.replace(
        status,
        phase=Phase.SUSPENDED,
        conditions=with_conditions(status.conditions, suspended, running),
        next_attempt_time=None,
        replacing=(),
    )
    if is_suspended(job):
        return Plan(status, waves(child_deletes(job, children)))
    had_children = bool(children.pods or children.config_maps or children.services)
    status = msgspec.structs.replace(
        status,
        attempt=status.attempt + had_children,
        restarts=restarts_to_persist(observed),  # kubelet's restarts are lost with the pods
        active_seconds=seconds_active(job, now),
        active_since=None,
    )
    return Plan(status, events=(EventIntent(Reason.SUSPENDED, message),))


def resume(job: Job, now: datetime) -> JobPlan:
    message = "spec.suspend is false: starting the job again"
    suspended = make_condition(job, SUSPENDED, False, Reason.RESUMED, message, now)
    running = make_condition(job, RUNNING, False, Reason.RESUMED, message, now)  # its reason is still Suspended
    status = msgspec.structs.replace(
        job.status,
        phase=Phase.PENDING,
        observed_generation=job.metadata.generation,
        start_time=None,
        active_since=now.replace(microsecond=0),
        conditions=with_conditions(job.status.conditions, suspended, running),
    )
    return Plan(status, events=(EventIntent(Reason.RESUMED, message),))
