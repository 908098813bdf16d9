"""Decide everything about one job at one instant. Read top to bottom, this is the specification."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from paddle_operator.api.paddlejob import Intranet, PaddleJobStatus, Phase
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import event_on_transition, find_condition, with_conditions
from paddle_operator.kube.writes import EventIntent, Plan, StatusOrder, StatusThrottle, earliest, with_requeue
from paddle_operator.plan.children import Children, Job, JobPlan
from paddle_operator.plan.deadlines import active_deadline_exceeded, next_deadline, start_deadline_exceeded
from paddle_operator.plan.diff import (
    MAX_QUICK_WRITES,
    barrier_creates,
    barrier_is_refused,
    force_deletes,
    go_finalizer_patches,
    group_is_refused,
    kubelet_nudges,
    next_force_delete,
    obsolete_deletes,
    pod_creates,
    required_names,
    service_creates,
    stuck_terminating,
    waves,
)
from paddle_operator.plan.endpoints import Endpoints, endpoints_of
from paddle_operator.plan.exit_codes import is_victim, root_failure_wait
from paddle_operator.plan.failure_policy import backoff_until
from paddle_operator.plan.finish import complete, fail, plan_finished
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_group import POD_GROUPS
from paddle_operator.plan.rendezvous_env import RendezvousEnv, contract
from paddle_operator.plan.restart import (
    at_replacement_limit,
    backoff_limit_exceeded,
    fatal_failure,
    restart,
    restart_reason,
    retry,
)
from paddle_operator.plan.scheduling_policy import (
    group_writes,
    is_admitted,
    is_gang,
    next_group_check,
    pod_group_reason,
)
from paddle_operator.plan.status import (
    ACCEPTED,
    PROGRESS_REASONS,
    RUNNING,
    STEP_REASONS,
    NotRunningReason,
    make_condition,
    not_running_reason,
    observed_status,
)
from paddle_operator.plan.suspend import is_suspended, resume, suspend
from paddle_operator.plan.warnings import spec_warnings


@dataclass(frozen=True)
class PlanContext:
    """What a plan needs to know beyond its own job."""

    etcd: str = ""
    scheduling: str = ""  # the gang scheduler, if there is to be one
    groups_absent: bool = False  # the cluster does not know its PodGroups
    free_port: int | None = None  # the first port of a block that no other live job has
    status_written_at: datetime | None = None
    counters_every: timedelta = timedelta(seconds=1)  # longer where many jobs change at once


def plan(job: Job, children: Children, now: datetime, context: PlanContext | None = None) -> JobPlan:
    """The first sentence that holds decides."""
    context = context or PlanContext()
    if not job.is_ours:
        return Plan(job.status)
    if job.metadata.deletion_timestamp:
        return plan_deleted(job)
    if job.spec is None:
        return plan_invalid(job, now)
    spec, children = job.spec, children.within(job.key.namespace)
    if job.finished:
        return plan_finished(job, spec, children, now)
    observed = ObservedJob(job, spec, children)
    if spec.suspend and observed.succeeded and not is_suspended(job):
        return complete(observed, now)  # nobody has written that down yet, but what is done need not be done again
    if spec.suspend:
        return suspend(observed, now)
    if is_suspended(job):
        return resume(job, now)
    if job.status.host_port is None and context.free_port is not None:
        return take_ports(job, context.free_port)
    desired = advance(observed, context, now)
    if desired.status.phase in (Phase.COMPLETED, Phase.FAILED):
        return desired  # a job that this plan finishes has no deadlines left
    return with_requeue(desired, next_deadline(observed, now))


def advance(observed: ObservedJob, context: PlanContext, now: datetime) -> JobPlan:
    """Of a job that is to run. The first sentence that holds decides."""
    job = observed.job
    if observed.succeeded:  # whatever has become of the servers meanwhile
        return complete(observed, now)
    culprits_known = any(not is_victim(pod) for pod in observed.failed)
    if (
        verdict := (culprits_known and fatal_failure(observed))
        or backoff_limit_exceeded(observed)
        or active_deadline_exceeded(observed, now)
    ):
        return fail(observed, verdict, now)
    known = endpoints_of(observed)
    if reason := restart_reason(observed, known):  # the pod that vanished is what the others died of
        return restart(observed, reason, now)
    if verdict := start_deadline_exceeded(observed, now):
        return fail(observed, verdict, now)
    if not observed.failed or at_replacement_limit(observed):
        desired = run(observed, known, context, now)
        return STATUS_THROTTLE.apply(
            desired, job.status, now, written_at=context.status_written_at, interval=context.counters_every
        )
    if not culprits_known:
        if until := root_failure_wait(observed.failed, now):
            return Plan(job.status, requeue_at=until)
        if verdict := fatal_failure(observed):
            return fail(observed, verdict, now)
    return retry(observed, now)


def plan_deleted(job: Job) -> JobPlan:
    """Owner references take the children along; only the Go operator's finalizer must go, or the job stays for ever."""
    status = msgspec.structs.replace(job.status, phase=Phase.TERMINATING)
    return Plan(status if job.metadata.finalizers else job.status, waves(go_finalizer_patches(job)))


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
        status, waves(go_finalizer_patches(job)), event_on_transition(job.status.conditions, accepted, warning=True)
    )


def take_ports(job: Job, first: int) -> JobPlan:
    """A block of ports of its own, remembered on the job before the first pod names one."""
    return Plan(msgspec.structs.replace(job.status, host_port=first))


def run(observed: ObservedJob, known: Endpoints | None, context: PlanContext, now: datetime) -> JobPlan:
    """Nearer to what is wanted: away with what is in the way, make what is missing, open the barrier."""
    job, pause, gang = observed.job, backoff_until(observed.job.status, now), is_gang(observed.spec, context.scheduling)
    blocker = creation_blocker(observed, context, now)
    found = list(spec_warnings(observed, context.scheduling, now))
    status = observed_status(observed, blocker, now)
    status = msgspec.structs.replace(status, conditions=with_conditions(status.conditions, *found))
    running = next(each for each in status.conditions if each.type == RUNNING)
    events = [*event_on_transition(job.status.conditions, running, warning=running.reason not in PROGRESS_REASONS)]
    events += [
        each
        for risk in found
        if risk.status == "True"
        for each in event_on_transition(job.status.conditions, risk, warning=True)
    ]
    dead = stuck_terminating(observed, now)
    events += [
        EventIntent(Reason.NODE_LOST, f"{each.name} does not leave {each.node}: it is given up", warning=True)
        for each in dead
    ]
    first = [*go_finalizer_patches(job), *obsolete_deletes(observed), *force_deletes(dead)]
    if gang and not context.groups_absent and not group_is_refused(observed, now):
        first += group_writes(job, observed.spec, observed.children.group, observed.pods(), now)
    retry_at = min((each.retry_at for each in observed.refusals if each.retry_at > now), default=None)
    look_at = next_group_check(job, observed.spec, observed.children.group, now) if gang else None
    requeue_at = earliest(
        retry_at, pause, next_force_delete(observed, now), look_at if look_at and look_at > now else None
    )
    if observed.barrier and not observed.released:  # containers must not start with the addresses of before
        return Plan(status, waves(first), tuple(events), requeue_at)
    held = blocker or barrier_is_refused(observed, now)
    pods = [] if held else list(pod_creates(observed, context.etcd, now, gang=gang))
    steps = [first, [] if blocker else service_creates(observed, now), *pods]
    if known and observed.barrier is None:
        shared = contract(observed, known)
        opened = barrier_creates(observed, shared, now)
        steps += [opened, kubelet_nudges(observed, known.digest) if opened else []]
        events += oversized_variables(shared) if opened else []
    elif known and observed.barrier and observed.barrier.contract:  # pods of the Go operator know what theirs says
        steps.append(kubelet_nudges(observed, known.digest))
    few_pods = any(pods) and sum(map(len, steps)) <= MAX_QUICK_WRITES
    return Plan(
        status,
        waves(*steps),
        tuple(events),
        requeue_at,
        required_names(observed, pods),
        StatusOrder.DEFERRED if few_pods and not job.status.phase else StatusOrder.FIRST,
    )


def creation_blocker(observed: ObservedJob, context: PlanContext, now: datetime) -> NotRunningReason | None:
    """What keeps us from making the pods that are missing; those that run, run on."""
    if not observed.missing:
        return None
    if backoff_until(observed.job.status, now) and (before := find_condition(observed.job.status.conditions, RUNNING)):
        return before.reason, before.message  # which tells of the failure, and when the pause is over
    if is_gang(observed.spec, context.scheduling) and not any(observed.pods()):
        if context.groups_absent:
            fix = "install Volcano, or start the operator without --scheduling"
            return (
                Reason.POD_GROUP_CRD_NOT_FOUND,
                f"the operator runs with --scheduling=volcano, but there are no PodGroups: {fix}",
            )
        if not is_admitted(observed.children.group):
            refused = any(each.kind == POD_GROUPS.plural for each in observed.refusals)
            return (
                not_running_reason(observed)
                if refused
                else pod_group_reason(observed.job, observed.children.group, now)
            )
    if observed.spec.is_elastic and not context.etcd:
        fix = "start the operator with --etcd-server=host:port, or remove spec.elastic"
        return Reason.ETCD_NOT_CONFIGURED, f"spec.elastic needs an etcd: {fix}"
    if observed.spec.intranet is Intranet.HOST and observed.job.status.host_port is None:
        return Reason.HOST_PORTS_EXHAUSTED, "every block of --port-range is taken by a live job: widen the range"
    return None


def oversized_variables(shared: RendezvousEnv) -> list[EventIntent]:
    if not shared.oversized:
        return []
    names = " and ".join(shared.oversized)
    note = f"left out {names}, longer than Linux allows: python -m paddle.distributed.launch needs only its master"
    return [EventIntent(Reason.ENDPOINTS_LEFT_OUT, note, warning=True)]


def significant_fields(status: PaddleJobStatus) -> tuple[object, ...]:
    """What people wait for, without counts, messages and what needs nobody's help."""
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
