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

MOST_REFERENCES = 16  # of a role: a status stays under 16 KB however many pods there are

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
HELD_BACK = WaitingReason.CREATE_CONTAINER_CONFIG_ERROR
STEPS = frozenset({Reason.WAITING_FOR_ADDRESSES, Reason.STARTING_CONTAINERS})
ON_ITS_WAY = frozenset(
    {Reason.PODS_TERMINATING, Reason.CREATING_POD_GROUP, Reason.CREATING_PODS, *STEPS, Reason.ALL_PODS_RUNNING}
)
"""Reasons that need nobody's help; every other one is a warning."""

NotRunningReason = tuple[str, str]
"""Why not all pods run, as a word and a sentence."""


def counted(world: ObservedJob, role: Role) -> RoleStatus:
    state_counts, pods_by_role = world.state_counts[role], world.pods_by_role[role]
    first = [pod for pod in pods_by_role[:MOST_REFERENCES] if pod]
    return RoleStatus(
        replicas=state_counts.total(),
        pending=state_counts["pending"],
        starting=state_counts["starting"],
        running=state_counts["running"],
        failed=state_counts["failed"],
        succeeded=state_counts["succeeded"] + world.succeeded_and_deleted[role],
        unknown=state_counts["unknown"],
        refs=tuple(Reference(pod.name, pod.namespace, pod.uid) for pod in first),
    )


def phase_of(world: ObservedJob) -> Phase:
    """Of a job that is neither finished nor deleted."""
    if world.job.status.attempt > 0 and not world.released and not world.spec.is_elastic and not _is_resumed(world.job):
        return Phase.RESTARTING
    state_counts = {sort for of_role in world.state_counts.values() for sort in of_role}
    if not world.missing and state_counts <= {"running", "succeeded"}:
        return Phase.RUNNING
    return Phase.STARTING if state_counts & {"running", "starting", "succeeded"} else Phase.PENDING


def _is_resumed(job: Job) -> bool:
    """And neither ran nor restarted since: it starts afresh, and not again."""
    afresh = job.status.start_time is None and job.status.phase != Phase.RESTARTING
    return find_condition(job.status.conditions, SUSPENDED) is not None and afresh


def not_running_reason(world: ObservedJob) -> NotRunningReason:
    """The first that holds is what a person can do something about."""
    for refusal in world.refusals:
        return refusal.reason, f"the API server refused {refusal.kind} {refusal.key.name}: {refusal.message}"
    pods = list(world.pods())
    found = next((each for pod in pods if (each := _container_trouble(world.job, pod))), None)
    found = found or next((each for pod in pods if (each := _place_trouble(world, pod))), None)
    return found or _progress(world, pods)


def _container_trouble(job: Job, pod: PodView) -> NotRunningReason | None:
    if not pod.waiting:
        return None
    if pod.waiting in IMAGE_PULL_FAILURES:
        return Reason.IMAGE_PULL_FAILED, f"{pod.name}: {pod.waiting_message or pod.waiting}"
    if pod.waiting in CREATE_CONTAINER_FAILURES:
        return Reason.CREATE_CONTAINER_FAILED, f"{pod.name}: {pod.waiting_message or pod.waiting}"
    if pod.waiting == WaitingReason.CRASH_LOOP_BACK_OFF:
        return Reason.CRASH_LOOP_BACK_OFF, f"{pod.name} has crashed {pod.restarts} times: {pod.waiting_message}"
    if pod.waiting == HELD_BACK and not _is_about_the_barrier(job, pod.waiting_message):
        return Reason.CONTAINER_CONFIG_ERROR, f"{pod.name}: {pod.waiting_message}"
    return None


def _is_about_the_barrier(job: Job, message: str) -> bool:
    """Kubelet's words while a ConfigMap is not there, and while it has not looked yet."""
    return f'configmap "{job.key.name}"' in message or "failed to sync configmap cache" in message


def _place_trouble(world: ObservedJob, pod: PodView) -> NotRunningReason | None:
    if pod.unschedulable:
        return Reason.UNSCHEDULABLE, f"{pod.name}: {pod.unschedulable}"
    if has_no_ipv4(world, pod):
        return Reason.IPV4_ADDRESS_REQUIRED, (
            f"{pod.name} has the IPv6 address {pod.address} first, which Paddle cannot read: "
            "set spec.intranet to Service"
        )
    return None


def _progress(world: ObservedJob, pods: list[PodView]) -> NotRunningReason:
    total = world.spec.total
    if world.leftovers:
        return (
            Reason.PODS_TERMINATING,
            f"{len(world.leftovers)} pods of before are on their way out",
        )  # their names are taken
    if world.missing:
        return Reason.CREATING_PODS, f"{len(world.missing)} of {total} pods are not made yet"
    if without := sum(not pod.address for pod in pods):
        return Reason.WAITING_FOR_ADDRESSES, f"{without} of {total} pods have no address yet"
    running = sum(state_counts["running"] for state_counts in world.state_counts.values())
    return Reason.STARTING_CONTAINERS, f"{len(pods) - running} of {total} pods are starting"


def observed(world: ObservedJob, creation_blocker: NotRunningReason | None, now: datetime) -> PaddleJobStatus:
    """The status of a job on its way, as the world is now; `lacking` is what keeps us from making pods."""
    phase = phase_of(world)
    is_running = Reason.ALL_PODS_RUNNING, "all pods run"
    reason, message = is_running if phase is Phase.RUNNING else creation_blocker or not_running_reason(world)
    status = base(world, now)
    started = status.start_time or (now if phase is Phase.RUNNING else None)
    running = make_condition(world.job, RUNNING, phase is Phase.RUNNING, reason, message, now)
    return msgspec.structs.replace(
        status, phase=phase, start_time=started, conditions=with_conditions(status.conditions, running)
    )


def base(world: ObservedJob, now: datetime) -> PaddleJobStatus:
    """The old status with everything that is counted counted anew."""
    status = with_counts(world, {role: counted(world, role) for role in world.pods_by_role}, world.job.status)
    accepted = make_condition(world.job, ACCEPTED, True, Reason.SPEC_VALID, "the spec keeps the rules", now)
    return msgspec.structs.replace(
        status,
        mode=world.spec.mode,
        observed_generation=world.job.metadata.generation,
        replacing=tuple(pod.uid for pod in world.children.pods if pod.uid in status.replacing),
        selector=f"{JOB_UID_LABEL}={world.job.uid},{ROLE_LABEL}={Role.WORKER}",
        conditions=with_conditions(status.conditions, accepted),
    )


def with_counts(world: ObservedJob, counts: dict[Role, RoleStatus], status: PaddleJobStatus) -> PaddleJobStatus:
    ready = sum(each.running + each.succeeded for each in counts.values())
    return msgspec.structs.replace(
        status,
        ready=f"{ready}/{world.spec.total}",
        **{str(role): counts.get(role) for role in Role},
    )


def make_condition(job: Job, type_: str, holds: bool, reason: str, message: str, now: datetime) -> Condition:
    """A condition as of now; `with_conditions` retains the transition time of an unchanged status."""
    return Condition(type_, condition_status(holds), reason, message, job.metadata.generation, now)
