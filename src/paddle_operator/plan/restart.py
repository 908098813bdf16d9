"""Another try: of the whole job, or of a pod that can come back by itself.

Containers read their addresses once, at the start, and Paddle's ranks meet once: so mostly it is the whole job.
"""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import FailureAction, Phase, RoleStatus
from paddle_operator.api.reasons import Reason, RestartCause
from paddle_operator.kube.conditions import with_conditions
from paddle_operator.kube.writes import EventIntent, Plan
from paddle_operator.plan.children import JobPlan, PodView
from paddle_operator.plan.endpoints import Endpoints
from paddle_operator.plan.exit_codes import JobFailure, first_failure, told
from paddle_operator.plan.failure_policy import (
    action_for,
    backoff_until,
    counted_failures,
    exceeds_backoff_limit,
    is_disruption,
    kubelet_restarts,
    matching_action,
    next_attempt_time,
    restarts_of,
    restarts_used,
    root_failure,
    root_failures,
)
from paddle_operator.plan.finish import fail
from paddle_operator.plan.metadata import pod_name
from paddle_operator.plan.observed import ObservedJob, individually_replaceable
from paddle_operator.plan.pod_builder import replicas_text
from paddle_operator.plan.status import RUNNING, counted_status, make_condition, with_counts


@dataclass(frozen=True)
class RestartReason:
    """Why pods are replaced: the cause for metrics, the message for users, and the pod that failed first, if any."""

    cause: RestartCause
    message: str
    pod: PodView | None = None


MAX_CONCURRENT_REPLACEMENTS = 64  # a status stays small; the others are seen to when these are gone


def restart_reason(observed: ObservedJob, known: Endpoints | None) -> RestartReason | None:
    """Why the pods that run can no longer find each other; containers read their addresses once, at the start."""
    if observed.spec.is_elastic or not observed.released:
        return None
    written = observed.barrier.replicas if observed.barrier else ""
    if written and written != replicas_text(observed.spec):
        return RestartReason(
            RestartCause.REPLICAS, f"replicas changed from {written} to {replicas_text(observed.spec)}"
        )
    if not written and any(
        pod.name not in observed.positions for pod in observed.obsolete_pods
    ):  # the Go operator noted no number
        return RestartReason(RestartCause.REPLICAS, f"replicas changed to {replicas_text(observed.spec)}")
    if observed.lost_positions:
        role, index = observed.lost_positions[0]
        more = f" and {len(observed.lost_positions) - 1} more" if len(observed.lost_positions) > 1 else ""
        return RestartReason(RestartCause.LOST, f"{pod_name(observed.job.key, role, index)}{more} vanished")
    if observed.barrier and observed.barrier.contract and known and known.digest != observed.barrier.contract:
        return RestartReason(RestartCause.LOST, "a pod has another address than at the start")
    return None


def fatal_failure(observed: ObservedJob) -> JobFailure | None:
    """Why a failure is not worth another try, whatever is left of the limit."""
    ends = [pod for pod in root_failures(observed) if action_for(observed.spec, pod) is FailureAction.FAIL_JOB]
    if not ends or is_disruption(observed):
        return None
    cause = first_failure(ends)
    if matching_action(observed.spec, cause) is FailureAction.FAIL_JOB:
        return JobFailure(Reason.POD_FAILURE_POLICY, f"{told(cause)}; spec.podFailurePolicy ends the job", cause)
    return JobFailure(Reason.POD_FAILED, told(cause), cause)


def backoff_limit_exceeded(observed: ObservedJob) -> JobFailure | None:
    """Kubelet has tried as often as the job may."""
    if not exceeds_backoff_limit(observed, 0):
        return None
    times = kubelet_restarts(observed)
    return JobFailure(Reason.BACKOFF_LIMIT_EXCEEDED, f"containers were started again {times} times; {_limit(observed)}")


def _limit(observed: ObservedJob) -> str:
    return f"spec.backoffLimit is {observed.spec.backoff_limit}"


def at_replacement_limit(observed: ObservedJob) -> bool:
    """Whether those that failed alone come after those that are being replaced already: the status has no more room."""
    return all_individually_replaceable(observed, root_failures(observed)) and not replacement_slots(observed)


def all_individually_replaceable(observed: ObservedJob, pods: list[PodView]) -> bool:
    return all(individually_replaceable(observed.spec, *observed.positions[pod.name]) for pod in pods)


def replacement_slots(observed: ObservedJob) -> int:
    leaving = sum(pod.uid in observed.job.status.replacing for pod in observed.obsolete_pods)
    return max(0, MAX_CONCURRENT_REPLACEMENTS - leaving)


def retry(observed: ObservedJob, now: datetime) -> JobPlan:
    """Everybody, since Paddle's ranks meet once; only where a pod can come back by itself, that pod alone."""
    culprits = root_failures(observed)
    cause = first_failure([pod for pod in culprits if pod.disrupted] or culprits)
    alone = all_individually_replaceable(observed, culprits)
    culprits = culprits[: replacement_slots(observed)] if alone else culprits
    charge = counted_failures(observed, culprits)
    if not alone:
        charge = 0 if is_disruption(observed) else min(charge, 1)
    reason = RestartReason(RestartCause.DISRUPTION if cause.disrupted else RestartCause.FAILURE, told(cause), cause)
    if exceeds_backoff_limit(observed, charge):
        return fail(
            observed, JobFailure(Reason.BACKOFF_LIMIT_EXCEEDED, f"{told(cause)}; {_limit(observed)}", cause), now
        )
    if alone:
        return replace_pods(observed, culprits, reason, charge, now)
    return restart(observed, reason, now, charge)


def replace_pods(
    observed: ObservedJob, pods: list[PodView], reason: RestartReason, charge: int, now: datetime
) -> JobPlan:
    """Their UIDs are written down with what they cost: the next pass deletes them, and no crash counts them again."""
    status = counted_status(observed, now)
    restarts = status.restarts + charge + restarts_of(observed, pods)
    again_at = next_attempt_time(charge, restarts, now) or backoff_until(
        status, now
    )  # another one's pause is not cut short
    who = "it alone is" if len(pods) == 1 else f"{len(pods)} pods alone are"
    message = f"{reason.message}: {who} made again{when_told(again_at)}"
    held = make_condition(observed.job, RUNNING, False, Reason.REPLACING, message, now)
    status = msgspec.structs.replace(
        status,
        restarts=restarts,
        next_attempt_time=again_at,
        root_failure=root_failure(observed, reason.pod),
        replacing=(*status.replacing, *(pod.uid for pod in pods)),
        conditions=with_conditions(status.conditions, held),
    )
    return Plan(status, events=(EventIntent(Reason.REPLACING, message, warning=True),), restart_cause=reason.cause)


def when_told(again_at: datetime | None) -> str:
    return f" at {again_at:%H:%M:%S} UTC" if again_at else ""


def restart(observed: ObservedJob, reason: RestartReason, now: datetime, charge: int = 0) -> JobPlan:
    """A new attempt: all pods are replaced, so that all ranks agree. The next pass does it; this one writes it down."""
    nobody = with_counts(
        observed, {role: RoleStatus() for role in observed.pods_by_role}, counted_status(observed, now)
    )
    restarts = restarts_used(observed) + charge
    again_at = next_attempt_time(charge, restarts, now)
    message = f"{reason.message}: all pods are replaced{when_told(again_at)}, so that all ranks agree"
    held = make_condition(observed.job, RUNNING, False, Reason.RESTARTING, message, now)
    status = msgspec.structs.replace(
        nobody,
        phase=Phase.RESTARTING,
        attempt=nobody.attempt + 1,
        attempt_time=now.replace(microsecond=0),
        restarts=restarts,
        next_attempt_time=again_at,
        root_failure=root_failure(observed, reason.pod),
        replacing=(),
        conditions=with_conditions(nobody.conditions, held),
    )
    return Plan(status, events=(EventIntent(Reason.RESTARTING, message, warning=True),), restart_cause=reason.cause)
