"""Volcano's PodGroup: the manifest that we create, the fields that we read, and what the cache stores."""

from datetime import datetime
from typing import Any

import msgspec

from paddle_operator.api.paddlejob import PaddleJobSpec, RoleSpec, SchedulingPolicy
from paddle_operator.kube.objects import Key, Manifest, Object, Resource, View
from paddle_operator.kube.pod_requests import as_quantities, pod_requests
from paddle_operator.kube.quantities import Amounts, times, total
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.metadata import owner_reference

POD_GROUP_API_VERSION = "scheduling.volcano.sh/v1beta1"


class GroupCondition(View, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class GroupSpec(View, frozen=True):
    min_member: int = 0
    queue: str = ""
    priority_class_name: str = ""
    min_resources: dict[str, Any] = {}  # noqa: RUF012  # msgspec copies it


class GroupStatus(View, frozen=True):
    phase: str = ""
    conditions: tuple[GroupCondition, ...] = ()


class PodGroup(Object, frozen=True):
    spec: GroupSpec = GroupSpec()
    status: GroupStatus = GroupStatus()


POD_GROUPS = Resource(f"apis/{POD_GROUP_API_VERSION}", "podgroups", PodGroup)


class GroupView(msgspec.Struct, frozen=True):
    """A PodGroup; one that a user created has another owner than the job, or none."""

    namespace: str
    name: str
    uid: str
    version: int
    owner_uid: str
    phase: str
    unschedulable_message: str
    min_member: int
    min_resources: dict[str, Any]
    queue: str
    priority_class: str
    terminating: bool
    created_at: datetime | None

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


def group_view(group: PodGroup) -> GroupView:
    meta, spec = group.metadata, group.spec
    messages = [
        each.message for each in group.status.conditions if each.type == "Unschedulable" and each.status == "True"
    ]
    return GroupView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=group.version,
        owner_uid=meta.owner_uid,
        phase=group.status.phase,
        unschedulable_message=messages[0] if messages else "",
        min_member=spec.min_member,
        min_resources=spec.min_resources,
        queue=spec.queue,
        priority_class=spec.priority_class_name,
        terminating=meta.deletion_timestamp is not None,
        created_at=meta.creation_timestamp,
    )


def desired_group_spec(spec: PaddleJobSpec) -> dict[str, Any]:
    """The PodGroup's spec: schedulingPolicy, or what all pods of the job need."""
    policy = spec.scheduling_policy or SchedulingPolicy()
    members = policy.min_available or _min_members(spec)
    return {
        "minMember": members,
        "minResources": dict(policy.min_resources) or _min_resources(spec, members),
        "queue": policy.queue,
        "priorityClassName": policy.priority_class,
    }


def _min_members(spec: PaddleJobSpec) -> int:
    """How many pods the job needs to train: an elastic job fewer than all."""
    return (spec.worker.requests or spec.worker.replicas) if spec.is_elastic and spec.worker else spec.total


def _min_resources(spec: PaddleJobSpec, members: int) -> dict[str, str]:
    """The requests of the first `members` pods, in the order of creation."""
    requests: list[Amounts] = []
    for part in spec.roles.values():
        number = min(members, part.replicas)
        members -= number
        requests.append(times(number, _parsed_requests(part)))
    return as_quantities(total(requests))


def _parsed_requests(part: RoleSpec) -> Amounts:
    """Empty for an invalid quantity: creating the pods then reports the error."""
    try:
        return pod_requests(part.template["spec"])
    except ValueError:
        return {}


def group_manifest(job: Job, spec: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": POD_GROUP_API_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": job.key.name, "namespace": job.key.namespace, "ownerReferences": [owner_reference(job)]},
        "spec": {name: value for name, value in spec.items() if value},
    }
