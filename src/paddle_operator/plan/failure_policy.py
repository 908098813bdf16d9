"""spec.backoffLimit and spec.podFailurePolicy: is a failure retried, does it count, and when is the next attempt?

One root failure counts once; pods that fail with it belong to the same attempt. The count is written together with its
effect (the attempt number, or the UIDs of replaced pods), so a crash of the operator cannot count it twice.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from paddle_operator.api.paddlejob import (
    ExitCodeOperator,
    FailureAction,
    PaddleJobSpec,
    PaddleJobStatus,
    RootFailure,
)
from paddle_operator.kube.backoff import exponential
from paddle_operator.plan.children import PodView
from paddle_operator.plan.exit_codes import is_victim
from paddle_operator.plan.observed import ObservedJob

USAGE_ERROR_EXIT_CODE = 2
MAX_REASON_LENGTH = 128  # characters: any client may write status.reason of a pod
INITIAL_BACKOFF = timedelta(seconds=10)
MAX_BACKOFF = timedelta(minutes=6)


def root_failures(observed: ObservedJob) -> list[PodView]:
    """The failed pods that are no victims; if there are none, the victims."""
    return [pod for pod in observed.failed if not is_victim(pod)] or observed.failed


def root_failure(observed: ObservedJob, pod: PodView | None) -> RootFailure | None:
    """The status field that names the pod; None if no failed pod is the reason."""
    if pod is None:
        return None
    role, index = observed.positions[pod.name]
    return RootFailure(pod.name, role, index, pod.exit_code, pod.exit_reason[:MAX_REASON_LENGTH], pod.failed_container)


def action_for(spec: PaddleJobSpec, pod: PodView) -> FailureAction:
    if spec.backoff_limit is None:  # as in the Go operator, except that elastic ranks may be disrupted
        return FailureAction.IGNORE if spec.is_elastic and pod.disrupted else FailureAction.FAIL_JOB
    if pod.disrupted:
        return FailureAction.IGNORE
    is_usage_error = not pod.failed_container and pod.exit_code == USAGE_ERROR_EXIT_CODE
    return matching_action(spec, pod) or (FailureAction.FAIL_JOB if is_usage_error else FailureAction.COUNT)


def matching_action(spec: PaddleJobSpec, pod: PodView) -> FailureAction | None:
    """The action of the first rule of spec.podFailurePolicy that matches the main container's exit code."""
    code = None if pod.failed_container else pod.exit_code
    for rule in spec.pod_failure_policy.rules if spec.pod_failure_policy and code is not None else ():
        if (code in rule.on_exit_codes.values) is (rule.on_exit_codes.operator is ExitCodeOperator.IN):
            return rule.action
    return None


def counted_failures(observed: ObservedJob, pods: list[PodView]) -> int:
    return sum(action_for(observed.spec, pod) is FailureAction.COUNT for pod in pods)


def is_disruption(observed: ObservedJob) -> bool:
    """A failed pod was disrupted; the exit codes of its peers are consequences."""
    return observed.spec.backoff_limit is not None and any(pod.disrupted for pod in observed.failed)


def kubelet_restarts(observed: ObservedJob) -> int:
    """With restartPolicy OnFailure or Always kubelet restarts containers, which uses backoffLimit, too."""
    return container_restarts(observed, observed.pods())


def container_restarts(observed: ObservedJob, pods: Iterable[PodView]) -> int:
    return sum(pod.restarts for pod in pods) if observed.spec.backoff_limit is not None else 0


def restarts_used(observed: ObservedJob) -> int:
    """How much of backoffLimit is used, by the operator and by kubelet."""
    return observed.job.status.restarts + kubelet_restarts(observed)


def restarts_to_persist(observed: ObservedJob) -> int:
    """The count to retain while the job is suspended.

    Kubelet restarts containers until the pods are gone, so the count is capped at the limit.
    """
    limit, used = observed.spec.backoff_limit, restarts_used(observed)
    return used if limit is None else max(observed.job.status.restarts, min(used, limit))


def exceeds_backoff_limit(observed: ObservedJob, counted: int) -> bool:
    """Whether the limit forbids so many more failures.

    Kubelet restarts containers without the operator: as in batch/v1, the last
    allowed restart reaches the limit.
    """
    limit, used = observed.spec.backoff_limit, restarts_used(observed)
    if limit is None:
        return False
    too_many = counted > 0 and used + counted > limit
    return too_many or (kubelet_restarts(observed) > 0 and used >= max(limit, 1))


def backoff_before(number: int) -> timedelta:
    """10 s before the first counted retry, then twice as long each time, at most 6 minutes."""
    return exponential(number, INITIAL_BACKOFF, MAX_BACKOFF)


def next_attempt_time(counted: int, restarts: int, now: datetime) -> datetime | None:
    return (now + backoff_before(restarts)).replace(microsecond=0) if counted else None


def backoff_until(status: PaddleJobStatus, now: datetime) -> datetime | None:
    """Until then no pod is created; None if no back-off is running."""
    return status.next_attempt_time if status.next_attempt_time and now < status.next_attempt_time else None
