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
from paddle_operator.plan.exit_codes import Verdict, cause_of, told
from paddle_operator.plan.failure_policy import (
    action_for,
    by_kubelet,
    counted_failures,
    exhausted,
    is_disruption,
    next_attempt,
    paused_until,
    restarted_by_kubelet,
    root_failure,
    root_failures,
    rule_for,
    used,
)
from paddle_operator.plan.finish import fail
from paddle_operator.plan.metadata import pod_name
from paddle_operator.plan.observed import ObservedJob, individually_replaceable
from paddle_operator.plan.pod_builder import replicas_text
from paddle_operator.plan.status import RUNNING, base, make_condition, with_counts


@dataclass(frozen=True)
class RestartReason:
    """Why pods are replaced: the cause for metrics, the message for users, and the pod that failed first, if any."""

    cause: RestartCause
    message: str
    pod: PodView | None = None


REPLACED_AT_ONCE = 64  # a status stays small; the others are seen to when these are gone


def restart_reason(world: ObservedJob, known: Endpoints | None) -> RestartReason | None:
    """Why the pods that run can no longer find each other; containers read their addresses once, at the start."""
    if world.spec.is_elastic or not world.released:
        return None
    written = world.barrier.replicas if world.barrier else ""
    if written and written != replicas_text(world.spec):
        return RestartReason(RestartCause.REPLICAS, f"replicas changed from {written} to {replicas_text(world.spec)}")
    if not written and any(pod.name not in world.places for pod in world.leftovers):  # the Go operator noted no number
        return RestartReason(RestartCause.REPLICAS, f"replicas changed to {replicas_text(world.spec)}")
    if world.lost:
        role, index = world.lost[0]
        more = f" and {len(world.lost) - 1} more" if len(world.lost) > 1 else ""
        return RestartReason(RestartCause.LOST, f"{pod_name(world.job.key, role, index)}{more} vanished")
    if world.barrier and world.barrier.contract and known and known.digest != world.barrier.contract:
        return RestartReason(RestartCause.LOST, "a pod has another address than at the start")
    return None


def fatal(world: ObservedJob) -> Verdict | None:
    """Why a failure is not worth another try, whatever is left of the limit."""
    ends = [pod for pod in root_failures(world) if action_for(world.spec, pod) is FailureAction.FAIL_JOB]
    if not ends or is_disruption(world):
        return None
    cause = cause_of(ends)
    if rule_for(world.spec, cause) is FailureAction.FAIL_JOB:
        return Verdict(Reason.POD_FAILURE_POLICY, f"{told(cause)}; spec.podFailurePolicy ends the job", cause)
    return Verdict(Reason.POD_FAILED, told(cause), cause)


def backoff_limit_exceeded(world: ObservedJob) -> Verdict | None:
    """Kubelet has tried as often as the job may."""
    if not exhausted(world, 0):
        return None
    times = restarted_by_kubelet(world)
    return Verdict(Reason.BACKOFF_LIMIT_EXCEEDED, f"containers were started again {times} times; {_limit(world)}")


def _limit(world: ObservedJob) -> str:
    return f"spec.backoffLimit is {world.spec.backoff_limit}"


def at_replacement_limit(world: ObservedJob) -> bool:
    """Whether those that failed alone come after those that are being replaced already: the status has no more room."""
    return apart(world, root_failures(world)) and not replacement_slots(world)


def apart(world: ObservedJob, pods: list[PodView]) -> bool:
    return all(individually_replaceable(world.spec, *world.places[pod.name]) for pod in pods)


def replacement_slots(world: ObservedJob) -> int:
    leaving = sum(pod.uid in world.job.status.replacing for pod in world.leftovers)
    return max(0, REPLACED_AT_ONCE - leaving)


def try_again(world: ObservedJob, now: datetime) -> JobPlan:
    """Everybody, since Paddle's ranks meet once; only where a pod can come back by itself, that pod alone."""
    culprits = root_failures(world)
    cause = cause_of([pod for pod in culprits if pod.disrupted] or culprits)
    alone = apart(world, culprits)
    culprits = culprits[: replacement_slots(world)] if alone else culprits
    charge = counted_failures(world, culprits)
    if not alone:
        charge = 0 if is_disruption(world) else min(charge, 1)
    reason = RestartReason(RestartCause.DISRUPTION if cause.disrupted else RestartCause.FAILURE, told(cause), cause)
    if exhausted(world, charge):
        return fail(world, Verdict(Reason.BACKOFF_LIMIT_EXCEEDED, f"{told(cause)}; {_limit(world)}", cause), now)
    if alone:
        return replace_alone(world, culprits, reason, charge, now)
    return restart(world, reason, now, charge)


def replace_alone(
    world: ObservedJob, pods: list[PodView], reason: RestartReason, charge: int, now: datetime
) -> JobPlan:
    """Their UIDs are written down with what they cost: the next pass deletes them, and no crash counts them again."""
    status = base(world, now)
    restarts = status.restarts + charge + by_kubelet(world, pods)
    again_at = next_attempt(charge, restarts, now) or paused_until(status, now)  # another one's pause is not cut short
    who = "it alone is" if len(pods) == 1 else f"{len(pods)} pods alone are"
    message = f"{reason.message}: {who} made again{when_told(again_at)}"
    held = make_condition(world.job, RUNNING, False, Reason.REPLACING, message, now)
    status = msgspec.structs.replace(
        status,
        restarts=restarts,
        next_attempt_time=again_at,
        root_failure=root_failure(world, reason.pod),
        replacing=(*status.replacing, *(pod.uid for pod in pods)),
        conditions=with_conditions(status.conditions, held),
    )
    return Plan(status, events=(EventIntent(Reason.REPLACING, message, warning=True),), restart_cause=reason.cause)


def when_told(again_at: datetime | None) -> str:
    return f" at {again_at:%H:%M:%S} UTC" if again_at else ""


def restart(world: ObservedJob, reason: RestartReason, now: datetime, charge: int = 0) -> JobPlan:
    """A new attempt: all pods are replaced, so that all ranks agree. The next pass does it; this one writes it down."""
    nobody = with_counts(world, {role: RoleStatus() for role in world.pods_by_role}, base(world, now))
    restarts = used(world) + charge
    again_at = next_attempt(charge, restarts, now)
    message = f"{reason.message}: all pods are replaced{when_told(again_at)}, so that all ranks agree"
    held = make_condition(world.job, RUNNING, False, Reason.RESTARTING, message, now)
    status = msgspec.structs.replace(
        nobody,
        phase=Phase.RESTARTING,
        attempt=nobody.attempt + 1,
        attempt_time=now.replace(microsecond=0),
        restarts=restarts,
        next_attempt_time=again_at,
        root_failure=root_failure(world, reason.pod),
        replacing=(),
        conditions=with_conditions(nobody.conditions, held),
    )
    return Plan(status, events=(EventIntent(Reason.RESTARTING, message, warning=True),), restart_cause=reason.cause)
