"""Volcano's PodGroup: the fields that are read, and what the cache stores of each."""

from datetime import datetime
from typing import Any

import msgspec

from paddle_operator.kube.objects import Key, Object, Resource, View

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
