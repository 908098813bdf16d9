"""What we tell people of a job: counts, phase, and why it does not run yet; all of it afresh from what is observed."""

from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import Condition, PaddleJobStatus, Phase, Reference, Role, RoleStatus
from paddle_operator.api.reasons import Reason, WaitingReason
from paddle_operator.kube.conditions import condition_status, find_condition, with_conditions
from paddle_operator.plan.children import Job, PodView
from paddle_operator.plan.endpoints import has_no_ipv4
from paddle_operator.plan.metadata import JOB_UID_LABEL, ROLE_LABEL
from paddle_operator.plan.observed import ObservedJob

MAX_REFERENCES = 16  # of a role: a status stays under 16 KB however many pods there are

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
"""Reasons that need nobody's help; every other one is a warning."""

NotRunningReason = tuple[str, str]
"""Why not all pods run, as a word and a sentence."""


def role_status(observed: ObservedJob, role: Role) -> RoleStatus:
    state_counts, pods_by_role = observed.state_counts[role], observed.pods_by_role[role]
    first = [pod for pod in pods_by_role[:MAX_REFERENCES] if pod]
    return RoleStatus(
        replicas=state_counts.total(),
        pending=state_counts["pending"],
        starting=state_counts["starting"],
        running=state_counts["running"],
        failed=state_counts["failed"],
        succeeded=state_counts["succeeded"] + observed.succeeded_and_deleted[role],
        unknown=state_counts["unknown"],
        refs=tuple(Reference(pod.name, pod.namespace, pod.uid) for pod in first),
    )


def derive_phase(observed: ObservedJob) -> Phase:
    """Of a job that is neither finished nor deleted."""
    if (
        observed.job.status.attempt > 0
        and not observed.released
        and not observed.spec.is_elastic
        and not _is_resumed(observed.job)
    ):
        return Phase.RESTARTING
    state_counts = {sort for of_role in observed.state_counts.values() for sort in of_role}
    if not observed.missing and state_counts <= {"running", "succeeded"}:
        return Phase.RUNNING
    return Phase.STARTING if state_counts & {"running", "starting", "succeeded"} else Phase.PENDING


def _is_resumed(job: Job) -> bool:
    """And neither ran nor restarted since: it starts afresh, and not again."""
    afresh = job.status.start_time is None and job.status.phase != Phase.RESTARTING
    return find_condition(job.status.conditions, SUSPENDED) is not None and afresh


def not_running_reason(observed: ObservedJob) -> NotRunningReason:
    """The first that holds is what a person can do something about."""
    for refusal in observed.refusals:
        return refusal.reason, f"the API server refused {refusal.kind} {refusal.key.name}: {refusal.message}"
    pods = list(observed.pods())
    found = next((each for pod in pods if (each := _container_reason(observed.job, pod))), None)
    found = found or next((each for pod in pods if (each := _scheduling_reason(observed, pod))), None)
    return found or _progress_reason(observed, pods)


def _container_reason(job: Job, pod: PodView) -> NotRunningReason | None:
    if not pod.waiting:
        return None
    if pod.waiting in IMAGE_PULL_FAILURES:
        return Reason.IMAGE_PULL_FAILED, f"{pod.name}: {pod.waiting_message or pod.waiting}"
    if pod.waiting in CREATE_CONTAINER_FAILURES:
        return Reason.CREATE_CONTAINER_FAILED, f"{pod.name}: {pod.waiting_message or pod.waiting}"
    if pod.waiting == WaitingReason.CRASH_LOOP_BACK_OFF:
        return Reason.CRASH_LOOP_BACK_OFF, f"{pod.name} has crashed {pod.restarts} times: {pod.waiting_message}"
    if pod.waiting == BARRIER_WAIT_REASON and not _is_about_the_barrier(job, pod.waiting_message):
        return Reason.CONTAINER_CONFIG_ERROR, f"{pod.name}: {pod.waiting_message}"
    return None


def _is_about_the_barrier(job: Job, message: str) -> bool:
    """Kubelet's words while a ConfigMap is not there, and while it has not looked yet."""
    return f'configmap "{job.key.name}"' in message or "failed to sync configmap cache" in message


def _scheduling_reason(observed: ObservedJob, pod: PodView) -> NotRunningReason | None:
    if pod.unschedulable:
        return Reason.UNSCHEDULABLE, f"{pod.name}: {pod.unschedulable}"
    if has_no_ipv4(observed, pod):
        return Reason.IPV4_ADDRESS_REQUIRED, (
            f"{pod.name} has the IPv6 address {pod.address} first, which Paddle cannot read: "
            "set spec.intranet to Service"
        )
    return None


def _progress_reason(observed: ObservedJob, pods: list[PodView]) -> NotRunningReason:
    total = observed.spec.total
    if observed.obsolete_pods:
        return (
            Reason.PODS_TERMINATING,
            f"{len(observed.obsolete_pods)} pods of before are on their way out",
        )  # their names are taken
    if observed.missing:
        return Reason.CREATING_PODS, f"{len(observed.missing)} of {total} pods are not made yet"
    if without := sum(not pod.address for pod in pods):
        return Reason.WAITING_FOR_ADDRESSES, f"{without} of {total} pods have no address yet"
    running = sum(state_counts["running"] for state_counts in observed.state_counts.values())
    return Reason.STARTING_CONTAINERS, f"{len(pods) - running} of {total} pods are starting"


def observed_status(observed: ObservedJob, creation_blocker: NotRunningReason | None, now: datetime) -> PaddleJobStatus:
    """The status of a job on its way, as the world is now; `lacking` is what keeps us from making pods."""
    phase = derive_phase(observed)
    is_running = Reason.ALL_PODS_RUNNING, "all pods run"
    reason, message = is_running if phase is Phase.RUNNING else creation_blocker or not_running_reason(observed)
    status = counted_status(observed, now)
    started = status.start_time or (now if phase is Phase.RUNNING else None)
    running = make_condition(observed.job, RUNNING, phase is Phase.RUNNING, reason, message, now)
    return msgspec.structs.replace(
        status, phase=phase, start_time=started, conditions=with_conditions(status.conditions, running)
    )


def counted_status(observed: ObservedJob, now: datetime) -> PaddleJobStatus:
    """The old status with everything that is counted counted anew."""
    status = with_counts(
        observed, {role: role_status(observed, role) for role in observed.pods_by_role}, observed.job.status
    )
    accepted = make_condition(observed.job, ACCEPTED, True, Reason.SPEC_VALID, "the spec keeps the rules", now)
    return msgspec.structs.replace(
        status,
        mode=observed.spec.mode,
        observed_generation=observed.job.metadata.generation,
        replacing=tuple(pod.uid for pod in observed.children.pods if pod.uid in status.replacing),
        selector=f"{JOB_UID_LABEL}={observed.job.uid},{ROLE_LABEL}={Role.WORKER}",
        conditions=with_conditions(status.conditions, accepted),
    )


def with_counts(observed: ObservedJob, counts: dict[Role, RoleStatus], status: PaddleJobStatus) -> PaddleJobStatus:
    ready = sum(each.running + each.succeeded for each in counts.values())
    return msgspec.structs.replace(
        status,
        ready=f"{ready}/{observed.spec.total}",
        **{str(role): counts.get(role) for role in Role},
    )


def make_condition(job: Job, type_: str, holds: bool, reason: str, message: str, now: datetime) -> Condition:
    """A condition as of now; `with_conditions` retains the transition time of an unchanged status."""
    return Condition(type_, condition_status(holds), reason, message, job.metadata.generation, now)
