"""What there is of a job at one instant: its pods by role and index, its barrier, its Services.

Views are flat and hold only what a decision reads: 100,000 pods are kept as these.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from paddle_operator.api.paddlejob import PaddleJobSpec, PaddleJobStatus, Phase, Role
from paddle_operator.kube.objects import ContainerStatus, Key, Meta, Object, Pod
from paddle_operator.plan.names import ATTEMPT, CONTRACT, JOB_UID_LABEL, REPLICAS, ROLE_ANNOTATION, ROLE_LABEL, pod_key

MAIN_CONTAINER = "paddle"


class Job(msgspec.Struct, frozen=True):
    """A PaddleJob; `spec` is None where what is stored breaks the rules, and `problems` says how."""

    metadata: Meta
    spec: PaddleJobSpec | None
    status: PaddleJobStatus
    problems: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return self.metadata.key

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def version(self) -> int:
        return int(self.metadata.resource_version)

    @property
    def finished(self) -> bool:
        return self.status.phase in (Phase.COMPLETED, Phase.FAILED)


class PodView(msgspec.Struct, frozen=True, gc=False):
    """A pod, as far as a decision needs it. The container named `paddle`, else the first, speaks for the pod."""

    namespace: str
    name: str
    uid: str
    version: int
    owner_uid: str
    role: str
    attempt: int
    woken_for: str  # the contract for which it was last woken
    phase: str
    ready: bool
    started: bool  # a container of it has run
    terminating: bool
    deadline_seconds: int | None
    ours: bool  # made by us, and not by the Go operator
    addresses: tuple[str, ...]
    node: str
    node_address: str
    waiting: str
    waiting_message: str
    unschedulable: str
    restarts: int
    exit_code: int | None
    exit_reason: str
    finished_at: datetime | None
    disruption: str

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def pod_view(pod: Pod) -> PodView:
    meta, status = pod.metadata, pod.status
    main = _main_container(pod)
    ended = main.state.terminated if main else None
    waiting = _waiting(status.init_container_statuses) or _waiting(status.container_statuses)
    scheduled = next((each for each in status.conditions if each.type == "PodScheduled"), None)
    disrupted = next((each for each in status.conditions if each.type == "DisruptionTarget"), None)
    return PodView(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        version=pod.version,
        owner_uid=sys.intern(meta.owner_uid),
        role=sys.intern(meta.labels.get(ROLE_LABEL) or meta.annotations.get(ROLE_ANNOTATION, "")),
        attempt=_number(meta.annotations.get(ATTEMPT)),
        woken_for=sys.intern(meta.annotations.get(CONTRACT, "")),
        phase=sys.intern(status.phase),
        ready=bool(status.container_statuses) and all(each.ready for each in status.container_statuses),
        started=any(_has_run(each) for each in status.container_statuses),
        terminating=meta.deletion_timestamp is not None,
        deadline_seconds=pod.spec.active_deadline_seconds,
        ours=JOB_UID_LABEL in meta.labels,
        addresses=tuple(each.ip for each in status.pod_ips) or ((status.pod_ip,) if status.pod_ip else ()),
        node=sys.intern(pod.spec.node_name),
        node_address=sys.intern(status.host_ip),
        waiting=sys.intern(waiting.reason) if waiting else "",
        waiting_message=waiting.message if waiting else "",
        unschedulable=scheduled.message if scheduled and scheduled.reason == "Unschedulable" else "",
        restarts=main.restart_count if main else 0,
        exit_code=ended.exit_code if ended else None,
        exit_reason=sys.intern(ended.reason if ended else status.reason),
        finished_at=ended.finished_at if ended else None,
        disruption=disrupted.reason if disrupted else status.reason if status.reason == "Evicted" else "",
    )


def _main_container(pod: Pod) -> ContainerStatus | None:
    names = [each.name for each in pod.spec.containers]
    main = MAIN_CONTAINER if MAIN_CONTAINER in names else next(iter(names), "")
    return next((each for each in pod.status.container_statuses if each.name == main), None)


def _waiting(statuses: Iterable[ContainerStatus]) -> Any:
    return next((each.state.waiting for each in statuses if each.state.waiting), None)


def _has_run(container: ContainerStatus) -> bool:
    state = container.state
    return state.running is not None or state.terminated is not None or container.restart_count > 0


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


class ChildView(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap or Service of ours."""

    namespace: str
    name: str
    uid: str
    version: int
    owner_uid: str
    attempt: int
    replicas: str  # for how many pods by role it was written; empty where the Go operator wrote it
    contract: str  # the digest of its content; empty where the Go operator wrote it
    ours: bool  # made by us, and not by the Go operator
    terminating: bool

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


def child_view(child: Object) -> ChildView:
    meta = child.metadata
    return ChildView(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        version=child.version,
        owner_uid=sys.intern(meta.owner_uid),
        attempt=_number(meta.annotations.get(ATTEMPT)),
        replicas=meta.annotations.get(REPLICAS, ""),
        contract=meta.annotations.get(CONTRACT, ""),
        ours=ATTEMPT in meta.annotations,
        terminating=meta.deletion_timestamp is not None,
    )


class Refusal(msgspec.Struct, frozen=True):
    """The server's answer to an attempt to write a child; there is no other attempt before `retry_at`."""

    kind: str
    key: Key
    reason: str
    message: str
    retry_at: datetime


@dataclass(frozen=True)
class Children:
    """Everything that is known of one job's objects; owned by its UID, never found by name."""

    pods: tuple[PodView, ...] = ()
    config_maps: tuple[ChildView, ...] = ()
    services: tuple[ChildView, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class World:
    """The pods of the present attempt by role and index; `leftovers` are of an earlier one or of nobody's place."""

    def __init__(self, job: Job, spec: PaddleJobSpec, children: Children) -> None:
        self.job = job
        self.spec = spec
        self.children = children
        self.barrier = next((each for each in children.config_maps if each.name == job.key.name), None)
        places = {
            pod_key(job.key, role, index): (role, index)
            for role, wanted in spec.roles.items()
            for index in range(wanted.replicas)
        }
        self.by_place: dict[tuple[Role, int], PodView] = {}
        self.leftovers: list[PodView] = []
        for pod in children.pods:
            place = places.get(pod.key)
            if place is None or pod.attempt != job.status.attempt or self._is_lost(pod):
                self.leftovers.append(pod)
            else:
                self.by_place[place] = pod
        self.missing = [place for place in places.values() if place not in self.by_place]

    def _is_lost(self, pod: PodView) -> bool:
        """A pod that somebody deletes is lost, whatever code it ends with, unless it has done its part. One that the Go
        operator made and never released waits for Services that we do not make: it is made again.
        """
        return (pod.terminating and pod.phase != "Succeeded") or (not pod.ours and self.barrier is None)

    def pods(self, role: Role | None = None) -> Iterator[PodView]:
        """In the order of roles and indexes."""
        for place, pod in sorted(self.by_place.items(), key=_place_order):
            if role is None or place[0] is role:
                yield pod

    @property
    def deciders(self) -> list[PodView]:
        """Whose success is the job's: the workers, or everybody where there is no worker."""
        return list(self.pods(Role.WORKER) if self.spec.worker else self.pods())

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def released(self) -> bool:
        """The barrier is open: containers may have started with the addresses that it holds."""
        return self.barrier is not None and self.barrier.attempt == self.job.status.attempt


_ROLE_ORDER: Mapping[Role, int] = {role: number for number, role in enumerate(Role)}


def _place_order(item: tuple[tuple[Role, int], PodView]) -> tuple[int, int]:
    (role, index), _ = item
    return _ROLE_ORDER[role], index
