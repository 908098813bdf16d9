"""How a job completes or fails, and what happens to a finished job."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from paddle_operator.api.paddlejob import (
    CleanPodPolicy,
    Condition,
    PaddleJobSpec,
    PaddleJobStatus,
    Phase,
    RoleStatus,
)
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import with_conditions
from paddle_operator.kube.writes import Delete, EventIntent, Plan
from paddle_operator.plan.children import Children, PodView
from paddle_operator.plan.clean_pod_policy import cleanup_writes
from paddle_operator.plan.deadlines import ttl_expiry
from paddle_operator.plan.diff import go_finalizer_patches, waves
from paddle_operator.plan.exit_codes import JobFailure
from paddle_operator.plan.failure_policy import restarts_used, root_failure
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, JobPlan
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.status import COMPLETED, FAILED, RUNNING, counted_status, make_condition, with_counts
from paddle_operator.plan.success_policy import succeeded_count, success_message, success_roles


def complete(observed: ObservedJob, now: datetime) -> JobPlan:
    """Parameter servers never exit by themselves: once the workers succeeded, the servers are stopped as succeeded."""
    status = counted_status(observed, now)
    counts = {
        role: RoleStatus(replicas=len(pods), succeeded=succeeded_count(observed, role), refs=status.roles[role].refs)
        for role, pods in observed.pods_by_role.items()
    }
    deciding_pods = [pod for role in success_roles(observed) for pod in observed.pods(role)]
    completed_at = completion_time(deciding_pods, status, now)
    status = msgspec.structs.replace(
        with_counts(observed, counts, status),
        start_time=status.start_time or completed_at,  # a short job may never have been observed running
        completion_time=completed_at,
        restarts=restarts_used(observed),  # kubelet's restarts are lost with the pods
    )
    message = success_message(observed)
    completed = make_condition(observed.job, COMPLETED, True, Reason.WORKERS_SUCCEEDED, message, now)
    return finish(observed, Phase.COMPLETED, completed, status, now)


def fail(observed: ObservedJob, failure: JobFailure, now: datetime) -> JobPlan:
    status = counted_status(observed, now)
    status = msgspec.structs.replace(
        status,
        completion_time=completion_time([failure.pod] if failure.pod else [], status, now),
        next_attempt_time=None,
        restarts=restarts_used(observed),
        root_failure=root_failure(observed, failure.pod),
    )
    failed = make_condition(observed.job, FAILED, True, failure.reason, failure.message, now)
    return finish(observed, Phase.FAILED, failed, status, now)


def completion_time(pods: Iterable[PodView], status: PaddleJobStatus, now: datetime) -> datetime:
    """When the last of these pods ended, by the clocks of their nodes; neither after now nor before the start."""
    last = min(max((pod.finished_at for pod in pods if pod.finished_at), default=now), now)
    return max(last, status.start_time or last)


def finish(observed: ObservedJob, phase: Phase, finished: Condition, status: PaddleJobStatus, now: datetime) -> JobPlan:
    """Write the final phase and condition, and apply cleanPodPolicy."""
    job = observed.job
    running = make_condition(job, RUNNING, False, str(phase), finished.message, now)
    conditions = with_conditions(status.conditions, finished, running)
    status = msgspec.structs.replace(status, phase=phase, conditions=conditions)
    writes = tuple(cleanup_writes(job, observed.spec, observed.children, phase))
    note = finished.message
    if writes:
        policy = observed.spec.clean_pod_policy or CleanPodPolicy.ON_COMPLETION
        action = "deleting the pods" if observed.spec.cleans(phase) else "stopping the running pods"
        note = f"{note}; {action}: spec.cleanPodPolicy is {policy}"
    return Plan(status, waves(writes), (EventIntent(str(phase), note, warning=phase is Phase.FAILED),))


def plan_finished(job: Job, spec: PaddleJobSpec, children: Children, now: datetime) -> JobPlan:
    """Continue the cleanup of a finished job, and delete the job when its TTL expires."""
    expiry = ttl_expiry(job)
    if expiry and now >= expiry:
        return Plan(job.status, waves(go_finalizer_patches(job), [Delete(PADDLE_JOBS, job.key, job.uid)]))
    cleanup = waves(go_finalizer_patches(job), cleanup_writes(job, spec, children, job.status.phase))
    return Plan(_with_observed_generation(job), cleanup, requeue_at=expiry)


def _with_observed_generation(job: Job) -> PaddleJobStatus:
    """A changed spec has no effect on a finished job.

    The Go operator writes no observedGeneration; its finished jobs, perhaps thousands, are not written either.
    """
    if not job.status.observed_generation:
        return job.status
    return msgspec.structs.replace(job.status, observed_generation=job.metadata.generation)
