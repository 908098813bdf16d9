"""The status of a job that is neither finished nor suspended: counters, phase, and why it does not run yet."""

from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import Condition, PaddleJobStatus, Phase, Reference, Role, RoleStatus
from paddle_operator.api.reasons import Reason, WaitingReason
from paddle_operator.kube.conditions import condition_status, find_condition, with_conditions
from paddle_operator.kube.writes import StatusThrottle
from paddle_operator.plan.children import PodView
from paddle_operator.plan.endpoints import has_no_ipv4
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.metadata import JOB_UID_LABEL, ROLE_LABEL
from paddle_operator.plan.observed import ObservedJob

MAX_REFERENCES = 16  # per role: a status stays under 16 KB, however many pods there are

ACCEPTED, RUNNING, COMPLETED, FAILED, SUSPENDED = "Accepted", "Running", "Completed", "Failed", "Suspended"

IMAGE_PULL_FAILURES = frozenset(
    {
        WaitingReason.ERR_IMAGE_PULL,
        WaitingReason.IMAGE_PULL_BACK_OFF,
        WaitingReason.INVALID_IMAGE_NAME,
        WaitingReason.ERR_IMAGE_NEVER_PULL,
    }
)
CREATE_CONTAINER_FAILURES = frozenset({WaitingReason.CREATE_CONTAINER_ERROR, WaitingReason.RUN_CONTAINER_ERROR})
BARRIER_WAIT_REASON = WaitingReason.CREATE_CONTAINER_CONFIG_ERROR
STEP_REASONS = frozenset({Reason.WAITING_FOR_ADDRESSES, Reason.STARTING_CONTAINERS})
PROGRESS_REASONS = frozenset(
    {Reason.PODS_TERMINATING, Reason.CREATING_POD_GROUP, Reason.CREATING_PODS, *STEP_REASONS, Reason.ALL_PODS_RUNNING}
)
"""Reasons that need no user action; an event with any other reason is a warning."""

NotRunningReason = tuple[str, str]
"""Reason and message of the Running condition."""


def significant_fields(status: PaddleJobStatus) -> tuple[object, ...]:
    """The fields whose change is written at once: no counters, no messages, no progress reasons."""
    reasons = (
        (each.type, each.status, "" if each.reason in PROGRESS_REASONS else each.reason) for each in status.conditions
    )
    return status.phase, status.attempt, tuple(reasons)


STATUS_THROTTLE: StatusThrottle[PaddleJobStatus] = StatusThrottle(
    phase=lambda status: status.phase,
    significant_fields=significant_fields,
    progress_reasons=PROGRESS_REASONS,
    step_reasons=STEP_REASONS,
)


def observed_status(observed: ObservedJob, blocker: NotRunningReason | None, now: datetime) -> PaddleJobStatus:
    """The status as observed; `blocker` is why missing pods cannot be created."""
    phase = derive_phase(observed)
    all_running = Reason.ALL_PODS_RUNNING, "all pods run"
    reason, message = all_running if phase is Phase.RUNNING else blocker or not_running_reason(observed)
    status = counted_status(observed, now)
    running = make_condition(observed.job, RUNNING, phase is Phase.RUNNING, reason, message, now)
    return msgspec.structs.replace(
        status,
        phase=phase,
        start_time=status.start_time or (now if phase is Phase.RUNNING else None),
        conditions=with_conditions(status.conditions, running),
    )


def counted_status(observed: ObservedJob, now: datetime) -> PaddleJobStatus:
    """The previous status with new counters and the fields that derive from the spec."""
    counts = {role: role_status(observed, role) for role in observed.pods_by_role}
    status = with_counts(observed, counts, observed.job.status)
    accepted = make_condition(observed.job, ACCEPTED, True, Reason.SPEC_VALID, "the spec is valid", now)
    return msgspec.structs.replace(
        status,
        mode=observed.spec.mode,
        observed_generation=observed.job.metadata.generation,
        replacing=tuple(pod.uid for pod in observed.children.pods if pod.uid in status.replacing),
        selector=f"{JOB_UID_LABEL}={observed.job.uid},{ROLE_LABEL}={Role.WORKER}",
        conditions=with_conditions(status.conditions, accepted),
    )


def role_status(observed: ObservedJob, role: Role) -> RoleStatus:
    counts = observed.state_counts[role]
    first = [pod for pod in observed.pods_by_role[role][:MAX_REFERENCES] if pod]
    return RoleStatus(
        replicas=counts.total(),
        pending=counts["pending"],
        starting=counts["starting"],
        running=counts["running"],
        failed=counts["failed"],
        succeeded=counts["succeeded"] + observed.succeeded_and_deleted[role],
        unknown=counts["unknown"],
        refs=tuple(Reference(pod.name, pod.namespace, pod.uid) for pod in first),
    )


def with_counts(observed: ObservedJob, counts: dict[Role, RoleStatus], status: PaddleJobStatus) -> PaddleJobStatus:
    ready = sum(each.running + each.succeeded for each in counts.values())
    return msgspec.structs.replace(
        status,
        ready=f"{ready}/{observed.spec.total}",
        **{str(role): counts.get(role) for role in Role},
    )


def derive_phase(observed: ObservedJob) -> Phase:
    """The phase of a job that is neither finished nor deleted."""
    job = observed.job
    if job.status.attempt > 0 and not observed.released and not observed.spec.is_elastic and not _is_resumed(job):
        return Phase.RESTARTING
    states = {state for counts in observed.state_counts.values() for state in counts}
    if not observed.missing and states <= {"running", "succeeded"}:
        return Phase.RUNNING
    return Phase.STARTING if states & {"running", "starting", "succeeded"} else Phase.PENDING


def _is_resumed(job: Job) -> bool:
    """Resumed, and neither running nor restarted since: its attempt is a first start."""
    is_first_start = job.status.start_time is None and job.status.phase != Phase.RESTARTING
    return find_condition(job.status.conditions, SUSPENDED) is not None and is_first_start


def not_running_reason(observed: ObservedJob) -> NotRunningReason:
    """Ordered by what a user can act on: refusals, containers, scheduling, then progress."""
    for refusal in observed.refusals:
        return refusal.reason, f"the API server refused {refusal.kind} {refusal.key.name}: {refusal.message}"
    pods = list(observed.pods())
    for pod in pods:
        if reason := _container_reason(observed.job, pod):
            return reason
    for pod in pods:
        if reason := _scheduling_reason(observed, pod):
            return reason
    return _progress_reason(observed, pods)


def _container_reason(job: Job, pod: PodView) -> NotRunningReason | None:
    if not pod.waiting:
        return None
    if pod.waiting in IMAGE_PULL_FAILURES:
        return Reason.IMAGE_PULL_FAILED, f"{pod.name}: {pod.waiting_message or pod.waiting}"
    if pod.waiting in CREATE_CONTAINER_FAILURES:
        return Reason.CREATE_CONTAINER_FAILED, f"{pod.name}: {pod.waiting_message or pod.waiting}"
    if pod.waiting == WaitingReason.CRASH_LOOP_BACK_OFF:
        return Reason.CRASH_LOOP_BACK_OFF, f"{pod.name} has crashed {pod.restarts} times: {pod.waiting_message}"
    if pod.waiting == BARRIER_WAIT_REASON and not _waits_for_barrier(job, pod.waiting_message):
        return Reason.CONTAINER_CONFIG_ERROR, f"{pod.name}: {pod.waiting_message}"
    return None


def _waits_for_barrier(job: Job, message: str) -> bool:
    """Kubelet's messages while the barrier does not exist, and before kubelet has synced it."""
    return f'configmap "{job.key.name}"' in message or "failed to sync configmap cache" in message


def _scheduling_reason(observed: ObservedJob, pod: PodView) -> NotRunningReason | None:
    if pod.unschedulable:
        return Reason.UNSCHEDULABLE, f"{pod.name}: {pod.unschedulable}"
    if has_no_ipv4(observed, pod):
        message = f"{pod.name} has the IPv6 address {pod.address} first, which Paddle cannot read"
        return Reason.IPV4_ADDRESS_REQUIRED, f"{message}: set spec.intranet to Service"
    return None


def _progress_reason(observed: ObservedJob, pods: list[PodView]) -> NotRunningReason:
    total, obsolete = observed.spec.total, len(observed.obsolete_pods)
    if obsolete:  # their names are in use
        noun = "pod" if obsolete == 1 else "pods"
        return Reason.PODS_TERMINATING, f"waiting for {obsolete} {noun} of the previous attempt to terminate"
    if observed.missing:
        return Reason.CREATING_PODS, f"{len(observed.missing)} of {total} pods are not created yet"
    if without_address := sum(not pod.address for pod in pods):
        return Reason.WAITING_FOR_ADDRESSES, f"{without_address} of {total} pods have no address yet"
    running = sum(counts["running"] for counts in observed.state_counts.values())
    return Reason.STARTING_CONTAINERS, f"{len(pods) - running} of {total} pods are starting"


def make_condition(job: Job, type_: str, holds: bool, reason: str, message: str, now: datetime) -> Condition:
    """A condition as of now; `with_conditions` retains the transition time of an unchanged status."""
    return Condition(type_, condition_status(holds), reason, message, job.metadata.generation, now)
