"""spec.schedulingPolicy: Volcano schedules all pods of a job at once, or none.

The PodGroup has the job's name. One that a user created is used as it is, never changed or deleted. Pods are created
once the group is admitted, so that waiting jobs do not fill the cluster with pods; later phases block nothing.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from paddle_operator.api.paddlejob import PaddleJobSpec, Role
from paddle_operator.api.reasons import Reason
from paddle_operator.kube.conditions import find_condition
from paddle_operator.kube.quantities import amounts
from paddle_operator.kube.writes import Create, Delete, Patch, Write
from paddle_operator.plan.children import PodView
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.pod_group import POD_GROUPS, GroupView, desired_group_spec, group_manifest
from paddle_operator.plan.status import ACCEPTED, NotRunningReason

VOLCANO = "volcano"  # the value of --scheduling, and of schedulerName
GROUP_NAME_ANNOTATION = "scheduling.k8s.io/group-name"
PENDING_PHASES = frozenset({"", "Pending"})
USER_GROUP_WAIT = timedelta(seconds=2)  # stored times are whole seconds: at least one passes
ADMISSION_WAIT = timedelta(seconds=3)


def scheduler_names(spec: PaddleJobSpec) -> dict[Role, str]:
    """The schedulerName of each role's template, if it has one."""
    names = {role: part.template["spec"].get("schedulerName") for role, part in spec.roles.items()}
    return {role: name for role, name in names.items() if name}


def is_gang(spec: PaddleJobSpec, scheduling: str) -> bool:
    """Whether Volcano schedules the job: not if a template names another scheduler."""
    return scheduling == VOLCANO and set(scheduler_names(spec).values()) <= {VOLCANO}


def foreign_scheduler_message(spec: PaddleJobSpec, scheduling: str) -> str:
    """A warning if a template names another scheduler than the operator's flag; empty if none does."""
    foreign = {role: name for role, name in scheduler_names(spec).items() if name != VOLCANO}
    if scheduling != VOLCANO or not foreign:
        return ""
    fields = ", ".join(f"spec.{role}.template.spec.schedulerName is {name}" for role, name in foreign.items())
    return f"{fields}: the job is not scheduled as a gang; remove it to let Volcano schedule the job"


def is_admitted(group: GroupView | None) -> bool:
    return group is not None and not group.terminating and group.phase not in PENDING_PHASES


def pod_group_reason(job: Job, group: GroupView | None, now: datetime) -> NotRunningReason:
    """Why no pod is created yet; progress until Volcano has had time to admit the group."""
    if group is None:
        return Reason.CREATING_POD_GROUP, f"PodGroup {job.key.name} is not created yet"
    if (expected_at := admission_expected_at(group)) and now < expected_at:
        return Reason.CREATING_POD_GROUP, f"PodGroup {group.name} was just created"
    queue = group.queue or "default"
    pending = f"PodGroup {group.name} is not yet enqueued in queue {queue}"
    if group.phase:
        cause = group.unschedulable_message or "the queue or the cluster lacks the resources for all pods"
        return Reason.WAITING_FOR_POD_GROUP, f"{pending}: {cause}"
    hint = "check that the queue exists and that Volcano's scheduler is running"
    return Reason.WAITING_FOR_POD_GROUP, f"{pending} and Volcano reports no reason; {hint}"


def admission_expected_at(group: GroupView) -> datetime | None:
    """By when Volcano, which syncs every second, admits a group that fits: its first sync often rejects it."""
    return group.created_at + ADMISSION_WAIT if group.created_at and group.phase in PENDING_PHASES else None


def group_creation_time(job: Job, spec: PaddleJobSpec, now: datetime) -> datetime | None:
    """When to create our PodGroup: a user whose template names Volcano may apply one after the job."""
    accepted = find_condition(job.status.conditions, ACCEPTED)  # by our clock, as is `now`
    since = accepted.last_transition_time if accepted else now
    return since + USER_GROUP_WAIT if scheduler_names(spec) else None


def next_group_check(job: Job, spec: PaddleJobSpec, group: GroupView | None, now: datetime) -> datetime | None:
    return admission_expected_at(group) if group else group_creation_time(job, spec, now)


def blocks_itself(group: GroupView, pods: Iterable[PodView]) -> bool:
    """Whether a gang waits for resources that its own pods hold.

    If a pod is lost before any has run, Volcano admits the group again, only once all of minResources is free.
    """
    return group.phase == "Pending" and any(pod.node for pod in pods)


def group_writes(
    job: Job, spec: PaddleJobSpec, group: GroupView | None, pods: Iterable[PodView], now: datetime
) -> Iterator[Write]:
    """Create the group, or update it to the spec if the job owns it."""
    if group is None and (due := group_creation_time(job, spec, now)) and now < due:
        return
    desired = desired_group_spec(spec)
    if group and blocks_itself(group, pods):
        desired["minResources"] = {}  # Volcano admits it at once; the next reconcile restores the field
    if group is None:
        yield Create(POD_GROUPS, job.key, partial(group_manifest, job, desired))
    elif group.owner_uid == job.uid and not group.terminating:
        change = {name: value for name, value in desired.items() if getattr(group, VIEW_FIELDS[name]) != value}
        if not desired["queue"]:  # Volcano's webhook, if installed, writes the default
            change.pop("queue", None)
        if _equal_amounts(group.min_resources, desired["minResources"]):  # Volcano rewrites quantities
            change.pop("minResources", None)
        if "minResources" in change:  # a merge patch retains keys that are not null
            change["minResources"] |= {
                name: None for name in group.min_resources if name not in desired["minResources"]
            }
        if change:
            yield Patch(POD_GROUPS, group.key, group.uid, {"spec": change})


def group_deletes(job: Job, group: GroupView | None) -> Iterator[Write]:
    if group is not None and group.owner_uid == job.uid and not group.terminating:
        yield Delete(POD_GROUPS, group.key, group.uid)


VIEW_FIELDS = {
    "minMember": "min_member",
    "minResources": "min_resources",
    "queue": "queue",
    "priorityClassName": "priority_class",
}


def _equal_amounts(observed: dict[str, Any], desired: dict[str, Any]) -> bool:
    """`1000m` equals 1, and 4 equals "4"."""
    try:
        return amounts(observed) == amounts(desired)
    except ValueError:
        return False


def gang_annotations(job: Job, role: Role) -> dict[str, str]:
    """Volcano's annotations of a gang's pods: the Go operator's, so that its users' tools keep working."""
    assert job.spec
    policy = job.spec.scheduling_policy
    return {
        GROUP_NAME_ANNOTATION: job.key.name,
        "volcano.sh/task-spec": str(role),
        "volcano.sh/job-name": job.key.name,
        "volcano.sh/job-version": str(job.status.attempt),
        "volcano.sh/queue-name": policy.queue if policy else "",
    }
