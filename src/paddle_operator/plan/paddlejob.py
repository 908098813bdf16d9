"""Decide everything about one job at one instant. Read top to bottom, this is the specification."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from paddle_operator.api.paddlejob import Intranet, PaddleJobStatus, Phase
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import event_on_transition, find_condition, with_conditions
from paddle_operator.kube.writes import EventIntent, Plan, StatusOrder, StatusThrottle, earliest, with_requeue
from paddle_operator.plan.children import Children, Job, JobPlan
from paddle_operator.plan.deadlines import late_to_start, next_deadline, overdue
from paddle_operator.plan.diff import (
    FEW,
    barrier,
    barrier_is_refused,
    force_deletes,
    group_is_refused,
    kubelet_nudges,
    missing_pods,
    missing_services,
    next_given_up,
    required_names,
    stuck_terminating,
    superfluous,
    waves,
    without_finalizer,
)
from paddle_operator.plan.endpoints import Endpoints, endpoints_of
from paddle_operator.plan.exit_codes import is_victim, waits_for_cause
from paddle_operator.plan.failure_policy import paused_until
from paddle_operator.plan.finish import complete, fail, plan_finished
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_group import POD_GROUPS
from paddle_operator.plan.rendezvous_env import RendezvousEnv, contract
from paddle_operator.plan.restart import (
    at_replacement_limit,
    backoff_limit_exceeded,
    fatal,
    restart,
    restart_reason,
    try_again,
)
from paddle_operator.plan.scheduling_policy import group_writes, is_gang, may_run, next_look, wait_of
from paddle_operator.plan.status import (
    ACCEPTED,
    ON_ITS_WAY,
    RUNNING,
    STEPS,
    NotRunningReason,
    make_condition,
    not_running_reason,
    observed,
)
from paddle_operator.plan.suspend import is_suspended, resume, suspend
from paddle_operator.plan.warnings import risks


@dataclass(frozen=True)
class PlanContext:
    """What a plan needs to know beyond its own job."""

    etcd: str = ""
    scheduling: str = ""  # the gang scheduler, if there is to be one
    groups_absent: bool = False  # the cluster does not know its PodGroups
    free_port: int | None = None  # the first port of a block that no other live job has
    status_written_at: datetime | None = None
    counters_every: timedelta = timedelta(seconds=1)  # longer where many jobs change at once


def plan(job: Job, children: Children, now: datetime, around: PlanContext | None = None) -> JobPlan:
    """The first sentence that holds decides."""
    around = around or PlanContext()
    if not job.is_ours:
        return Plan(job.status)
    if job.metadata.deletion_timestamp:
        return plan_deleted(job)
    if job.spec is None:
        return plan_invalid(job, now)
    spec, children = job.spec, children.within(job.key.namespace)
    if job.finished:
        return plan_finished(job, spec, children, now)
    world = ObservedJob(job, spec, children)
    if spec.suspend and world.succeeded and not is_suspended(job):
        return complete(world, now)  # nobody has written that down yet, but what is done need not be done again
    if spec.suspend:
        return suspend(world, now)
    if is_suspended(job):
        return resume(job, now)
    if job.status.host_port is None and around.free_port is not None:
        return take_ports(job, around.free_port)
    desired = advance(world, around, now)
    if desired.status.phase in (Phase.COMPLETED, Phase.FAILED):
        return desired  # a job that this plan finishes has no deadlines left
    return with_requeue(desired, next_deadline(world, now))


def advance(world: ObservedJob, around: PlanContext, now: datetime) -> JobPlan:
    """Of a job that is to run. The first sentence that holds decides."""
    job = world.job
    if world.succeeded:  # whatever has become of the servers meanwhile
        return complete(world, now)
    culprits_known = any(not is_victim(pod) for pod in world.failed)
    if verdict := (culprits_known and fatal(world)) or backoff_limit_exceeded(world) or overdue(world, now):
        return fail(world, verdict, now)
    known = endpoints_of(world)
    if reason := restart_reason(world, known):  # the pod that vanished is what the others died of
        return restart(world, reason, now)
    if verdict := late_to_start(world, now):
        return fail(world, verdict, now)
    if not world.failed or at_replacement_limit(world):
        desired = run(world, known, around, now)
        return STATUS_THROTTLE.apply(
            desired, job.status, now, written_at=around.status_written_at, interval=around.counters_every
        )
    if not culprits_known:
        if until := waits_for_cause(world.failed, now):
            return Plan(job.status, requeue_at=until)
        if verdict := fatal(world):
            return fail(world, verdict, now)
    return try_again(world, now)


def plan_deleted(job: Job) -> JobPlan:
    """Owner references take the children along; only the Go operator's finalizer must go, or the job stays for ever."""
    status = msgspec.structs.replace(job.status, phase=Phase.TERMINATING)
    return Plan(status if job.metadata.finalizers else job.status, waves(without_finalizer(job)))


def plan_invalid(job: Job, now: datetime) -> JobPlan:
    """Stored before there were rules: say what is wrong, touch no child; without the finalizer it can be deleted."""
    accepted = make_condition(job, ACCEPTED, False, Reason.SPEC_INVALID, "; ".join(job.problems), now)
    status = msgspec.structs.replace(
        job.status,
        phase=job.status.phase or Phase.PENDING,
        observed_generation=job.metadata.generation,
        conditions=with_conditions(job.status.conditions, accepted),
    )
    return Plan(
        status, waves(without_finalizer(job)), event_on_transition(job.status.conditions, accepted, warning=True)
    )


def take_ports(job: Job, first: int) -> JobPlan:
    """A block of ports of its own, remembered on the job before the first pod names one."""
    return Plan(msgspec.structs.replace(job.status, host_port=first))


def run(world: ObservedJob, known: Endpoints | None, around: PlanContext, now: datetime) -> JobPlan:
    """Nearer to what is wanted: away with what is in the way, make what is missing, open the barrier."""
    job, pause, gang = world.job, paused_until(world.job.status, now), is_gang(world.spec, around.scheduling)
    lack = creation_blocker(world, around, now)
    found = list(risks(world, around.scheduling, now))
    status = observed(world, lack, now)
    status = msgspec.structs.replace(status, conditions=with_conditions(status.conditions, *found))
    running = next(each for each in status.conditions if each.type == RUNNING)
    events = [*event_on_transition(job.status.conditions, running, warning=running.reason not in ON_ITS_WAY)]
    events += [
        each
        for risk in found
        if risk.status == "True"
        for each in event_on_transition(job.status.conditions, risk, warning=True)
    ]
    dead = stuck_terminating(world, now)
    events += [
        EventIntent(Reason.NODE_LOST, f"{each.name} does not leave {each.node}: it is given up", warning=True)
        for each in dead
    ]
    first = [*without_finalizer(job), *superfluous(world), *force_deletes(dead)]
    if gang and not around.groups_absent and not group_is_refused(world, now):
        first += group_writes(job, world.spec, world.children.group, world.pods(), now)
    retry_at = min((each.retry_at for each in world.refusals if each.retry_at > now), default=None)
    look_at = next_look(job, world.spec, world.children.group, now) if gang else None
    requeue_at = earliest(retry_at, pause, next_given_up(world, now), look_at if look_at and look_at > now else None)
    if world.barrier and not world.released:  # containers must not start with the addresses of before
        return Plan(status, waves(first), tuple(events), requeue_at)
    held = lack or barrier_is_refused(world, now)
    pods = [] if held else list(missing_pods(world, around.etcd, now, gang=gang))
    steps = [first, [] if lack else missing_services(world, now), *pods]
    if known and world.barrier is None:
        shared = contract(world, known)
        opened = barrier(world, shared, now)
        steps += [opened, kubelet_nudges(world, known.digest) if opened else []]
        events += left_out(shared) if opened else []
    elif known and world.barrier and world.barrier.contract:  # pods of the Go operator know what theirs says
        steps.append(kubelet_nudges(world, known.digest))
    few_pods = any(pods) and sum(map(len, steps)) <= FEW
    return Plan(
        status,
        waves(*steps),
        tuple(events),
        requeue_at,
        required_names(world, pods),
        StatusOrder.DEFERRED if few_pods and not job.status.phase else StatusOrder.FIRST,
    )


def creation_blocker(world: ObservedJob, around: PlanContext, now: datetime) -> NotRunningReason | None:
    """What keeps us from making the pods that are missing; those that run, run on."""
    if not world.missing:
        return None
    if paused_until(world.job.status, now) and (before := find_condition(world.job.status.conditions, RUNNING)):
        return before.reason, before.message  # which tells of the failure, and when the pause is over
    if is_gang(world.spec, around.scheduling) and not any(world.pods()):
        if around.groups_absent:
            fix = "install Volcano, or start the operator without --scheduling"
            return (
                Reason.POD_GROUP_CRD_NOT_FOUND,
                f"the operator runs with --scheduling=volcano, but there are no PodGroups: {fix}",
            )
        if not may_run(world.children.group):
            refused = any(each.kind == POD_GROUPS.plural for each in world.refusals)
            return not_running_reason(world) if refused else wait_of(world.job, world.children.group, now)
    if world.spec.is_elastic and not around.etcd:
        fix = "start the operator with --etcd-server=host:port, or remove spec.elastic"
        return Reason.ETCD_NOT_CONFIGURED, f"spec.elastic needs an etcd: {fix}"
    if world.spec.intranet is Intranet.HOST and world.job.status.host_port is None:
        return Reason.HOST_PORTS_EXHAUSTED, "every block of --port-range is taken by a live job: widen the range"
    return None


def left_out(shared: RendezvousEnv) -> list[EventIntent]:
    if not shared.left_out:
        return []
    names = " and ".join(shared.left_out)
    note = f"left out {names}, longer than Linux allows: python -m paddle.distributed.launch needs only its master"
    return [EventIntent(Reason.ENDPOINTS_LEFT_OUT, note, warning=True)]


def significant_fields(status: PaddleJobStatus) -> tuple[object, ...]:
    """What people wait for, without counts, messages and what needs nobody's help."""
    reasons = ((each.type, each.status, "" if each.reason in ON_ITS_WAY else each.reason) for each in status.conditions)
    return status.phase, status.attempt, tuple(reasons)


STATUS_THROTTLE: StatusThrottle[PaddleJobStatus] = StatusThrottle(
    phase=lambda status: status.phase,
    significant_fields=significant_fields,
    progress_reasons=ON_ITS_WAY,
    step_reasons=STEPS,
)
