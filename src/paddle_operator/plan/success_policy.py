"""spec.successPolicy: has the job succeeded? Without one, when all workers have, or all pods if it has no workers."""

from paddle_operator.api.paddlejob import Role, success_indexes, success_rule
from paddle_operator.plan.observed import ObservedJob


def success_roles(observed: ObservedJob) -> list[Role]:
    """The roles whose success is the job's: the workers, or every role if there are no workers."""
    return [Role.WORKER] if observed.spec.worker else list(observed.pods_by_role)


def is_succeeded(observed: ObservedJob) -> bool:
    """Whether the success policy is met, regardless of the parameter servers."""
    if observed.spec.success_policy:
        return _is_policy_met(observed)
    return all(
        finished_successfully(observed, role) == len(observed.pods_by_role[role]) for role in success_roles(observed)
    )


def _is_policy_met(observed: ObservedJob) -> bool:
    workers, indexes = observed.pods_by_role[Role.WORKER], success_indexes(observed.spec)
    succeeded = sum(
        pod is not None and observed.pod_state(Role.WORKER, pod) == "succeeded"
        for pod in workers[indexes.start : indexes.stop]
    )
    if len(indexes) == len(workers):  # the indexes of deleted pods are unknown: they count only if every index does
        succeeded += observed.succeeded_and_deleted[Role.WORKER]
    return succeeded >= (success_rule(observed.spec).succeeded_count or len(indexes))


def finished_successfully(observed: ObservedJob, role: Role) -> int:
    """How many pods of a role succeeded, those that were deleted afterwards included."""
    return observed.state_counts[role]["succeeded"] + observed.succeeded_and_deleted[role]


def succeeded_count(observed: ObservedJob, role: Role) -> int:
    """What the status of a completed job shows: parameter servers are stopped, which counts as success."""
    if role in success_roles(observed):
        return finished_successfully(observed, role)
    return len(observed.pods_by_role[role])


def success_message(observed: ObservedJob) -> str:
    total = sum(len(observed.pods_by_role[role]) for role in success_roles(observed))
    noun = "worker" if observed.spec.worker else "pod"
    succeeded = sum(succeeded_count(observed, role) for role in success_roles(observed))
    if succeeded < total:
        return f"spec.successPolicy is met: {succeeded} of {total} {noun}s succeeded"
    return f"all {total} {noun}s succeeded" if total > 1 else f"the {noun} succeeded"
