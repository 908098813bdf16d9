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
from paddle_operator.plan.clean_pod_policy import clean_up
from paddle_operator.plan.deadlines import expiry
from paddle_operator.plan.diff import waves, without_finalizer
from paddle_operator.plan.exit_codes import Verdict
from paddle_operator.plan.failure_policy import root_failure, used
from paddle_operator.plan.job_view import PADDLE_JOBS
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.status import (
    COMPLETED,
    FAILED,
    RUNNING,
    base,
    make_condition,
    with_counts,
)


def complete(world: ObservedJob, now: datetime) -> JobPlan:
    """Parameter servers never exit by themselves: when the workers are done, so is everybody, and that is success."""
    status = base(world, now)
    done = {
        role: RoleStatus(replicas=len(pods_by_role), succeeded=successes(world, role), refs=status.roles[role].refs)
        for role, pods_by_role in world.pods_by_role.items()
    }
    ended_at = end_of([pod for role in world.success_roles for pod in world.pods(role)], status, now)
    status = msgspec.structs.replace(
        with_counts(world, done, status),
        start_time=status.start_time or ended_at,  # so short that we never saw it run
        completion_time=ended_at,
        restarts=used(world),  # kubelet's tries would be forgotten with the pods
    )
    succeeded = success_told(world)
    ended = make_condition(world.job, COMPLETED, True, Reason.WORKERS_SUCCEEDED, succeeded, now)
    return finish(world, Phase.COMPLETED, ended, status, now)


def successes(world: ObservedJob, role: Role) -> int:
    """Servers are ended, and that is their success; of workers only those count that have done their part."""
    return (
        world.state_counts[role]["succeeded"] + world.succeeded_and_deleted[role]
        if role in world.success_roles
        else len(world.pods_by_role[role])
    )


def success_told(world: ObservedJob) -> str:
    many, who = (
        sum(len(world.pods_by_role[role]) for role in world.success_roles),
        "worker" if world.spec.worker else "pod",
    )
    done = sum(successes(world, role) for role in world.success_roles)
    if done < many:
        return f"{done} of {many} {who}s have succeeded, and spec.successPolicy asks for no more"
    return f"all {many} {who}s have succeeded" if many > 1 else f"the {who} has succeeded"


def fail(world: ObservedJob, verdict: Verdict, now: datetime) -> JobPlan:
    status = base(world, now)
    ended_at = end_of([verdict.cause] if verdict.cause else [], status, now)
    status = msgspec.structs.replace(
        status,
        completion_time=ended_at,
        next_attempt_time=None,
        restarts=used(world),
        root_failure=root_failure(world, verdict.cause),
    )
    ended = make_condition(world.job, FAILED, True, verdict.reason, verdict.message, now)
    return finish(world, Phase.FAILED, ended, status, now)


def end_of(pods: Iterable[PodView], status: PaddleJobStatus, now: datetime) -> datetime:
    """When the last of these pods ended, by the clocks of their nodes; not after now, and not before the start."""
    last = min(max((pod.finished_at for pod in pods if pod.finished_at), default=now), now)
    return max(last, status.start_time or last)


def finish(world: ObservedJob, phase: Phase, ended: Condition, status: PaddleJobStatus, now: datetime) -> JobPlan:
    job = world.job
    stopped = make_condition(job, RUNNING, False, str(phase), ended.message, now)
    status = msgspec.structs.replace(status, phase=phase, conditions=with_conditions(status.conditions, ended, stopped))
    writes = tuple(clean_up(job, world.spec, world.children, phase))
    note = ended.message
    if writes:
        cleans, policy = world.spec.cleans(phase), world.spec.clean_pod_policy or CleanPodPolicy.ON_COMPLETION
        deed = "the pods are deleted" if cleans else "the pods that still run are stopped and kept"
        note = f"{note}; {deed}: cleanPodPolicy is {policy}"
    return Plan(status, waves(writes), (EventIntent(str(phase), note, warning=phase is Phase.FAILED),))


def plan_finished(job: Job, spec: PaddleJobSpec, children: Children, now: datetime) -> JobPlan:
    """Of a finished job: nothing runs any more; and in the end the job itself goes, if its user wants that."""
    until = expiry(job)
    if until and now >= until:
        return Plan(job.status, waves(without_finalizer(job), [Delete(PADDLE_JOBS, job.key, job.uid)]))
    tidy = waves(without_finalizer(job), clean_up(job, spec, children, job.status.phase))
    return Plan(looked_at(job), tidy, requeue_at=until)


def looked_at(job: Job) -> PaddleJobStatus:
    """What was changed since is seen and changes nothing. The Go operator does not tell what it has seen: for the sake
    of those that ended under it, as many as there may be, nothing is written.
    """
    if not job.status.observed_generation:
        return job.status
    return msgspec.structs.replace(job.status, observed_generation=job.metadata.generation)
