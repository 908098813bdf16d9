"""Deadlines of a job: activeDeadlineSeconds, startDeadlineSeconds and ttlSecondsAfterFinished.

Each one sets the requeue time, since no event need arrive when it expires.
"""

from datetime import datetime, timedelta

from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import find_condition, is_true
from paddle_operator.kube.writes import earliest
from paddle_operator.plan.exit_codes import JobFailure
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.status import ACCEPTED, RUNNING


def active_since(job: Job, now: datetime) -> datetime:
    """Since when the job is active without a break: since it was resumed, or else accepted."""
    accepted = find_condition(job.status.conditions, ACCEPTED)
    since = job.status.active_since or (accepted.last_transition_time if accepted and is_true(accepted) else now)
    return min(since, now)


def seconds_active(job: Job, now: datetime) -> int:
    """In total, without the time for which the job was suspended."""
    return job.status.active_seconds + int((now - active_since(job, now)).total_seconds())


def active_deadline(observed: ObservedJob, now: datetime) -> datetime | None:
    limit = observed.spec.active_deadline_seconds
    if limit is None:
        return None
    return active_since(observed.job, now) + timedelta(seconds=limit - observed.job.status.active_seconds)


def start_deadline(observed: ObservedJob, now: datetime) -> datetime | None:
    """None once every pod of this attempt has started; the pods of an elastic job need to start only once."""
    limit, status = observed.spec.start_deadline_seconds, observed.job.status
    if limit is None or has_started(observed):
        return None
    running = find_condition(status.conditions, RUNNING)
    if running and is_true(running):
        return None  # the start was in time; a missing pod makes the condition False, and the deadline starts then
    times = [active_since(observed.job, now), status.attempt_time, status.next_attempt_time]
    times += [running.last_transition_time if running else None]
    return max(each for each in times if each) + timedelta(seconds=limit)


def has_started(observed: ObservedJob) -> bool:
    if observed.spec.is_elastic and observed.job.status.start_time:
        return True
    return not observed.missing and all(pod.started for pod in observed.pods())


def active_deadline_exceeded(observed: ObservedJob, now: datetime) -> JobFailure | None:
    until = active_deadline(observed, now)
    if until is None or now < until:
        return None
    limit = observed.spec.active_deadline_seconds
    return JobFailure(Reason.DEADLINE_EXCEEDED, f"not finished within spec.activeDeadlineSeconds, which is {limit}")


def start_deadline_exceeded(observed: ObservedJob, now: datetime) -> JobFailure | None:
    until = start_deadline(observed, now)
    if until is None or now < until:
        return None
    running = find_condition(observed.job.status.conditions, RUNNING)
    message = f"not started within spec.startDeadlineSeconds, which is {observed.spec.start_deadline_seconds}"
    return JobFailure(Reason.START_DEADLINE_EXCEEDED, f"{message}: {running.message}" if running else message)


def next_deadline(observed: ObservedJob, now: datetime) -> datetime | None:
    return earliest(active_deadline(observed, now), start_deadline(observed, now))


def ttl_expiry(job: Job) -> datetime | None:
    """When a finished job is deleted; None if never."""
    assert job.spec
    completed_at, limit = job.status.completion_time, job.spec.ttl_seconds_after_finished
    return completed_at + timedelta(seconds=limit) if completed_at and limit is not None else None
