"""All pods of a job at once or none of them: the one place that knows about gangs, and how Volcano wants them told.

A PodGroup has the job's name. Where there is one of that name that is not ours, the user made it, as the user guide
shows: it counts as it is, and nobody changes or deletes it. Pods are made once the group may run, so that the pods of a
job that has to wait do not crowd the cluster; after that the group's phase holds nothing up any more.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from paddle_operator.api.paddlejob import PaddleJobSpec, Role, RoleSpec, SchedulingPolicy
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import find_condition
from paddle_operator.kube.objects import Manifest
from paddle_operator.kube.pod_requests import as_quantities, pod_requests
from paddle_operator.kube.quantities import Amounts, amounts, times, total
from paddle_operator.kube.writes import Create, Delete, Patch, Write
from paddle_operator.plan.children import Job, PodView
from paddle_operator.plan.endpoints import owner_reference
from paddle_operator.plan.pod_group import API, POD_GROUPS, GroupView
from paddle_operator.plan.status import ACCEPTED, NotRunningReason

VOLCANO = "volcano"  # the value of --scheduling, and the name of the scheduler on pods
GROUP_NAME = "scheduling.k8s.io/group-name"
PENDING_PHASES = frozenset({"", "Pending"})
USER_GROUP_WAIT = timedelta(seconds=2)  # times are noted in whole seconds: one of them at least
ADMISSION_WAIT = timedelta(seconds=3)


def scheduler_names(spec: PaddleJobSpec) -> dict[Role, str]:
    """The scheduler that each role's template names, where it names one."""
    named = {role: wanted.template["spec"].get("schedulerName") for role, wanted in spec.roles.items()}
    return {role: name for role, name in named.items() if name}


def is_gang(spec: PaddleJobSpec, scheduling: str) -> bool:
    """One role with another scheduler, and the job is none of Volcano's business."""
    return scheduling == VOLCANO and set(scheduler_names(spec).values()) <= {VOLCANO}


def foreign_scheduler_message(spec: PaddleJobSpec, scheduling: str) -> str:
    """What to tell a user whose templates name another scheduler than the operator's flag."""
    foreign = {role: name for role, name in scheduler_names(spec).items() if name != VOLCANO}
    if scheduling != VOLCANO or not foreign:
        return ""
    fields = ", ".join(f"spec.{role}.template.spec.schedulerName is {name}" for role, name in foreign.items())
    return f"{fields}, which stays: the job is not scheduled as a gang; remove it to have Volcano do that"


def is_admitted(group: GroupView | None) -> bool:
    return group is not None and not group.terminating and group.phase not in PENDING_PHASES


def pod_group_reason(job: Job, group: GroupView | None, now: datetime) -> NotRunningReason:
    """Why no pod is made yet; a moment after the group was made, that is nothing to worry about."""
    if group is None:
        return Reason.CREATING_POD_GROUP, f"PodGroup {job.key.name} is not made yet"
    if (seen_by := admission_expected_at(group)) and now < seen_by:
        return Reason.CREATING_POD_GROUP, f"PodGroup {group.name} was made a moment ago"
    queue = group.queue or "default"
    held = f"Volcano has not let PodGroup {group.name} into queue {queue}"
    if group.phase:
        return (
            Reason.WAITING_FOR_POD_GROUP,
            f"{held}: {group.why or 'its queue or the cluster has no room for all of it yet'}",
        )
    # Of a group whose queue does not exist it says nothing at all.
    return (
        Reason.WAITING_FOR_POD_GROUP,
        f"{held}, and says nothing of it: is there such a queue, and does Volcano's scheduler run?",
    )


def admission_expected_at(group: GroupView) -> datetime | None:
    """By when Volcano, which looks every second, has let it in if it can: the first look often says no."""
    return group.created_at + ADMISSION_WAIT if group.created_at and group.phase in PENDING_PHASES else None


def group_creation_time(job: Job, spec: PaddleJobSpec, now: datetime) -> datetime | None:
    """Who names Volcano in a template may bring a PodGroup of his own, in the next document: he is given that time."""
    accepted = find_condition(job.status.conditions, ACCEPTED)  # by our own clock, with which it is compared
    since = accepted.last_transition_time if accepted else now
    return since + USER_GROUP_WAIT if scheduler_names(spec) else None


def next_group_check(job: Job, spec: PaddleJobSpec, group: GroupView | None, now: datetime) -> datetime | None:
    return admission_expected_at(group) if group else group_creation_time(job, spec, now)


def blocks_itself(group: GroupView, pods: Iterable[PodView]) -> bool:
    """Whether a gang stands in its own way. When it loses a pod before any has run, Volcano lets it in anew, and only
    once all of minResources is free: its other pods have that.
    """
    return group.phase == "Pending" and any(pod.node for pod in pods)


def group_writes(
    job: Job, spec: PaddleJobSpec, group: GroupView | None, pods: Iterable[PodView], now: datetime
) -> Iterator[Write]:
    """Make it, or let it follow the spec, if it is ours; `pods` are those that its job has now."""
    if group is None and (due := group_creation_time(job, spec, now)) and now < due:
        return
    wanted = _desired_fields(spec)
    if group and blocks_itself(group, pods):
        wanted["minResources"] = {}  # so Volcano lets it in at once; then it is told again
    if group is None:
        yield Create(POD_GROUPS, job.key, partial(_manifest, job, wanted))
    elif group.owner_uid == job.uid and not group.terminating:
        change = {name: value for name, value in wanted.items() if getattr(group, FIELDS[name]) != value}
        if not wanted["queue"]:  # Volcano's webhook, where there is one, writes the default
            change.pop("queue", None)
        if _equal_amounts(
            group.min_resources, wanted["minResources"]
        ):  # Volcano writes amounts back in a form of its own
            change.pop("minResources", None)
        if "minResources" in change:  # a merge would keep what is no longer asked for
            change["minResources"] |= {name: None for name in group.min_resources if name not in wanted["minResources"]}
        if change:
            yield Patch(POD_GROUPS, group.key, group.uid, {"spec": change})


def group_deletes(job: Job, group: GroupView | None) -> Iterator[Write]:
    if group is not None and group.owner_uid == job.uid and not group.terminating:
        yield Delete(POD_GROUPS, group.key, group.uid)


FIELDS = {
    "minMember": "min_member",
    "minResources": "min_resources",
    "queue": "queue",
    "priorityClassName": "priority_class",
}


def _desired_fields(spec: PaddleJobSpec) -> dict[str, Any]:
    policy = spec.scheduling_policy or SchedulingPolicy()
    members = policy.min_available or _min_members(spec)
    return {
        "minMember": members,
        "minResources": dict(policy.min_resources) or _min_resources(spec, members),
        "queue": policy.queue,
        "priorityClassName": policy.priority_class,
    }


def _equal_amounts(told: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """`1000m` is 1, and 4 is "4"."""
    try:
        return amounts(told) == amounts(wanted)
    except ValueError:
        return False


def _min_members(spec: PaddleJobSpec) -> int:
    """With how many pods the job can train: an elastic one with fewer than all."""
    return (spec.worker.requests or spec.worker.replicas) if spec.is_elastic and spec.worker else spec.total


def _min_resources(spec: PaddleJobSpec, members: int) -> dict[str, str]:
    """What as many pods ask for, in the order in which they are made."""
    asked: list[Amounts] = []
    for wanted in spec.roles.values():
        number = min(members, wanted.replicas)
        members -= number
        asked.append(times(number, _readable_requests(wanted)))
    return as_quantities(total(asked))


def _readable_requests(wanted: RoleSpec) -> Amounts:
    """A quantity that nobody can read keeps the pods from being made, which says so; it must not keep us from that."""
    try:
        return pod_requests(wanted.template["spec"])
    except ValueError:
        return {}


def _manifest(job: Job, wanted: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": {"name": job.key.name, "namespace": job.key.namespace, "ownerReferences": [owner_reference(job)]},
        "spec": {name: value for name, value in wanted.items() if value},
    }


def gang_annotations(job: Job, role: Role) -> dict[str, str]:
    """By which Volcano knows the pods of a gang; the Go operator's, so that its users' tools go on working."""
    assert job.spec
    policy = job.spec.scheduling_policy
    return {
        GROUP_NAME: job.key.name,
        "volcano.sh/task-spec": str(role),
        "volcano.sh/job-name": job.key.name,
        "volcano.sh/job-version": str(job.status.attempt),
        "volcano.sh/queue-name": policy.queue if policy else "",
    }
