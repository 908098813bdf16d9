"""Decide everything about one job at one instant. Read top to bottom, this is the specification."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from paddle_operator.api.paddlejob import (
    CleanPodPolicy,
    Condition,
    Intranet,
    PaddleJobStatus,
    Phase,
    RoleStatus,
)
from paddle_operator.plan.clean_up import clean_up
from paddle_operator.plan.contract import Contract, contract
from paddle_operator.plan.difference import (
    FEW,
    awakened,
    barrier,
    barrier_is_refused,
    claims,
    missing_pods,
    missing_services,
    superfluous,
    waves,
    without_finalizer,
)
from paddle_operator.plan.failure import cause_of, is_victim, told, waits_for_cause
from paddle_operator.plan.names import pod_name
from paddle_operator.plan.network import Endpoints, endpoints_of
from paddle_operator.plan.pods import replicas_text
from paddle_operator.plan.risks import risks
from paddle_operator.plan.status import (
    ACCEPTED,
    COMPLETED,
    FAILED,
    ON_ITS_WAY,
    RUNNING,
    STEPS,
    Obstacle,
    base,
    condition,
    observed,
    with_conditions,
    with_counts,
)
from paddle_operator.plan.views import Children, Job, PodView
from paddle_operator.plan.world import World
from paddle_operator.plan.writes import News, Plan


@dataclass(frozen=True)
class Surroundings:
    """What a plan needs to know beyond its own job."""

    etcd: str = ""
    free_port: int | None = None  # the first port of a block that no other live job has
    status_written_at: datetime | None = None
    counters_every: timedelta = timedelta(seconds=1)  # longer where many jobs change at once


def plan(job: Job, children: Children, now: datetime, around: Surroundings | None = None) -> Plan:
    """The first sentence that holds decides."""
    around = around or Surroundings()
    if job.metadata.deletion_timestamp:
        return leave(job)
    if job.spec is None:
        return refuse(job, now)
    spec, children = job.spec, children.within(job.key.namespace)
    if job.finished:
        return Plan(job.status, waves(without_finalizer(job), clean_up(job, spec, children, job.status.phase)))
    if job.status.host_port is None and around.free_port is not None:
        return take_ports(job, around.free_port)
    world = World(job, spec, children)
    if world.succeeded:  # whatever has become of the servers meanwhile
        return complete(world, now)
    if any(not is_victim(pod) for pod in world.failed):
        return fail(world, now)
    known = endpoints_of(world)
    if reason := stale(world, known):  # also of victims: the pod that vanished is what they died of
        return restart(world, reason, now)
    if world.failed:
        until = waits_for_cause(world.failed, now)
        return Plan(job.status, wake_at=until) if until else fail(world, now)
    return coalesced(run(world, known, around, now), job, now, around)


def leave(job: Job) -> Plan:
    """Owner references take the children along; only the Go operator's finalizer must go, or the job stays for ever."""
    status = msgspec.structs.replace(job.status, phase=Phase.TERMINATING)
    return Plan(status if job.metadata.finalizers else job.status, waves(without_finalizer(job)))


def refuse(job: Job, now: datetime) -> Plan:
    """Stored before there were rules: say what is wrong, touch no child; without the finalizer it can be deleted."""
    accepted = condition(job, ACCEPTED, False, "SpecInvalid", "; ".join(job.problems), now)
    status = msgspec.structs.replace(
        job.status,
        phase=job.status.phase or Phase.PENDING,
        observed_generation=job.metadata.generation,
        conditions=with_conditions(job.status.conditions, accepted),
    )
    return Plan(status, waves(without_finalizer(job)), told_if_new(job, accepted, warning=True))


def take_ports(job: Job, first: int) -> Plan:
    """A block of ports of its own, remembered on the job before the first pod names one."""
    return Plan(msgspec.structs.replace(job.status, host_port=first))


def complete(world: World, now: datetime) -> Plan:
    """Parameter servers never exit by themselves: when the workers are done, so is everybody, and that is success."""
    status = base(world, now)
    done = {
        role: RoleStatus(replicas=len(seats), succeeded=len(seats), refs=status.roles[role].refs)
        for role, seats in world.seats.items()
    }
    ended_at = end_of([pod for role in world.deciders for pod in world.pods(role)], status, now)
    status = msgspec.structs.replace(
        with_counts(world, done, status),
        start_time=status.start_time or ended_at,  # so short that we never saw it run
        completion_time=ended_at,
    )
    many, who = sum(len(world.seats[role]) for role in world.deciders), "worker" if world.spec.worker else "pod"
    succeeded = f"all {many} {who}s have succeeded" if many > 1 else f"the {who} has succeeded"
    ended = condition(world.job, COMPLETED, True, "WorkersSucceeded", succeeded, now)
    return finish(world, Phase.COMPLETED, ended, status, now)


def fail(world: World, now: datetime) -> Plan:
    cause = cause_of(world.failed)
    status = base(world, now)
    status = msgspec.structs.replace(status, completion_time=end_of([cause], status, now))
    return finish(world, Phase.FAILED, condition(world.job, FAILED, True, "PodFailed", told(cause), now), status, now)


def end_of(pods: Iterable[PodView], status: PaddleJobStatus, now: datetime) -> datetime:
    """When the last of these pods ended, by the clocks of their nodes; not after now, and not before the start."""
    last = min(max((pod.finished_at for pod in pods if pod.finished_at), default=now), now)
    return max(last, status.start_time or last)


def finish(world: World, phase: Phase, ended: Condition, status: PaddleJobStatus, now: datetime) -> Plan:
    job = world.job
    stopped = condition(job, RUNNING, False, str(phase), ended.message, now)
    status = msgspec.structs.replace(status, phase=phase, conditions=with_conditions(status.conditions, ended, stopped))
    writes = tuple(clean_up(job, world.spec, world.children, phase))
    note = ended.message
    if writes:
        cleans, policy = world.spec.cleans(phase), world.spec.clean_pod_policy or CleanPodPolicy.ON_COMPLETION
        deed = "the pods are deleted" if cleans else "the pods that still run are stopped and kept"
        note = f"{note}; {deed}: cleanPodPolicy is {policy}"
    return Plan(status, waves(writes), (News(str(phase), note, warning=phase is Phase.FAILED),))


def stale(world: World, known: Endpoints | None) -> str | None:
    """Why the pods that run can no longer find each other; containers read their addresses once, at the start."""
    if world.spec.is_elastic or not world.released:
        return None
    written = world.barrier.replicas if world.barrier else ""
    if written and written != replicas_text(world.spec):
        return f"replicas changed from {written} to {replicas_text(world.spec)}"
    if not written and any(pod.name not in world.places for pod in world.leftovers):  # the Go operator noted no number
        return f"replicas changed to {replicas_text(world.spec)}"
    if world.missing:
        role, index = world.missing[0]
        more = f" and {len(world.missing) - 1} more" if len(world.missing) > 1 else ""
        return f"{pod_name(world.job.key, role, index)}{more} vanished"
    if world.barrier and world.barrier.contract and known and known.digest != world.barrier.contract:
        return "a pod has another address than at the start"
    return None


def restart(world: World, reason: str, now: datetime) -> Plan:
    """A new attempt: all pods are replaced, so that all ranks agree. The next pass does it; this one writes it down."""
    nobody = with_counts(world, {role: RoleStatus() for role in world.seats}, base(world, now))
    message = f"{reason}: all pods are replaced, so that all ranks agree"
    held = condition(world.job, RUNNING, False, "Restarting", message, now)
    status = msgspec.structs.replace(
        nobody,
        phase=Phase.RESTARTING,
        attempt=nobody.attempt + 1,
        conditions=with_conditions(nobody.conditions, held),
    )
    return Plan(status, news=(News("Restarting", message, warning=True),))


def run(world: World, known: Endpoints | None, around: Surroundings, now: datetime) -> Plan:
    """Nearer to what is wanted: away with what is in the way, make what is missing, open the barrier."""
    job, lack = world.job, lacking(world, around)
    found = list(risks(world, now))
    status = observed(world, lack, now)
    status = msgspec.structs.replace(status, conditions=with_conditions(status.conditions, *found))
    running = next(each for each in status.conditions if each.type == RUNNING)
    news = [*told_if_new(job, running, warning=running.reason not in ON_ITS_WAY)]
    news += [each for risk in found if risk.status == "True" for each in told_if_new(job, risk, warning=True)]
    first = [*without_finalizer(job), *superfluous(world)]
    if world.barrier and not world.released:
        return Plan(status, waves(first), tuple(news))  # containers must not start with the addresses of before
    pods = [] if lack or barrier_is_refused(world, now) else list(missing_pods(world, around.etcd, now))
    steps = [first, missing_services(world, now), *pods]
    if known and world.barrier is None:
        shared = contract(world, known)
        opened = barrier(world, shared, now)
        steps += [opened, awakened(world, known.digest) if opened else []]
        news += left_out(shared) if opened else []
    elif known and world.barrier and world.barrier.contract:  # pods of the Go operator know what theirs says
        steps.append(awakened(world, known.digest))
    wake_at = min((each.retry_at for each in world.refusals if each.retry_at > now), default=None)
    few_pods = any(pods) and sum(map(len, steps)) <= FEW
    return Plan(
        status,
        waves(*steps),
        tuple(news),
        wake_at,
        children_first=few_pods and not job.status.phase,
        claims=claims(world, pods),
    )


def lacking(world: World, around: Surroundings) -> Obstacle | None:
    """What keeps us from making the pods that are missing; those that run, run on."""
    if not world.missing:
        return None
    if world.spec.is_elastic and not around.etcd:
        fix = "start the operator with --etcd-server=host:port, or remove spec.elastic"
        return "NoEtcd", f"spec.elastic needs an etcd: {fix}"
    if world.spec.intranet is Intranet.HOST and world.job.status.host_port is None:
        return "NoFreePorts", "every block of --port-range is taken by a live job: widen the range"
    return None


def left_out(shared: Contract) -> list[News]:
    if not shared.left_out:
        return []
    names = " and ".join(shared.left_out)
    note = f"left out {names}, longer than Linux allows: python -m paddle.distributed.launch needs only its master"
    return [News("EndpointsLeftOut", note, warning=True)]


def told_if_new(job: Job, said: Condition, *, warning: bool) -> tuple[News, ...]:
    """News only where the status or the reason of a condition is another than before."""
    before = next((each for each in job.status.conditions if each.type == said.type), None)
    if before and (before.status, before.reason) == (said.status, said.reason):
        return ()
    return (News(said.reason, said.message, warning=warning),)


def coalesced(desired: Plan, job: Job, now: datetime, around: Surroundings) -> Plan:
    """A change of phase goes out at once, and so does an obstacle; counters and steps on the way now and then.

    A step that takes less than that time is no news.
    """
    old, new = job.status, desired.status
    written_at = around.status_written_at
    if old == new or written_at is None or now - written_at >= around.counters_every:
        return desired
    if gist(old) != gist(new):
        return replace(desired, news=tuple(each for each in desired.news if each.reason not in STEPS))
    wake_at = min(filter(None, (desired.wake_at, written_at + around.counters_every)))
    news = tuple(each for each in desired.news if each.reason not in ON_ITS_WAY)  # told with the status, if still so
    return replace(desired, status=old, wake_at=wake_at, news=news, counters_wait=True)


def gist(status: PaddleJobStatus) -> tuple[object, ...]:
    """What people wait for, without counts, messages and what needs nobody's help."""
    reasons = ((each.type, each.status, "" if each.reason in ON_ITS_WAY else each.reason) for each in status.conditions)
    return status.phase, status.attempt, tuple(reasons)
