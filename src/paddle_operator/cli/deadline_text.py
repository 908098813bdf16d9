"""Formats retries, deadlines and expiry of a job. Pure: the time is an argument.

The times come from plan/, so they are those at which the operator acts.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from paddle_operator.api.paddlejob import PaddleJobSpec, Phase
from paddle_operator.kube.durations import human_duration
from paddle_operator.plan.children import Children, PodView
from paddle_operator.plan.deadlines import active_deadline, start_deadline, ttl_expiry
from paddle_operator.plan.failure_policy import backoff_until
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.observed import ObservedJob


def upcoming_deadlines(job: Job, pods: Iterable[PodView], now: datetime) -> dict[str, str]:
    """One line for each policy of the job, by its label on the page."""
    if job.spec is None:
        return {}
    observed = ObservedJob(job, job.spec, Children(tuple(pods)))
    return {
        "Retries": _retries_row(job, job.spec, now),
        "Deadline": _deadline_row(observed, job.spec, now),
        "Start by": _start_row(observed, job.spec, now),
        "Expiry": format_expiry(job, now),
    }


def format_retries(job: Job, now: datetime) -> str:
    """`retries used: 1 of 3, next at 12:00:10 UTC`; empty if none was used."""
    if not job.status.restarts:
        return ""
    limit = job.spec.backoff_limit if job.spec else None
    used = f"retries used: {job.status.restarts}" + ("" if limit is None else f" of {limit}")
    next_at = backoff_until(job.status, now)
    return f"{used}, next at {format_clock_time(next_at, now)}" if next_at and not job.finished else used


def format_deadline(job: Job, now: datetime) -> str:
    """`ends at 12:10:00 UTC`; empty if no deadline runs."""
    at = running_deadline(job, now)
    return f"ends at {format_clock_time(at, now)}" if at else ""


def running_deadline(job: Job, now: datetime) -> datetime | None:
    """None if the job has none or it does not run: not yet accepted, suspended, finished."""
    if job.spec is None or job.finished or job.status.phase in ("", Phase.SUSPENDED):
        return None
    return active_deadline(ObservedJob(job, job.spec, Children()), now)


def format_expiry(job: Job, now: datetime) -> str:
    """`is deleted at 12:15:00 UTC (in 60s): spec.ttlSecondsAfterFinished is 60`; empty if it has no TTL."""
    limit = job.spec.ttl_seconds_after_finished if job.spec else None
    if limit is None:
        return ""
    if job.finished and (at := ttl_expiry(job)):
        return f"is deleted at {format_time_with_distance(at, now)}: spec.ttlSecondsAfterFinished is {limit}"
    return f"is deleted {limit} s after it finishes: spec.ttlSecondsAfterFinished"


def _retries_row(job: Job, spec: PaddleJobSpec, now: datetime) -> str:
    if spec.backoff_limit is None:
        return ""
    next_at = None if job.finished else backoff_until(job.status, now)
    used = f"{job.status.restarts} of {spec.backoff_limit} used"
    return f"{used}, next at {format_time_with_distance(next_at, now)}" if next_at else used


def _deadline_row(observed: ObservedJob, spec: PaddleJobSpec, now: datetime) -> str:
    job, limit = observed.job, spec.active_deadline_seconds
    if limit is None or job.finished:
        return ""
    if job.status.phase == Phase.SUSPENDED:
        remaining_seconds = max(0, limit - job.status.active_seconds)
        return f"{remaining_seconds} of {limit} s left; the deadline is paused while the job is suspended"
    at = running_deadline(job, now)
    return (
        f"ends at {format_time_with_distance(at, now)}: spec.activeDeadlineSeconds is {limit}" if at else f"{limit} s"
    )


def _start_row(observed: ObservedJob, spec: PaddleJobSpec, now: datetime) -> str:
    if observed.job.finished or observed.job.status.phase in ("", Phase.SUSPENDED):
        return ""
    at = start_deadline(observed, now)
    limit = spec.start_deadline_seconds
    return f"{format_time_with_distance(at, now)}, or it fails: spec.startDeadlineSeconds is {limit}" if at else ""


def format_time_with_distance(at: datetime, now: datetime) -> str:
    """`12:00:10 UTC (in 7s)`; without the distance if it has passed."""
    return (
        f"{format_clock_time(at, now)} (in {human_duration((at - now).total_seconds())})"
        if at > now
        else format_clock_time(at, now)
    )


def format_clock_time(at: datetime, now: datetime) -> str:
    """As in the operator's messages; with the date if it is more than 12 hours away."""
    near = abs(at - now) < timedelta(hours=12)
    return f"{at:%H:%M:%S} UTC" if near else f"{at:%Y-%m-%d %H:%M:%S} UTC"
