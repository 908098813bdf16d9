"""What is kept of each object: flat views with only what a decision reads, since 100,000 pods are kept as these."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from paddle_operator.api.paddlejob import MANAGER, PaddleJobSpec, PaddleJobStatus, Phase
from paddle_operator.kube.objects import ContainerStatus, Key, Meta, Object, Pod, Waiting
from paddle_operator.kube.writes import Plan, Refusal
from paddle_operator.plan.metadata import (
    ATTEMPT_ANNOTATION,
    ENDPOINTS_ANNOTATION,
    JOB_UID_LABEL,
    MAIN_CONTAINER,
    REPLICAS_ANNOTATION,
)
from paddle_operator.plan.pod_group import GroupView

LOST_LOCALLY = "Lost"  # the local cluster ended while the pod ran
NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})


JobPlan = Plan[PaddleJobStatus]


class Job(msgspec.Struct, frozen=True):
    """A PaddleJob; `spec` is None where what is stored breaks the rules, and `problems` says how."""

    metadata: Meta
    spec: PaddleJobSpec | None
    status: PaddleJobStatus
    problems: tuple[str, ...] = ()
    managed_by: str = ""  # where there is no spec to ask: another's job is another's, also if it breaks our rules

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
    def is_ours(self) -> bool:
        """To look after; where not even the manager can be read, it is ours to say so."""
        return (self.spec.managed_by if self.spec else self.managed_by) in ("", MANAGER)

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
    attempt: int
    nudged_for: str  # the contract for which it was last woken
    phase: str
    ready: bool
    started: bool  # its main container has run
    terminating: bool
    deadline_seconds: int | None
    ours: bool  # made by us, and not by the Go operator
    address: str  # what POD_IP would be: the first one, where the cluster gives two
    node: str
    node_address: str
    waiting: str
    waiting_message: str
    unschedulable: str
    restarts: int
    exit_code: int | None
    exit_reason: str
    exit_message: str  # of a container that could not be started: the engine's own words
    failed_container: str  # where it is not the main container that failed
    finished_at: datetime | None
    disrupted: bool  # taken away by preemption, eviction, a drain or the loss of its node
    terminates_by: datetime | None  # when kubelet has killed it at the latest, where somebody deletes it

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def only_sidecars_failed(self) -> bool:
        """The container that trains has done its part, and nobody took the pod away."""
        return self.phase == "Failed" and self.exit_code == 0 and self.exit_reason in ("", "Completed")


def pod_view(pod: Pod) -> PodView:
    meta, status = pod.metadata, pod.status
    main = _main_container(pod)
    done = main and main.state.terminated and main.state.terminated.exit_code == 0
    speaker = (_failed_container(pod, main) or main) if status.phase == "Failed" and not done else main
    taken = _taken_by(pod)
    ended = speaker.state.terminated if speaker else None
    waiting = _waiting(status.init_container_statuses) or _waiting(status.container_statuses)
    return PodView(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        version=pod.version,
        owner_uid=sys.intern(meta.owner_uid),
        attempt=_number(meta.annotations.get(ATTEMPT_ANNOTATION)),
        nudged_for=sys.intern(meta.annotations.get(ENDPOINTS_ANNOTATION, "")),
        phase=sys.intern(status.phase),
        ready=_all_ready(status.container_statuses),
        started=main is not None and _has_run(main),
        terminating=meta.deletion_timestamp is not None,
        deadline_seconds=pod.spec.active_deadline_seconds,
        ours=JOB_UID_LABEL in meta.labels,
        address=status.pod_ip,
        node=sys.intern(pod.spec.node_name),
        node_address=sys.intern(status.host_ip),
        waiting=sys.intern(waiting.reason) if waiting else "",
        waiting_message=sys.intern(waiting.message) if waiting else "",  # all pods of a job say the same
        unschedulable=sys.intern(_unschedulable(pod)),
        restarts=main.restart_count if main else 0,
        exit_code=ended.exit_code if ended else None,
        exit_reason=sys.intern(status.reason or taken or (ended.reason if ended else "")),
        exit_message=ended.message if ended and ended.reason in NEVER_STARTED else "",
        failed_container=sys.intern(speaker.name) if speaker and speaker is not main else "",
        finished_at=ended.finished_at if ended else None,
        disrupted=bool(taken) or status.reason == LOST_LOCALLY,
        terminates_by=meta.deletion_timestamp,
    )


def terminating_pod_view(pod: Pod, known: PodView | None, now: datetime) -> PodView:
    """Of a pod that somebody deletes. When it has left at the latest is told by our own clock, from when we first knew
    of it: were that clock ahead of the API server's, a pod would be given up while it still ends in peace.
    """
    view = pod_view(pod)
    assert view.terminates_by
    if not pod.metadata.deletion_grace_period_seconds:  # no kubelet is waited for: somebody's finalizer holds it
        return msgspec.structs.replace(view, terminates_by=None)
    terminates_by = max(view.terminates_by, now + timedelta(seconds=pod.metadata.deletion_grace_period_seconds))
    if known and known.uid == view.uid and known.terminates_by:
        terminates_by = min(terminates_by, known.terminates_by)
    return msgspec.structs.replace(view, terminates_by=terminates_by)


def _main_container(pod: Pod) -> ContainerStatus | None:
    """A loop and no generator, here and below: of a pod's view, asked 10,000 times in a cold sync, it is a fifth."""
    main = pod.spec.containers[0].name if pod.spec.containers else ""
    for each in pod.spec.containers:
        if each.name == MAIN_CONTAINER:
            main = MAIN_CONTAINER
    for status in pod.status.container_statuses:
        if status.name == main:
            return status
    return None


def _failed_container(pod: Pod, main: ContainerStatus | None) -> ContainerStatus | None:
    """The main one, if it has failed; else another that has: a sidecar, or an init container before them all."""
    every = [*([main] if main else []), *pod.status.container_statuses, *pod.status.init_container_statuses]
    return next((each for each in every if each.state.terminated and each.state.terminated.exit_code), None)


def _taken_by(pod: Pod) -> str:
    """Whoever took the pod away knows better than the container, which knows only that it was told to stop."""
    for each in pod.status.conditions:
        if each.type == "DisruptionTarget" and each.status == "True":
            return each.reason
    return ""


def _unschedulable(pod: Pod) -> str:
    for each in pod.status.conditions:
        if each.type == "PodScheduled" and each.reason == "Unschedulable":
            return each.message
    return ""


def _waiting(statuses: Iterable[ContainerStatus]) -> Waiting | None:
    for each in statuses:
        if each.state.waiting:
            return each.state.waiting
    return None


def _all_ready(statuses: Iterable[ContainerStatus]) -> bool:
    ready = False
    for each in statuses:
        ready = each.ready
        if not ready:
            return False
    return ready


def _has_run(container: ContainerStatus) -> bool:
    state = container.state
    return state.running is not None or state.terminated is not None or container.restart_count > 0


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0


class ChildView(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap or Service of ours."""

    namespace: str
    name: str
    uid: str
    version: int
    owner_uid: str
    attempt: int
    replicas: str  # for how many pods by role it was written; empty where the Go operator wrote it
    contract: str  # the digest of the endpoints that it holds; empty where the Go operator wrote it
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
        attempt=_number(meta.annotations.get(ATTEMPT_ANNOTATION)),
        replicas=meta.annotations.get(REPLICAS_ANNOTATION, ""),
        contract=meta.annotations.get(ENDPOINTS_ANNOTATION, ""),
        ours=ATTEMPT_ANNOTATION in meta.annotations,
        terminating=meta.deletion_timestamp is not None,
    )


@dataclass(frozen=True)
class Children:
    """Everything that is known of one job's objects; owned by its UID, never found by name."""

    pods: tuple[PodView, ...] = ()
    config_maps: tuple[ChildView, ...] = ()
    services: tuple[ChildView, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    group: GroupView | None = None  # the PodGroup of the job's name, whoever made it

    def within(self, namespace: str) -> "Children":
        """Without objects of other namespaces: an owner cannot have any there, whatever UID they name."""
        every: tuple[PodView | ChildView, ...] = (*self.pods, *self.config_maps, *self.services)
        if all(each.namespace == namespace for each in every):
            return self
        return Children(
            tuple(each for each in self.pods if each.namespace == namespace),
            tuple(each for each in self.config_maps if each.namespace == namespace),
            tuple(each for each in self.services if each.namespace == namespace),
            self.refusals,
            self.group,
        )
