"""Is a failure worth another try, does it count, and when is the next one?

One failure counts once: whatever else falls over with it is of the same attempt. The count is written down together
with what it leads to (the number of the attempt, or the UIDs that are replaced), so that no crash counts it twice.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from paddle_operator.api.paddlejob import ExitCodeOperator, FailureAction, PaddleJobSpec, PaddleJobStatus, RootFailure
from paddle_operator.kube.backoff import exponential
from paddle_operator.plan.children import PodView
from paddle_operator.plan.exit_codes import is_victim
from paddle_operator.plan.observed import ObservedJob

USAGE_ERROR_EXIT_CODE = 2
MAX_REASON_LENGTH = 128  # characters: any client may write status.reason of a pod
INITIAL_BACKOFF = timedelta(seconds=10)
MAX_BACKOFF = timedelta(minutes=6)


def root_failures(observed: ObservedJob) -> list[PodView]:
    """The pods that failed by themselves; where there are none, their victims."""
    return [pod for pod in observed.failed if not is_victim(pod)] or observed.failed


def root_failure(observed: ObservedJob, pod: PodView | None) -> RootFailure | None:
    """The status field that names the pod; None where no failed pod is the reason."""
    if pod is None:
        return None
    role, index = observed.positions[pod.name]
    return RootFailure(pod.name, role, index, pod.exit_code, pod.exit_reason[:MAX_REASON_LENGTH], pod.failed_container)


def action_for(spec: PaddleJobSpec, pod: PodView) -> FailureAction:
    if spec.backoff_limit is None:  # as the Go operator has it, but for elastic ranks, which may come and go
        return FailureAction.IGNORE if spec.is_elastic and pod.disrupted else FailureAction.FAIL_JOB
    if pod.disrupted:
        return FailureAction.IGNORE
    bad_command = not pod.failed_container and pod.exit_code == USAGE_ERROR_EXIT_CODE
    return matching_action(spec, pod) or (FailureAction.FAIL_JOB if bad_command else FailureAction.COUNT)


def matching_action(spec: PaddleJobSpec, pod: PodView) -> FailureAction | None:
    """What the user's own rules say of the container that trains; the first that fits decides."""
    code = None if pod.failed_container else pod.exit_code
    for rule in spec.pod_failure_policy.rules if spec.pod_failure_policy and code is not None else ():
        if (code in rule.on_exit_codes.values) is (rule.on_exit_codes.operator is ExitCodeOperator.IN):
            return rule.action
    return None


def counted_failures(observed: ObservedJob, pods: list[PodView]) -> int:
    """How many of these failures count."""
    return sum(action_for(observed.spec, pod) is FailureAction.COUNT for pod in pods)


def is_disruption(observed: ObservedJob) -> bool:
    """A pod was taken away: what its peers then ended with, whatever their codes, is of that."""
    return observed.spec.backoff_limit is not None and any(pod.disrupted for pod in observed.failed)


def kubelet_restarts(observed: ObservedJob) -> int:
    """Where restartPolicy is OnFailure or Always, containers come back by themselves, and that is a try as well."""
    return restarts_of(observed, observed.pods())


def restarts_of(observed: ObservedJob, pods: Iterable[PodView]) -> int:
    return sum(pod.restarts for pod in pods) if observed.spec.backoff_limit is not None else 0


def restarts_used(observed: ObservedJob) -> int:
    """How many tries are used up, kubelet's among them."""
    return observed.job.status.restarts + kubelet_restarts(observed)


def restarts_to_persist(observed: ObservedJob) -> int:
    """How many stay used up while the job rests. Kubelet tries on until its pods are gone: more than all it cannot."""
    limit = observed.spec.backoff_limit
    return (
        restarts_used(observed)
        if limit is None
        else max(observed.job.status.restarts, min(restarts_used(observed), limit))
    )


def exceeds_backoff_limit(observed: ObservedJob, charge: int) -> bool:
    """Whether the limit does not allow this. Kubelet does not ask before it tries: as in batch/v1, its last allowed try
    is the one that reaches the limit.
    """
    limit = observed.spec.backoff_limit
    if limit is None:
        return False
    too_many = charge > 0 and restarts_used(observed) + charge > limit
    return too_many or (kubelet_restarts(observed) > 0 and restarts_used(observed) >= max(limit, 1))


def backoff_before(number: int) -> timedelta:
    """10 s before the first try that counts, then twice as long each time, at most 6 minutes."""
    return exponential(number, INITIAL_BACKOFF, MAX_BACKOFF)


def next_attempt_time(charged: int, restarts: int, now: datetime) -> datetime | None:
    return (now + backoff_before(restarts)).replace(microsecond=0) if charged else None


def backoff_until(status: PaddleJobStatus, now: datetime) -> datetime | None:
    """While this is ahead, no pod is made."""
    return status.next_attempt_time if status.next_attempt_time and now < status.next_attempt_time else None
