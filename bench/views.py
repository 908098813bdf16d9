"""A pod as an operator's cache keeps it: read as a tree, kept as one flat object whose repeated strings are shared.

100,000 pods take a quarter of the memory of the tree (python-stack.md 2d). The operator's own view will replace this.
"""

from datetime import datetime
from sys import intern

import msgspec

from bench.pods import ATTEMPT, INDEX, ROLE
from paddle_operator.kube.objects import Key, Object, OwnerReference, PodSpec, Resource, View


class Terminated(View, frozen=True):
    exit_code: int = 0


class State(View, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(View, frozen=True):
    ready: bool = False
    restart_count: int = 0
    state: State = State()


class Status(View, frozen=True):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    reason: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()


class Worker(Object, frozen=True):
    """The fields of a pod that somebody reads."""

    spec: PodSpec = PodSpec()
    status: Status = Status()


WORKERS = Resource("api/v1", "pods", Worker)


class PodView(msgspec.Struct, frozen=True, gc=False):
    key: Key
    uid: str
    version: int
    owner_uid: str
    job: str
    role: str
    index: int
    attempt: int
    phase: str
    reason: str
    node: str
    ip: str
    ready: bool
    restarts: int
    exit_code: int | None
    created_at: datetime | None
    deleted_at: datetime | None

    @property
    def job_key(self) -> Key:
        return Key(self.key.namespace, self.job)


NO_OWNER = OwnerReference("", "", "")


def view_of(pod: Worker) -> PodView:
    metadata, status = pod.metadata, pod.status
    labels = metadata.labels
    owner = next((owner for owner in metadata.owner_references if owner.controller), NO_OWNER)
    containers = status.container_statuses
    codes = [each.state.terminated.exit_code for each in containers if each.state.terminated]
    return PodView(
        Key(intern(metadata.namespace), metadata.name),
        metadata.uid,
        int(metadata.resource_version),
        intern(owner.uid),
        intern(owner.name),
        intern(labels.get(ROLE, "")),
        int(labels.get(INDEX, -1)),
        int(labels.get(ATTEMPT, 0)),
        intern(status.phase),
        intern(status.reason),
        intern(pod.spec.node_name),
        status.pod_ip,
        bool(containers) and False not in [each.ready for each in containers],
        sum([each.restart_count for each in containers]),
        max(codes, default=None),
        metadata.creation_timestamp,
        metadata.deletion_timestamp,
    )
