"""When is enough enough? Deadlines of a job, told with the time at which to look again: no other event need happen."""

from datetime import datetime, timedelta

from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import find_condition, is_true
from paddle_operator.kube.writes import earliest
from paddle_operator.plan.children import Job
from paddle_operator.plan.exit_codes import JobFailure
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.status import ACCEPTED, RUNNING


def active_since(job: Job, now: datetime) -> datetime:
    """Since when the job has been active without a break: resumed, or taken on by us, once its spec kept the rules."""
    accepted = find_condition(job.status.conditions, ACCEPTED)
    since = job.status.active_since or (accepted.last_transition_time if accepted and is_true(accepted) else now)
    return min(since, now)


def seconds_active(job: Job, now: datetime) -> int:
    """All in all; what was suspended is not in it."""
    return job.status.active_seconds + int((now - active_since(job, now)).total_seconds())


def active_deadline(observed: ObservedJob, now: datetime) -> datetime | None:
    limit = observed.spec.active_deadline_seconds
    if limit is None:
        return None
    return active_since(observed.job, now) + timedelta(seconds=limit - observed.job.status.active_seconds)


def start_deadline(observed: ObservedJob, now: datetime) -> datetime | None:
    """None where every pod of this attempt has started; those of an elastic job need to do that once."""
    limit, status = observed.spec.start_deadline_seconds, observed.job.status
    if limit is None or has_started(observed):
        return None
    running = find_condition(observed.job.status.conditions, RUNNING)
    if running and is_true(running):
        return None  # that start was in time; where a pod is missing now, this pass says so, and the next one counts
    since = [active_since(observed.job, now), status.attempt_time, status.next_attempt_time]
    since += [running.last_transition_time if running else None]
    return max(each for each in since if each) + timedelta(seconds=limit)


def has_started(observed: ObservedJob) -> bool:
    if observed.spec.is_elastic and observed.job.status.start_time:
        return True
    return not observed.missing and all(pod.started for pod in observed.pods())


def active_deadline_exceeded(observed: ObservedJob, now: datetime) -> JobFailure | None:
    """Where the job has taken longer than it may."""
    until = active_deadline(observed, now)
    if until is None or now < until:
        return None
    limit = observed.spec.active_deadline_seconds
    return JobFailure(Reason.DEADLINE_EXCEEDED, f"not done after {limit} s, which is spec.activeDeadlineSeconds")


def start_deadline_exceeded(observed: ObservedJob, now: datetime) -> JobFailure | None:
    """Where not all pods have started in the time that they had."""
    until = start_deadline(observed, now)
    if until is None or now < until:
        return None
    limit, waits = observed.spec.start_deadline_seconds, find_condition(observed.job.status.conditions, RUNNING)
    message = f"not started after {limit} s, which is spec.startDeadlineSeconds"
    return JobFailure(Reason.START_DEADLINE_EXCEEDED, f"{message}: {waits.message}" if waits else message)


def next_deadline(observed: ObservedJob, now: datetime) -> datetime | None:
    return earliest(active_deadline(observed, now), start_deadline(observed, now))


def ttl_expiry(job: Job) -> datetime | None:
    """When a finished job is to be deleted."""
    assert job.spec
    ended, limit = job.status.completion_time, job.spec.ttl_seconds_after_finished
    return ended + timedelta(seconds=limit) if ended and limit is not None else None
