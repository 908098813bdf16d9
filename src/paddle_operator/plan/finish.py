"""How a job ends, what is told of it, and what then becomes of it."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import (
    CleanPodPolicy,
    Condition,
    PaddleJobSpec,
    PaddleJobStatus,
    Phase,
    Role,
    RoleStatus,
)
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import with_conditions
from paddle_operator.kube.writes import Delete, EventIntent, Plan
from paddle_operator.plan.children import Children, Job, JobPlan, PodView
from paddle_operator.plan.clean_pod_policy import cleanup_writes
from paddle_operator.plan.deadlines import ttl_expiry
from paddle_operator.plan.diff import go_finalizer_patches, waves
from paddle_operator.plan.exit_codes import JobFailure
from paddle_operator.plan.failure_policy import restarts_used, root_failure
from paddle_operator.plan.job_view import PADDLE_JOBS
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.status import (
    COMPLETED,
    FAILED,
    RUNNING,
    counted_status,
    make_condition,
    with_counts,
)


def complete(observed: ObservedJob, now: datetime) -> JobPlan:
    """Parameter servers never exit by themselves: when the workers are done, so is everybody, and that is success."""
    status = counted_status(observed, now)
    done = {
        role: RoleStatus(
            replicas=len(pods_by_role), succeeded=succeeded_count(observed, role), refs=status.roles[role].refs
        )
        for role, pods_by_role in observed.pods_by_role.items()
    }
    ended_at = completion_time_of([pod for role in observed.success_roles for pod in observed.pods(role)], status, now)
    status = msgspec.structs.replace(
        with_counts(observed, done, status),
        start_time=status.start_time or ended_at,  # so short that we never saw it run
        completion_time=ended_at,
        restarts=restarts_used(observed),  # kubelet's tries would be forgotten with the pods
    )
    succeeded = success_message(observed)
    ended = make_condition(observed.job, COMPLETED, True, Reason.WORKERS_SUCCEEDED, succeeded, now)
    return finish(observed, Phase.COMPLETED, ended, status, now)


def succeeded_count(observed: ObservedJob, role: Role) -> int:
    """Servers are ended, and that is their success; of workers only those count that have done their part."""
    return (
        observed.state_counts[role]["succeeded"] + observed.succeeded_and_deleted[role]
        if role in observed.success_roles
        else len(observed.pods_by_role[role])
    )


def success_message(observed: ObservedJob) -> str:
    many, who = (
        sum(len(observed.pods_by_role[role]) for role in observed.success_roles),
        "worker" if observed.spec.worker else "pod",
    )
    done = sum(succeeded_count(observed, role) for role in observed.success_roles)
    if done < many:
        return f"{done} of {many} {who}s have succeeded, and spec.successPolicy asks for no more"
    return f"all {many} {who}s have succeeded" if many > 1 else f"the {who} has succeeded"


def fail(observed: ObservedJob, verdict: JobFailure, now: datetime) -> JobPlan:
    status = counted_status(observed, now)
    ended_at = completion_time_of([verdict.cause] if verdict.cause else [], status, now)
    status = msgspec.structs.replace(
        status,
        completion_time=ended_at,
        next_attempt_time=None,
        restarts=restarts_used(observed),
        root_failure=root_failure(observed, verdict.cause),
    )
    ended = make_condition(observed.job, FAILED, True, verdict.reason, verdict.message, now)
    return finish(observed, Phase.FAILED, ended, status, now)


def completion_time_of(pods: Iterable[PodView], status: PaddleJobStatus, now: datetime) -> datetime:
    """When the last of these pods ended, by the clocks of their nodes; not after now, and not before the start."""
    last = min(max((pod.finished_at for pod in pods if pod.finished_at), default=now), now)
    return max(last, status.start_time or last)


def finish(observed: ObservedJob, phase: Phase, ended: Condition, status: PaddleJobStatus, now: datetime) -> JobPlan:
    job = observed.job
    stopped = make_condition(job, RUNNING, False, str(phase), ended.message, now)
    status = msgspec.structs.replace(status, phase=phase, conditions=with_conditions(status.conditions, ended, stopped))
    writes = tuple(cleanup_writes(job, observed.spec, observed.children, phase))
    note = ended.message
    if writes:
        cleans, policy = observed.spec.cleans(phase), observed.spec.clean_pod_policy or CleanPodPolicy.ON_COMPLETION
        deed = "the pods are deleted" if cleans else "the pods that still run are stopped and kept"
        note = f"{note}; {deed}: cleanPodPolicy is {policy}"
    return Plan(status, waves(writes), (EventIntent(str(phase), note, warning=phase is Phase.FAILED),))


def plan_finished(job: Job, spec: PaddleJobSpec, children: Children, now: datetime) -> JobPlan:
    """Of a finished job: nothing runs any more; and in the end the job itself goes, if its user wants that."""
    until = ttl_expiry(job)
    if until and now >= until:
        return Plan(job.status, waves(go_finalizer_patches(job), [Delete(PADDLE_JOBS, job.key, job.uid)]))
    tidy = waves(go_finalizer_patches(job), cleanup_writes(job, spec, children, job.status.phase))
    return Plan(observed_finished(job), tidy, requeue_at=until)


def observed_finished(job: Job) -> PaddleJobStatus:
    """What was changed since is seen and changes nothing. The Go operator does not tell what it has seen: for the sake
    of those that ended under it, as many as there may be, nothing is written.
    """
    if not job.status.observed_generation:
        return job.status
    return msgspec.structs.replace(job.status, observed_generation=job.metadata.generation)
