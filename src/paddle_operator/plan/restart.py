"""When are pods replaced: all of them, or a failed one alone?

Containers read their addresses once, at the start, and Paddle's ranks meet once: so mostly all pods are replaced.
"""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import FailureAction, Phase, RoleStatus
from paddle_operator.api.reasons import Reason, RestartCause
from paddle_operator.kube.conditions import with_conditions
from paddle_operator.kube.writes import EventIntent, Plan
from paddle_operator.plan.children import PodView
from paddle_operator.plan.endpoints import Endpoints
from paddle_operator.plan.exit_codes import JobFailure, describe_failure, first_failure
from paddle_operator.plan.failure_policy import (
    action_for,
    backoff_until,
    container_restarts,
    counted_failures,
    exceeds_backoff_limit,
    is_disruption,
    kubelet_restarts,
    matching_action,
    next_attempt_time,
    restarts_used,
    root_failure,
    root_failures,
)
from paddle_operator.plan.finish import fail
from paddle_operator.plan.job_view import JobPlan
from paddle_operator.plan.metadata import pod_name, replicas_text
from paddle_operator.plan.observed import ObservedJob, individually_replaceable
from paddle_operator.plan.status import RUNNING, counted_status, make_condition, with_counts

MAX_CONCURRENT_REPLACEMENTS = 64  # UIDs in the status, which stays small; further pods are replaced after these


@dataclass(frozen=True)
class RestartReason:
    """Why pods are replaced: the cause for metrics, the message for users, and the pod that failed first, if any."""

    cause: RestartCause
    message: str
    pod: PodView | None = None


def restart_reason(observed: ObservedJob, endpoints: Endpoints | None) -> RestartReason | None:
    """Why the running pods can no longer find each other, if they cannot."""
    if observed.spec.is_elastic or not observed.released:
        return None
    return _replicas_changed(observed) or _pods_lost(observed) or _address_changed(observed, endpoints)


def _replicas_changed(observed: ObservedJob) -> RestartReason | None:
    before, now = observed.barrier.replicas if observed.barrier else "", replicas_text(observed.spec)
    if before and before != now:
        return RestartReason(RestartCause.REPLICAS, f"replicas changed from {before} to {now}")
    if not before and any(pod.name not in observed.positions for pod in observed.obsolete_pods):
        # The Go operator's ConfigMap has no annotation with the replicas.
        return RestartReason(RestartCause.REPLICAS, f"replicas changed to {now}")
    return None


def _pods_lost(observed: ObservedJob) -> RestartReason | None:
    if not observed.lost_positions:
        return None
    name = pod_name(observed.job.key, *observed.lost_positions[0])
    others = len(observed.lost_positions) - 1
    message = f"{name} and {others} more were deleted" if others else f"{name} was deleted"
    return RestartReason(RestartCause.LOST, message)


def _address_changed(observed: ObservedJob, endpoints: Endpoints | None) -> RestartReason | None:
    before = observed.barrier.endpoints_digest if observed.barrier else ""
    if before and endpoints and endpoints.digest != before:
        return RestartReason(RestartCause.LOST, "the address of a pod changed")
    return None


def fatal_failure(observed: ObservedJob) -> JobFailure | None:
    """A failure that is not retried, whatever is left of backoffLimit."""
    fatal = [pod for pod in root_failures(observed) if action_for(observed.spec, pod) is FailureAction.FAIL_JOB]
    if not fatal or is_disruption(observed):
        return None
    pod = first_failure(fatal)
    if matching_action(observed.spec, pod) is FailureAction.FAIL_JOB:
        message = f"{describe_failure(pod)}; spec.podFailurePolicy fails the job"
        return JobFailure(Reason.POD_FAILURE_POLICY, message, pod)
    return JobFailure(Reason.POD_FAILED, describe_failure(pod), pod)


def backoff_limit_exceeded(observed: ObservedJob) -> JobFailure | None:
    """Kubelet restarted containers as often as backoffLimit allows."""
    if not exceeds_backoff_limit(observed, 0):
        return None
    message = f"kubelet restarted containers {kubelet_restarts(observed)} times; {_limit_text(observed)}"
    return JobFailure(Reason.BACKOFF_LIMIT_EXCEEDED, message)


def _limit_text(observed: ObservedJob) -> str:
    return f"spec.backoffLimit is {observed.spec.backoff_limit}"


def at_replacement_limit(observed: ObservedJob) -> bool:
    """Whether failed pods that can be replaced alone must wait for the replacements in progress."""
    return all_individually_replaceable(observed, root_failures(observed)) and not replacement_slots(observed)


def all_individually_replaceable(observed: ObservedJob, pods: list[PodView]) -> bool:
    return all(individually_replaceable(observed.spec, *observed.positions[pod.name]) for pod in pods)


def replacement_slots(observed: ObservedJob) -> int:
    in_progress = sum(pod.uid in observed.job.status.replacing for pod in observed.obsolete_pods)
    return max(0, MAX_CONCURRENT_REPLACEMENTS - in_progress)


def retry(observed: ObservedJob, now: datetime) -> JobPlan:
    """Replace all pods, or only the failed ones if each of them can be replaced alone; fail at the limit."""
    failed = root_failures(observed)
    cause = first_failure([pod for pod in failed if pod.disrupted] or failed)
    alone = all_individually_replaceable(observed, failed)
    failed = failed[: replacement_slots(observed)] if alone else failed
    counted = counted_failures(observed, failed)
    if not alone:
        counted = 0 if is_disruption(observed) else min(counted, 1)
    message = describe_failure(cause)
    if exceeds_backoff_limit(observed, counted):
        exceeded = f"{message}; {_limit_text(observed)}"
        return fail(observed, JobFailure(Reason.BACKOFF_LIMIT_EXCEEDED, exceeded, cause), now)
    reason = RestartReason(RestartCause.DISRUPTION if cause.disrupted else RestartCause.FAILURE, message, cause)
    if alone:
        return replace_pods(observed, failed, reason, counted, now)
    return restart(observed, reason, now, counted)


def replace_pods(
    observed: ObservedJob, pods: list[PodView], reason: RestartReason, counted: int, now: datetime
) -> JobPlan:
    """Write the UIDs of the failed pods and their count; the next reconcile deletes and recreates them."""
    status = counted_status(observed, now)
    restarts = status.restarts + counted + container_restarts(observed, pods)
    retry_at = next_attempt_time(counted, restarts, now) or backoff_until(status, now)  # a running back-off stays
    noun = "this pod" if len(pods) == 1 else f"{len(pods)} pods"
    message = f"{reason.message}; replacing {noun}{_at(retry_at)}"
    running = make_condition(observed.job, RUNNING, False, Reason.REPLACING, message, now)
    status = msgspec.structs.replace(
        status,
        restarts=restarts,
        next_attempt_time=retry_at,
        root_failure=root_failure(observed, reason.pod),
        replacing=(*status.replacing, *(pod.uid for pod in pods)),
        conditions=with_conditions(status.conditions, running),
    )
    return Plan(status, events=(EventIntent(Reason.REPLACING, message, warning=True),), restart_cause=reason.cause)


def _at(time: datetime | None) -> str:
    return f" at {time:%H:%M:%S} UTC" if time else ""


def restart(observed: ObservedJob, reason: RestartReason, now: datetime, counted: int = 0) -> JobPlan:
    """Write a new attempt; the next reconcile replaces all pods, so that all ranks agree on the addresses."""
    status = with_counts(
        observed, {role: RoleStatus() for role in observed.pods_by_role}, counted_status(observed, now)
    )
    restarts = restarts_used(observed) + counted
    retry_at = next_attempt_time(counted, restarts, now)
    message = f"{reason.message}; replacing all pods{_at(retry_at)}"
    running = make_condition(observed.job, RUNNING, False, Reason.RESTARTING, message, now)
    status = msgspec.structs.replace(
        status,
        phase=Phase.RESTARTING,
        attempt=status.attempt + 1,
        attempt_time=now.replace(microsecond=0),
        restarts=restarts,
        next_attempt_time=retry_at,
        root_failure=root_failure(observed, reason.pod),
        replacing=(),
        conditions=with_conditions(status.conditions, running),
    )
    return Plan(status, events=(EventIntent(Reason.RESTARTING, message, warning=True),), restart_cause=reason.cause)
