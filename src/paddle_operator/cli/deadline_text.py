"""What is ahead of a job, in words: the next try, its deadlines, when it is deleted. Pure: the time is an argument.

The times themselves are the plan's own: what is told here is what the operator will do.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from paddle_operator.api.paddlejob import PaddleJobSpec, Phase
from paddle_operator.kube.durations import human_duration
from paddle_operator.plan.children import Children, Job, PodView
from paddle_operator.plan.deadlines import active_deadline, start_deadline, ttl_expiry
from paddle_operator.plan.failure_policy import backoff_until
from paddle_operator.plan.observed import ObservedJob


def facts_ahead(job: Job, pods: Iterable[PodView], now: datetime) -> dict[str, str]:
    """A line for each policy that the job has, under the word that a page shows before it."""
    if job.spec is None:
        return {}
    observed = ObservedJob(job, job.spec, Children(tuple(pods)))
    return {
        "Tries": _tries_of_all(job, job.spec, now),
        "Deadline": _deadline_told(observed, job.spec, now),
        "Start by": _start_told(observed, job.spec, now),
        "Kept until": expiry_told(job, now),
    }


def tries_told(job: Job, now: datetime) -> str:
    """`tries used: 1 of 3, next at 12:00:10 UTC`; empty while none was needed."""
    if not job.status.restarts:
        return ""
    limit = job.spec.backoff_limit if job.spec else None
    used = f"tries used: {job.status.restarts}" + ("" if limit is None else f" of {limit}")
    again_at = backoff_until(job.status, now)
    return f"{used}, next at {clock(again_at, now)}" if again_at and not job.finished else used


def end_told(job: Job, now: datetime) -> str:
    """`ends at 12:10:00 UTC`: of a job whose time runs; empty for every other."""
    at = deadline_of(job, now)
    return f"ends at {clock(at, now)}" if at else ""


def deadline_of(job: Job, now: datetime) -> datetime | None:
    """None where the job has none, or where its time does not run: before it was taken on, suspended, finished."""
    if job.spec is None or job.finished or job.status.phase in ("", Phase.SUSPENDED):
        return None
    return active_deadline(ObservedJob(job, job.spec, Children()), now)


def expiry_told(job: Job, now: datetime) -> str:
    """`is deleted at 12:15:00 UTC (in 60s): spec.ttlSecondsAfterFinished is 60`; empty where it is kept."""
    limit = job.spec.ttl_seconds_after_finished if job.spec else None
    if limit is None:
        return ""
    if job.finished and (at := ttl_expiry(job)):
        return f"is deleted at {with_distance(at, now)}: spec.ttlSecondsAfterFinished is {limit}"
    return f"is deleted {limit} s after its end: spec.ttlSecondsAfterFinished"


def _tries_of_all(job: Job, spec: PaddleJobSpec, now: datetime) -> str:
    if spec.backoff_limit is None:
        return ""
    again_at = None if job.finished else backoff_until(job.status, now)
    used = f"{job.status.restarts} of {spec.backoff_limit} used"
    return f"{used}, next at {with_distance(again_at, now)}" if again_at else used


def _deadline_told(observed: ObservedJob, spec: PaddleJobSpec, now: datetime) -> str:
    job, limit = observed.job, spec.active_deadline_seconds
    if limit is None or job.finished:
        return ""
    if job.status.phase == Phase.SUSPENDED:
        left = max(0, limit - job.status.active_seconds)
        return f"{left} of {limit} s are left; while the job is suspended, no time passes"
    at = deadline_of(job, now)
    return f"ends at {with_distance(at, now)}: spec.activeDeadlineSeconds is {limit}" if at else f"{limit} s"


def _start_told(observed: ObservedJob, spec: PaddleJobSpec, now: datetime) -> str:
    if observed.job.finished or observed.job.status.phase in ("", Phase.SUSPENDED):
        return ""
    at = start_deadline(observed, now)
    limit = spec.start_deadline_seconds
    return f"{with_distance(at, now)}, or it fails: spec.startDeadlineSeconds is {limit}" if at else ""


def with_distance(at: datetime, now: datetime) -> str:
    """`12:00:10 UTC (in 7s)`; what has passed already is only told with its time."""
    return f"{clock(at, now)} (in {human_duration((at - now).total_seconds())})" if at > now else clock(at, now)


def clock(at: datetime, now: datetime) -> str:
    """As the operator's own messages have it; with the day where it is another than today or tomorrow morning."""
    near = abs(at - now) < timedelta(hours=12)
    return f"{at:%H:%M:%S} UTC" if near else f"{at:%Y-%m-%d %H:%M:%S} UTC"
