"""What we tell people of a job: counts, phase, and why it does not run yet; all of it afresh from what is observed."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import Condition, Intranet, PaddleJobStatus, Phase, Reference, Role, RoleStatus
from paddle_operator.plan.names import JOB_UID_LABEL, ROLE_LABEL
from paddle_operator.plan.network import ipv4_of
from paddle_operator.plan.world import Job, PodView, World

MOST_REFERENCES = 16  # of a role: a status stays under 16 KB however many pods there are

ACCEPTED, RUNNING, COMPLETED, FAILED, RENDEZVOUS = "Accepted", "Running", "Completed", "Failed", "RendezvousAtRisk"

_NEVER_PULLS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
HELD_BACK = "CreateContainerConfigError"
ON_ITS_WAY = frozenset({"PodsLeaving", "CreatingPods", "WaitingForAddresses", "StartingContainers", "AllPodsRun"})
"""Reasons that need nobody's help; every other one is a warning."""


def counted(world: World, role: Role) -> RoleStatus:
    pods = list(world.pods(role))
    sorts = [sort_of(pod) for pod in pods]
    return RoleStatus(
        replicas=len(pods),
        pending=sorts.count("pending"),
        starting=sorts.count("starting"),
        running=sorts.count("running"),
        failed=sorts.count("failed"),
        succeeded=sorts.count("succeeded"),
        unknown=sorts.count("unknown"),
        refs=tuple(Reference(pod.name, pod.namespace, pod.uid) for pod in pods[:MOST_REFERENCES]),
    )


def sort_of(pod: PodView) -> str:
    match pod.phase:
        case "Succeeded" | "Failed":
            return pod.phase.lower()
        case "Running":
            return "running" if pod.ready else "starting"
        case "Pending":
            return "starting" if pod.addresses else "pending"
    return "unknown"


def phase_of(world: World) -> Phase:
    """Of a job that is neither finished nor deleted."""
    if world.job.status.attempt > 0 and not world.released:
        return Phase.RESTARTING
    sorts = [sort_of(pod) for pod in world.pods()]
    if world.complete and all(each in ("running", "succeeded") for each in sorts):
        return Phase.RUNNING
    if any(each in ("running", "starting", "succeeded") for each in sorts):
        return Phase.STARTING
    return Phase.PENDING


def obstacle(world: World) -> tuple[str, str]:
    """Why not all pods run, as a word and a sentence; the first that holds is what a person can do something about."""
    for refusal in world.children.refusals:
        return refusal.reason, f"the API server refused {refusal.kind} {refusal.key.name}: {refusal.message}"
    pods = list(world.pods())
    found = next((each for pod in pods if (each := _container_trouble(world, pod))), None)
    found = found or next((each for pod in pods if (each := _place_trouble(world, pod))), None)
    return found or _progress(world, pods)


def _container_trouble(world: World, pod: PodView) -> tuple[str, str] | None:
    if pod.waiting in _NEVER_PULLS:
        return "ImageCannotBePulled", f"{pod.name}: {pod.waiting_message or pod.waiting}"
    if pod.waiting == "CrashLoopBackOff":
        return "ContainerCrashes", f"{pod.name} has crashed {pod.restarts} times: {pod.waiting_message}"
    if pod.waiting == HELD_BACK and world.released and pod.woken_for:
        return "ContainerConfigError", f"{pod.name}: {pod.waiting_message}"
    return None


def _place_trouble(world: World, pod: PodView) -> tuple[str, str] | None:
    if pod.unschedulable:
        return "Unschedulable", f"{pod.name}: {pod.unschedulable}"
    if pod.addresses and ipv4_of(pod) is None and world.spec.intranet is not Intranet.SERVICE:
        return "OnlyIPv6", (
            f"{pod.name} has only the IPv6 address {pod.addresses[0]}, which Paddle cannot read: "
            "set spec.intranet to Service"
        )
    return None


def _progress(world: World, pods: list[PodView]) -> tuple[str, str]:
    total = world.spec.total
    if world.leftovers:
        return "PodsLeaving", f"{len(world.leftovers)} pods of before are on their way out"  # their names are taken
    if world.missing:
        return "CreatingPods", f"{len(world.missing)} of {total} pods are not made yet"
    if without := sum(not pod.addresses for pod in pods):
        return "WaitingForAddresses", f"{without} of {total} pods have no address yet"
    return "StartingContainers", f"{sum(sort_of(pod) != 'running' for pod in pods)} of {total} pods are starting"


def observed(world: World, now: datetime) -> PaddleJobStatus:
    """The status of a job on its way, as the world is now."""
    job = world.job
    phase = phase_of(world)
    reason, message = ("AllPodsRun", "all pods run") if phase is Phase.RUNNING else obstacle(world)
    status = base(world)
    started = status.start_time or (now if phase is Phase.RUNNING else None)
    accepted = condition(job, ACCEPTED, True, "SpecValid", "the spec keeps the rules", now)
    running = condition(job, RUNNING, phase is Phase.RUNNING, reason, message, now)
    return msgspec.structs.replace(
        status, phase=phase, start_time=started, conditions=with_conditions(status.conditions, accepted, running)
    )


def base(world: World) -> PaddleJobStatus:
    """The old status with everything that is counted counted anew."""
    roles = {str(role): counted(world, role) if role in world.spec.roles else None for role in Role}
    ready = sum(each.running + each.succeeded for each in roles.values() if each)
    return msgspec.structs.replace(
        world.job.status,
        mode=world.spec.mode,
        ready=f"{ready}/{world.spec.total}",
        observed_generation=world.job.metadata.generation,
        selector=f"{JOB_UID_LABEL}={world.job.uid},{ROLE_LABEL}={Role.WORKER}",
        **roles,
    )


def condition(job: Job, type_: str, holds: bool, reason: str, message: str, now: datetime) -> Condition:
    """A condition whose transition time is kept where it was true, or untrue, before."""
    status = "True" if holds else "False"
    before = next((each for each in job.status.conditions if each.type == type_), None)
    since = before.last_transition_time if before and before.status == status else now.replace(microsecond=0)
    return Condition(type_, status, reason, message[:1024], job.metadata.generation, since)


def with_conditions(before: Iterable[Condition], *new: Condition) -> tuple[Condition, ...]:
    """By type, in a fixed order."""
    found = {each.type: each for each in before} | {each.type: each for each in new}
    return tuple(found[type_] for type_ in sorted(found))
