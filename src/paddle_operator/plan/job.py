"""Decide everything about one job at one instant. Read top to bottom, this is the specification."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from paddle_operator.api.paddlejob import CleanPodPolicy, Condition, Intranet, PaddleJobSpec, PaddleJobStatus, Phase
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES
from paddle_operator.plan.clean_up import clean_up
from paddle_operator.plan.contract import Contract, contract
from paddle_operator.plan.failure import cause_may_still_come, cause_of, failed_pods, told
from paddle_operator.plan.kinds import PADDLE_JOBS
from paddle_operator.plan.names import CONTRACT, GO_FINALIZER, pod_key
from paddle_operator.plan.network import service
from paddle_operator.plan.pods import PodMaker, config_map, overridden, replicas_text
from paddle_operator.plan.status import (
    ACCEPTED,
    COMPLETED,
    FAILED,
    HELD_BACK,
    ON_ITS_WAY,
    RENDEZVOUS,
    RUNNING,
    base,
    condition,
    observed,
    with_conditions,
)
from paddle_operator.plan.world import Children, Job, PodView, World
from paddle_operator.plan.writes import Create, Delete, News, Patch, Plan, Write

MOST_AT_ONCE = 500  # pods that one pass makes: a job of 5,000 takes ten, and its manifests never fill the memory
COUNTERS_EVERY = timedelta(seconds=1)


@dataclass(frozen=True)
class Surroundings:
    """What a plan needs to know beyond its own job."""

    etcd: str = ""
    free_port: int | None = None  # the first port of a block that no other live job has
    status_written_at: datetime | None = None


def plan(job: Job, children: Children, now: datetime, around: Surroundings | None = None) -> Plan:
    """The first sentence that holds decides."""
    around = around or Surroundings()
    if job.metadata.deletion_timestamp:
        return leave(job)
    if job.spec is None:
        return refuse(job, now)
    spec = job.spec
    if job.finished:
        return Plan(job.status, waves(clean_up(job, spec, children, job.status.phase)))
    if spec.intranet is Intranet.HOST and job.status.host_port is None:
        return take_ports(job, spec, around, now)
    if spec.is_elastic and not around.etcd:
        return wait_for_etcd(job, now)
    world = World(job, spec, children)
    if failed := failed_pods(world.pods()):
        until = cause_may_still_come(failed, now)
        return fail(world, cause_of(failed), now) if until is None else Plan(world.job.status, wake_at=until)
    deciders = world.deciders
    if world.complete and all(pod.phase == "Succeeded" for pod in deciders):
        return complete(world, now)
    if reason := stale(world):
        return restart(world, reason, now)
    return coalesced(run(world, around, now), job, now, around)


def leave(job: Job) -> Plan:
    """Owner references take the children along; only the Go operator's finalizer must go, or the job stays for ever."""
    status = msgspec.structs.replace(job.status, phase=Phase.TERMINATING)
    return Plan(status if job.metadata.finalizers else job.status, waves(without_finalizer(job)))


def refuse(job: Job, now: datetime) -> Plan:
    """Stored before there were rules: say what is wrong, touch nothing."""
    message = "; ".join(job.problems)
    accepted = condition(job, ACCEPTED, False, "SpecInvalid", message, now)
    status = msgspec.structs.replace(
        job.status,
        phase=job.status.phase or Phase.PENDING,
        observed_generation=job.metadata.generation,
        conditions=with_conditions(job.status.conditions, accepted),
    )
    return Plan(status, news=told_if_new(job, accepted, warning=True))


def take_ports(job: Job, spec: PaddleJobSpec, around: Surroundings, now: datetime) -> Plan:
    """A block of ports of its own, remembered on the job before the first pod names one."""
    if around.free_port is None:
        return waiting(job, "NoFreePorts", "every block of --port-range is taken by a live job: widen the range", now)
    return Plan(msgspec.structs.replace(job.status, host_port=around.free_port, mode=spec.mode))


def wait_for_etcd(job: Job, now: datetime) -> Plan:
    message = "spec.elastic needs an etcd: start the operator with --etcd-server=host:port, or remove spec.elastic"
    return waiting(job, "NoEtcd", message, now)


def waiting(job: Job, reason: str, message: str, now: datetime) -> Plan:
    held = condition(job, RUNNING, False, reason, message, now)
    status = msgspec.structs.replace(
        job.status,
        phase=Phase.PENDING,
        observed_generation=job.metadata.generation,
        conditions=with_conditions(job.status.conditions, held),
    )
    return Plan(status, news=told_if_new(job, held, warning=True))


def fail(world: World, cause: PodView, now: datetime) -> Plan:
    message = told(cause)
    return finish(world, Phase.FAILED, condition(world.job, FAILED, True, "PodFailed", message, now), base(world), now)


def complete(world: World, now: datetime) -> Plan:
    """Parameter servers never exit by themselves: when the workers are done, so are they, and that is success."""
    status = base(world)
    if servers := status.ps:
        done = msgspec.structs.replace(servers, succeeded=servers.replicas, running=0, starting=0, pending=0, unknown=0)
        status = msgspec.structs.replace(status, ps=done, ready=f"{world.spec.total}/{world.spec.total}")
    status = msgspec.structs.replace(status, start_time=status.start_time or now)  # so short that we never saw it run
    succeeded = f"all {len(world.deciders)} {'workers' if world.spec.worker else 'pods'} have succeeded"
    ended = condition(world.job, COMPLETED, True, "WorkersSucceeded", succeeded, now)
    return finish(world, Phase.COMPLETED, ended, status, now)


def finish(world: World, phase: Phase, ended: Condition, status: PaddleJobStatus, now: datetime) -> Plan:
    job = world.job
    stopped = condition(job, RUNNING, False, str(phase), ended.message, now)
    status = msgspec.structs.replace(
        status,
        phase=phase,
        completion_time=now,
        conditions=with_conditions(status.conditions, ended, stopped),
    )
    writes = tuple(clean_up(job, world.spec, world.children, phase))
    news = [News(str(phase), ended.message, warning=phase is Phase.FAILED)]
    if writes:
        cleans, policy = world.spec.cleans(phase), world.spec.clean_pod_policy or CleanPodPolicy.ON_COMPLETION
        deed = "the pods are deleted" if cleans else "the pods that still run are stopped and kept"
        news.append(News("CleanedUp", f"{deed}: cleanPodPolicy is {policy}"))
    return Plan(status, waves(writes), tuple(news))


def stale(world: World) -> str | None:
    """Why the pods that run can no longer find each other; containers read their addresses once, at the start."""
    barrier, job = world.barrier, world.job
    if world.spec.is_elastic or barrier is None or not world.released:
        return None
    if barrier.replicas and barrier.replicas != replicas_text(job):
        return f"replicas changed from {barrier.replicas} to {replicas_text(job)}"
    if world.missing:
        role, index = world.missing[0]
        more = f" and {len(world.missing) - 1} more" if len(world.missing) > 1 else ""
        return f"{pod_key(job.key, role, index).name}{more} vanished"
    if barrier.contract:
        now_known = shared_by(world)
        if now_known and now_known.digest != barrier.contract:
            return "a pod has another address than at the start"
    return None


def shared_by(world: World) -> Contract | None:
    """What the barrier is to hold; None while an address is missing, and always for elastic jobs, which have none."""
    return None if world.spec.is_elastic or world.missing else contract(world)


def restart(world: World, reason: str, now: datetime) -> Plan:
    """A new attempt: all pods are replaced, so that all ranks agree. The next pass does it; this one writes it down."""
    status = base(world)
    message = f"{reason}: all pods are replaced, so that all ranks agree"
    held = condition(world.job, RUNNING, False, "Restarting", message, now)
    status = msgspec.structs.replace(
        status,
        phase=Phase.RESTARTING,
        attempt=status.attempt + 1,
        conditions=with_conditions(status.conditions, held),
    )
    return Plan(status, news=(News("Restarting", message, warning=True),))


def run(world: World, around: Surroundings, now: datetime) -> Plan:
    """Nearer to what is wanted: away with what is in the way, make what is missing, open the barrier."""
    status = observed(world, now)
    running = next(each for each in status.conditions if each.type == RUNNING)
    news = [*told_if_new(world.job, running, warning=running.reason not in ON_ITS_WAY)]
    if risk := at_risk(world, now):
        status = msgspec.structs.replace(status, conditions=with_conditions(status.conditions, risk))
        news += told_if_new(world.job, risk, warning=True)
    first = [*without_finalizer(world.job), *superfluous(world)]
    refused = [each.retry_at for each in world.children.refusals if each.retry_at > now]
    if world.barrier and not world.released:
        return Plan(status, waves(first), tuple(news))  # containers must not start with the addresses of before
    steps = [first, *missing(world, around, now)]
    shared = shared_by(world)
    if shared is not None:
        steps += opening(world, shared)
        news += left_out(world, shared)
    return Plan(status, waves(*steps), tuple(news), min(refused, default=None))


def superfluous(world: World) -> Iterable[Write]:
    """Pods of an earlier attempt or beyond the wanted number, the highest first; the barrier that belongs to them."""
    if world.barrier and not world.released and not world.barrier.terminating:
        yield Delete(CONFIG_MAPS, world.barrier.key, world.barrier.uid)
    for pod in sorted(world.leftovers, key=lambda pod: (len(pod.name), pod.name), reverse=True):
        if not pod.terminating:
            yield Delete(PODS, pod.key, pod.uid)
    wanted = {pod_key(world.job.key, role, i) for role, each in world.spec.roles.items() for i in range(each.replicas)}
    for each in world.children.services:
        if (
            each.ours
            and not each.terminating
            and (each.key not in wanted or world.spec.intranet is not Intranet.SERVICE)
        ):
            yield Delete(SERVICES, each.key, each.uid)


def missing(world: World, around: Surroundings, now: datetime) -> Iterable[list[Write]]:
    """Services first, then servers, workers and others, a role at a time; a refused one not before its time."""
    held = {each.key for each in world.children.refusals if each.retry_at > now}
    taken = held | {pod.key for pod in world.leftovers}
    job = world.job
    if world.spec.intranet is Intranet.SERVICE:
        there = held | {each.key for each in world.children.services}
        yield [
            Create(SERVICES, service(job, role, index))
            for role, wanted in world.spec.roles.items()
            for index in range(wanted.replicas)
            if pod_key(job.key, role, index) not in there
        ]
    for role, wanted in world.spec.roles.items():
        maker = PodMaker(job, role, wanted, etcd=around.etcd)
        places = [index for missing_role, index in world.missing if missing_role is role]
        free = [index for index in places if pod_key(job.key, role, index) not in taken]
        yield [Create(PODS, maker.pod(index)) for index in free[:MOST_AT_ONCE]]
        if len(free) > MOST_AT_ONCE:
            return  # the echo of these brings the next pass, and the next roles come after this one


def opening(world: World, shared: Contract) -> Iterable[list[Write]]:
    """The barrier as soon as every address is known; then whoever waits for it is woken, since kubelet looks only now
    and then: 0.1 s instead of up to 13.
    """
    if world.barrier is None:
        yield [Create(CONFIG_MAPS, config_map(world.job, shared))]
    elif not world.barrier.contract:
        return  # the Go operator's, and its pods know what it says
    change = {"metadata": {"annotations": {CONTRACT: shared.digest}}}
    yield [
        Patch(PODS, pod.key, pod.uid, change)
        for pod in world.pods()
        if pod.waiting == HELD_BACK and pod.woken_for != shared.digest
    ]


def left_out(world: World, shared: Contract) -> list[News]:
    if not shared.left_out or world.barrier:
        return []
    names = " and ".join(shared.left_out)
    note = f"left out {names}, longer than Linux allows: python -m paddle.distributed.launch needs only its master"
    return [News("EndpointsLeftOut", note, warning=True)]


def at_risk(world: World, now: datetime) -> Condition | None:
    """Variables that the user has set stay as set; where they break the rendezvous, this says so."""
    found = {role: names for role, wanted in world.spec.roles.items() if (names := overridden(wanted))}
    before = any(each.type == RENDEZVOUS for each in world.job.status.conditions)
    if not found and not before:
        return None
    texts = [f"spec.{role}.template sets {', '.join(names)}" for role, names in found.items()]
    message = "; ".join(texts) + ": ranks may not find each other; remove them, the operator sets them" if texts else ""
    return condition(world.job, RENDEZVOUS, bool(found), "UserVariables" if found else "None", message, now)


def without_finalizer(job: Job) -> list[Write]:
    if GO_FINALIZER not in job.metadata.finalizers:
        return []
    kept = [each for each in job.metadata.finalizers if each != GO_FINALIZER]
    metadata = {"finalizers": kept, "resourceVersion": job.metadata.resource_version}
    return [Patch(PADDLE_JOBS, job.key, job.uid, {"metadata": metadata})]


def told_if_new(job: Job, said: Condition, *, warning: bool) -> tuple[News, ...]:
    """News only where the status or the reason of a condition is another than before."""
    before = next((each for each in job.status.conditions if each.type == said.type), None)
    if before and (before.status, before.reason) == (said.status, said.reason):
        return ()
    return (News(said.reason, said.message, warning=warning),)


def coalesced(desired: Plan, job: Job, now: datetime, around: Surroundings) -> Plan:
    """A change of phase goes out at once; counters alone at most once a second."""
    old, new = job.status, desired.status
    same = (old.phase, old.attempt, old.host_port) == (new.phase, new.attempt, new.host_port) and [
        (each.type, each.status, each.reason) for each in old.conditions
    ] == [(each.type, each.status, each.reason) for each in new.conditions]
    written_at = around.status_written_at
    if not same or old == new or written_at is None or now - written_at >= COUNTERS_EVERY:
        return desired
    wake_at = min(filter(None, (desired.wake_at, written_at + COUNTERS_EVERY)))
    return Plan(old, desired.waves, desired.news, wake_at)


def waves(*steps: Iterable[Write]) -> tuple[tuple[Write, ...], ...]:
    return tuple(wave for step in steps if (wave := tuple(step)))
