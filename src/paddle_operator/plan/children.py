"""What the cache stores of pods, ConfigMaps and Services: flat views, since 100,000 pods are cached as these."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from paddle_operator.kube.objects import ContainerStatus, Key, Object, Pod, Waiting
from paddle_operator.kube.writes import Refusal
from paddle_operator.plan.metadata import (
    ATTEMPT_ANNOTATION,
    ENDPOINTS_ANNOTATION,
    JOB_UID_LABEL,
    MAIN_CONTAINER,
    REPLICAS_ANNOTATION,
)
from paddle_operator.plan.pod_group import GroupView

LOST_LOCALLY = "Lost"  # exit reason of a pod that ran when the local cluster ended
NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})


class PodView(msgspec.Struct, frozen=True, gc=False):
    """The fields of a pod that decisions read. Exit code and restarts are those of its main container."""

    namespace: str
    name: str
    uid: str
    version: int
    owner_uid: str
    attempt: int
    nudged_for: str  # the digest of the endpoints for which kubelet was nudged last
    phase: str
    ready: bool
    started: bool  # its main container has run
    terminating: bool
    deadline_seconds: int | None
    created_by_us: bool  # and not by the Go operator
    address: str  # the value of POD_IP: the first address of a dual-stack pod
    node: str
    node_address: str
    waiting: str
    waiting_message: str
    unschedulable: str
    restarts: int
    exit_code: int | None
    exit_reason: str
    exit_message: str  # of a container that could not be started: the runtime's message
    failed_container: str  # set if it is not the main container
    finished_at: datetime | None
    disrupted: bool  # by preemption, eviction, a drain or the loss of its node
    terminates_by: datetime | None  # when kubelet must have killed it; None unless it is being deleted

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def only_sidecars_failed(self) -> bool:
        """The main container succeeded, and the pod was not disrupted."""
        return self.phase == "Failed" and self.exit_code == 0 and self.exit_reason in ("", "Completed")


def pod_view(pod: Pod) -> PodView:
    meta, status = pod.metadata, pod.status
    main = _main_container(pod)
    succeeded = main and main.state.terminated and main.state.terminated.exit_code == 0
    reported = (_failed_container(pod, main) or main) if status.phase == "Failed" and not succeeded else main
    disruption = _disruption_reason(pod)
    ended = reported.state.terminated if reported else None
    waiting = _waiting(status.init_container_statuses) or _waiting(status.container_statuses)
    return PodView(
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        version=pod.version,
        owner_uid=sys.intern(meta.owner_uid),
        attempt=_parse_int(meta.annotations.get(ATTEMPT_ANNOTATION)),
        nudged_for=sys.intern(meta.annotations.get(ENDPOINTS_ANNOTATION, "")),
        phase=sys.intern(status.phase),
        ready=_all_ready(status.container_statuses),
        started=main is not None and _has_run(main),
        terminating=meta.deletion_timestamp is not None,
        deadline_seconds=pod.spec.active_deadline_seconds,
        created_by_us=JOB_UID_LABEL in meta.labels,
        address=status.pod_ip,
        node=sys.intern(pod.spec.node_name),
        node_address=sys.intern(status.host_ip),
        waiting=sys.intern(waiting.reason) if waiting else "",
        waiting_message=sys.intern(waiting.message) if waiting else "",  # all pods of a job have the same message
        unschedulable=sys.intern(_unschedulable(pod)),
        restarts=main.restart_count if main else 0,
        exit_code=ended.exit_code if ended else None,
        exit_reason=sys.intern(status.reason or disruption or (ended.reason if ended else "")),
        exit_message=ended.message if ended and ended.reason in NEVER_STARTED else "",
        failed_container=sys.intern(reported.name) if reported and reported is not main else "",
        finished_at=ended.finished_at if ended else None,
        disrupted=bool(disruption) or status.reason == LOST_LOCALLY,
        terminates_by=meta.deletion_timestamp,
    )


def terminating_pod_view(pod: Pod, cached: PodView | None, now: datetime) -> PodView:
    """The view of a pod that is being deleted.

    `terminates_by` counts from when our clock first saw the deletion: a clock ahead of the API server's would
    otherwise force-delete a pod within its grace period.
    """
    view = pod_view(pod)
    assert view.terminates_by
    if not pod.metadata.deletion_grace_period_seconds:  # a finalizer holds it, no kubelet
        return msgspec.structs.replace(view, terminates_by=None)
    terminates_by = max(view.terminates_by, now + timedelta(seconds=pod.metadata.deletion_grace_period_seconds))
    if cached and cached.uid == view.uid and cached.terminates_by:
        terminates_by = min(terminates_by, cached.terminates_by)
    return msgspec.structs.replace(view, terminates_by=terminates_by)


def _main_container(pod: Pod) -> ContainerStatus | None:
    """Loops instead of generators, here and below, save a fifth of a pod's view; a cold sync builds 10,000."""
    main = pod.spec.containers[0].name if pod.spec.containers else ""
    for each in pod.spec.containers:
        if each.name == MAIN_CONTAINER:
            main = MAIN_CONTAINER
    for status in pod.status.container_statuses:
        if status.name == main:
            return status
    return None


def _failed_container(pod: Pod, main: ContainerStatus | None) -> ContainerStatus | None:
    """The main container if it failed, else a sidecar or an init container that did."""
    statuses = [*([main] if main else []), *pod.status.container_statuses, *pod.status.init_container_statuses]
    return next((each for each in statuses if each.state.terminated and each.state.terminated.exit_code), None)


def _disruption_reason(pod: Pod) -> str:
    """The condition names the cause; the container shows only that it was terminated."""
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


def _parse_int(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0


class ChildView(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap or a Service of a job."""

    namespace: str
    name: str
    uid: str
    version: int
    owner_uid: str
    attempt: int
    replicas: str  # by role, when it was written; empty if by the Go operator
    endpoints_digest: str  # of the addresses that it holds; empty if by the Go operator
    created_by_us: bool  # and not by the Go operator
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
        attempt=_parse_int(meta.annotations.get(ATTEMPT_ANNOTATION)),
        replicas=meta.annotations.get(REPLICAS_ANNOTATION, ""),
        endpoints_digest=meta.annotations.get(ENDPOINTS_ANNOTATION, ""),
        created_by_us=ATTEMPT_ANNOTATION in meta.annotations,
        terminating=meta.deletion_timestamp is not None,
    )


@dataclass(frozen=True)
class Children:
    """The objects of one job, found by owner UID and never by name, and what the API server refused."""

    pods: tuple[PodView, ...] = ()
    config_maps: tuple[ChildView, ...] = ()
    services: tuple[ChildView, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    group: GroupView | None = None  # the PodGroup of the job's name, also if a user created it

    def in_namespace(self, namespace: str) -> "Children":
        """Without objects of other namespaces, which cannot be owned by the job, whatever UID they name."""
        objects: tuple[PodView | ChildView, ...] = (*self.pods, *self.config_maps, *self.services)
        if all(each.namespace == namespace for each in objects):
            return self
        return Children(
            tuple(each for each in self.pods if each.namespace == namespace),
            tuple(each for each in self.config_maps if each.namespace == namespace),
            tuple(each for each in self.services if each.namespace == namespace),
            self.refusals,
            self.group,
        )
