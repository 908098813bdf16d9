"""Decide everything about one job at one instant. Read from top to bottom, this is the specification."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from paddle_operator.api.paddlejob import Condition, Intranet, Phase
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import event_on_transition, find_condition, with_conditions
from paddle_operator.kube.writes import EventIntent, Plan, StatusOrder, Write, earliest, with_requeue
from paddle_operator.plan.barrier import barrier_creates, barrier_is_refused, kubelet_nudges, required_names
from paddle_operator.plan.children import Children, PodView
from paddle_operator.plan.deadlines import active_deadline_exceeded, next_deadline, start_deadline_exceeded
from paddle_operator.plan.diff import (
    MAX_QUICK_WRITES,
    force_deletes,
    go_finalizer_patches,
    group_is_refused,
    next_force_delete,
    obsolete_deletes,
    pod_creates,
    service_creates,
    stuck_terminating,
    waves,
)
from paddle_operator.plan.endpoints import Endpoints, endpoints_of
from paddle_operator.plan.exit_codes import is_victim, root_failure_wait
from paddle_operator.plan.failure_policy import backoff_until
from paddle_operator.plan.finish import complete, fail, plan_finished
from paddle_operator.plan.job_view import Job, JobPlan
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_group import POD_GROUPS
from paddle_operator.plan.rendezvous_env import RendezvousEnv, build_rendezvous_env
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
    STATUS_THROTTLE,
    NotRunningReason,
    make_condition,
    not_running_reason,
    observed_status,
)
from paddle_operator.plan.success_policy import is_succeeded
from paddle_operator.plan.suspend import is_suspended, resume, suspend
from paddle_operator.plan.warnings import spec_warnings


@dataclass(frozen=True)
class PlanContext:
    """The inputs of a plan that are no objects of its job."""

    etcd: str = ""
    scheduling: str = ""  # the gang scheduler, if one is used
    group_crd_missing: bool = False  # the cluster has no PodGroup CRD
    free_host_port: int | None = None  # the first port of a block that no other unfinished job has
    status_written_at: datetime | None = None
    status_interval: timedelta = timedelta(seconds=1)  # longer while many jobs change


def plan(job: Job, children: Children, now: datetime, context: PlanContext | None = None) -> JobPlan:
    """Ordered rules; the first match wins."""
    context = context or PlanContext()
    if not job.is_ours:
        return Plan(job.status)
    if job.metadata.deletion_timestamp:
        return plan_deleted(job)
    if job.spec is None:
        return plan_invalid(job, now)
    spec, children = job.spec, children.in_namespace(job.key.namespace)
    if job.finished:
        return plan_finished(job, spec, children, now)
    observed = ObservedJob(job, spec, children)
    if spec.suspend and is_succeeded(observed) and not is_suspended(job):
        return complete(observed, now)
    if spec.suspend:
        return suspend(observed, now)
    if is_suspended(job):
        return resume(job, now)
    if job.status.host_port is None and context.free_host_port is not None:
        return assign_host_ports(job, context.free_host_port)
    desired = plan_active(observed, context, now)
    if desired.status.phase in (Phase.COMPLETED, Phase.FAILED):
        return desired  # a job that this plan finishes has no deadlines left
    return with_requeue(desired, next_deadline(observed, now))


def plan_active(observed: ObservedJob, context: PlanContext, now: datetime) -> JobPlan:
    """Ordered rules for a job that should run; the first match wins."""
    job = observed.job
    if is_succeeded(observed):
        return complete(observed, now)
    has_root_failure = any(not is_victim(pod) for pod in observed.failed)
    if has_root_failure and (failure := fatal_failure(observed)):
        return fail(observed, failure, now)
    if failure := backoff_limit_exceeded(observed) or active_deadline_exceeded(observed, now):
        return fail(observed, failure, now)
    endpoints = endpoints_of(observed)
    if reason := restart_reason(observed, endpoints):  # before failures: peers of a deleted pod fail as well
        return restart(observed, reason, now)
    if failure := start_deadline_exceeded(observed, now):
        return fail(observed, failure, now)
    if not observed.failed or at_replacement_limit(observed):
        desired, written_at = converge(observed, endpoints, context, now), context.status_written_at
        return STATUS_THROTTLE.apply(desired, job.status, now, written_at=written_at, interval=context.status_interval)
    if not has_root_failure:
        if until := root_failure_wait(observed.failed, now):
            return Plan(job.status, requeue_at=until)
        if failure := fatal_failure(observed):
            return fail(observed, failure, now)
    return retry(observed, now)


def plan_deleted(job: Job) -> JobPlan:
    """Owner references delete the children; the Go operator's finalizer must be removed, or the job stays forever."""
    status = msgspec.structs.replace(job.status, phase=Phase.TERMINATING)
    return Plan(status if job.metadata.finalizers else job.status, waves(go_finalizer_patches(job)))


def plan_invalid(job: Job, now: datetime) -> JobPlan:
    """A job stored before the CRD had rules: report the errors, and leave its children alone."""
    before = job.status.conditions
    accepted = make_condition(job, ACCEPTED, False, Reason.SPEC_INVALID, "; ".join(job.problems), now)
    status = msgspec.structs.replace(
        job.status,
        phase=job.status.phase or Phase.PENDING,
        observed_generation=job.metadata.generation,
        conditions=with_conditions(before, accepted),
    )
    return Plan(status, waves(go_finalizer_patches(job)), event_on_transition(before, accepted, warning=True))


def assign_host_ports(job: Job, first: int) -> JobPlan:
    """Write the job's port block to its status before the first pod uses it."""
    return Plan(msgspec.structs.replace(job.status, host_port=first))


def converge(observed: ObservedJob, endpoints: Endpoints | None, context: PlanContext, now: datetime) -> JobPlan:
    """Delete obsolete children, create missing ones, then create the barrier ConfigMap."""
    blocker = creation_blocker(observed, context, now)
    warnings = list(spec_warnings(observed, context.scheduling, now))
    status = observed_status(observed, blocker, now)
    status = msgspec.structs.replace(status, conditions=with_conditions(status.conditions, *warnings))
    stuck = stuck_terminating(observed, now)
    events = _events(observed.job, status.conditions, warnings, stuck)
    cleanup = [*go_finalizer_patches(observed.job), *obsolete_deletes(observed), *force_deletes(stuck)]
    cleanup += _group_writes(observed, context, now)
    requeue_at = _requeue_at(observed, context, now)
    if observed.barrier and not observed.released:  # new containers must not read the addresses of earlier pods
        return Plan(status, waves(cleanup), tuple(events), requeue_at)
    pods: list[list[Write]] = []
    if not blocker and not barrier_is_refused(observed, now):
        gang = is_gang(observed.spec, context.scheduling)
        pods = list(pod_creates(observed, context.etcd, now, gang=gang))
    release, release_events = _release(observed, endpoints, now)
    steps = [cleanup, [] if blocker else service_creates(observed, now), *pods, *release]
    has_quick_creates = any(pods) and sum(map(len, steps)) <= MAX_QUICK_WRITES
    return Plan(
        status,
        waves(*steps),
        (*events, *release_events),
        requeue_at,
        required_names(observed, pods),
        StatusOrder.DEFERRED if has_quick_creates and not observed.job.status.phase else StatusOrder.FIRST,
    )


def _events(
    job: Job, conditions: tuple[Condition, ...], warnings: list[Condition], stuck: list[PodView]
) -> list[EventIntent]:
    """Transitions of the conditions, and pods that are force-deleted."""
    before = job.status.conditions
    running = next(each for each in conditions if each.type == RUNNING)
    events = [*event_on_transition(before, running, warning=running.reason not in PROGRESS_REASONS)]
    for warning in warnings:
        if warning.status == "True":
            events += event_on_transition(before, warning, warning=True)
    for pod in stuck:
        note = f"{pod.name} is stuck terminating on {pod.node}; force-deleting it"
        events.append(EventIntent(Reason.NODE_LOST, note, warning=True))
    return events


def _group_writes(observed: ObservedJob, context: PlanContext, now: datetime) -> list[Write]:
    if not is_gang(observed.spec, context.scheduling) or context.group_crd_missing or group_is_refused(observed, now):
        return []
    return list(group_writes(observed.job, observed.spec, observed.children.group, observed.pods(), now))


def _requeue_at(observed: ObservedJob, context: PlanContext, now: datetime) -> datetime | None:
    """When a refusal, a back-off, a force delete or a PodGroup needs the next reconcile."""
    job, group_check = observed.job, None
    if is_gang(observed.spec, context.scheduling):
        group_check = next_group_check(job, observed.spec, observed.children.group, now)
    return earliest(
        min((each.retry_at for each in observed.refusals if each.retry_at > now), default=None),
        backoff_until(job.status, now),
        next_force_delete(observed, now),
        group_check if group_check and group_check > now else None,
    )


def _release(
    observed: ObservedJob, endpoints: Endpoints | None, now: datetime
) -> tuple[list[list[Write]], list[EventIntent]]:
    """Create the barrier once all endpoints are known, then nudge kubelet for the pods that wait for it."""
    if endpoints is None:
        return [], []
    if observed.barrier is None:
        env = build_rendezvous_env(observed, endpoints)
        creates = barrier_creates(observed, env, now)
        return ([creates, kubelet_nudges(observed, endpoints.digest)], _oversized_events(env)) if creates else ([], [])
    if observed.barrier.endpoints_digest:  # the Go operator's barrier has none
        return [kubelet_nudges(observed, endpoints.digest)], []
    return [], []


def _oversized_events(env: RendezvousEnv) -> list[EventIntent]:
    if not env.oversized:
        return []
    names = " and ".join(env.oversized)
    note = f"not set because longer than Linux allows: {names}; python -m paddle.distributed.launch works without"
    return [EventIntent(Reason.ENDPOINTS_LEFT_OUT, note, warning=True)]


def creation_blocker(observed: ObservedJob, context: PlanContext, now: datetime) -> NotRunningReason | None:
    """Why missing pods cannot be created; running pods are not affected."""
    job, spec = observed.job, observed.spec
    if not observed.missing:
        return None
    if backoff_until(job.status, now) and (before := find_condition(job.status.conditions, RUNNING)):
        return before.reason, before.message  # it names the failure and the end of the back-off
    if is_gang(spec, context.scheduling) and not any(observed.pods()):
        if context.group_crd_missing:
            fix = "install Volcano, or start the operator without --scheduling"
            message = f"the operator runs with --scheduling=volcano, but the cluster has no PodGroup CRD: {fix}"
            return Reason.POD_GROUP_CRD_NOT_FOUND, message
        if not is_admitted(observed.children.group):
            refused = any(each.kind == POD_GROUPS.plural for each in observed.refusals)
            return not_running_reason(observed) if refused else pod_group_reason(job, observed.children.group, now)
    if spec.is_elastic and not context.etcd:
        fix = "start the operator with --etcd-server=host:port, or remove spec.elastic"
        return Reason.ETCD_NOT_CONFIGURED, f"spec.elastic requires etcd: {fix}"
    if spec.intranet is Intranet.HOST and job.status.host_port is None:
        message = "every port block of --port-range belongs to an unfinished job: widen the range"
        return Reason.HOST_PORTS_EXHAUSTED, message
    return None
