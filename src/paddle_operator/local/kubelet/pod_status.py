"""Computes a pod's status as kubelet 1.36 writes it: phase and conditions by kubelet's own rules. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from paddle_operator.kube.objects import Manifest
from paddle_operator.local.kubelet.pod import (
    LocalContainerStatus,
    LocalPod,
    LocalPodCondition,
    RunningState,
    TerminatedState,
    WaitingState,
)

SIGKILL_EXIT_CODE = 137  # 128 + SIGKILL

CONTAINER_CREATING = "ContainerCreating"
POD_INITIALIZING = "PodInitializing"
CONFIG_ERROR = "CreateContainerConfigError"
CREATE_ERROR = "CreateContainerError"
CRASH_LOOP = "CrashLoopBackOff"

EPOCH = "1970-01-01T00:00:00Z"  # kubelet's startedAt of a container that could not be started

AnyContainerState = WaitingState | RunningState | TerminatedState


@dataclass
class ContainerView:
    """What a pod's status reports of one of its containers."""

    name: str
    image: str
    state: AnyContainerState
    is_init: bool = False
    is_sidecar: bool = False
    last_termination: TerminatedState | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    image_id: str = ""
    container_id: str = ""
    finished: bool = False  # terminated, and nothing will start it again

    @property
    def succeeded(self) -> bool:
        return isinstance(self.state, TerminatedState) and self.state.exit_code == 0

    @property
    def initialized(self) -> bool:
        """Whether the next init container may start; a sidecar only has to be started."""
        return self.started if self.is_sidecar else self.succeeded

    @property
    def has_run(self) -> bool:
        """Waiting after a first termination is a crash loop, which counts as running."""
        never_started = isinstance(self.state, TerminatedState) and self.state.started_at is None
        return self.last_termination is not None or not (isinstance(self.state, WaitingState) or never_started)

    def mark_unknown(self, finished_at: datetime | None = None) -> None:
        """Report a waiting container of a pod that ends: its last termination, else that it could not be located."""
        if self.last_termination and isinstance(self.state, WaitingState):
            self.state, self.last_termination = self.last_termination, None
        elif not isinstance(self.state, TerminatedState):
            message = "The container could not be located when the pod was terminated"
            self.state = TerminatedState(SIGKILL_EXIT_CODE, "ContainerStatusUnknown", message, None, finished_at)
        self.finished = True


@dataclass(frozen=True)
class TerminationCause:
    """Why the kubelet terminates a pod that was not deleted."""

    reason: str
    message: str
    is_disruption: bool = False


DEADLINE_EXCEEDED = TerminationCause(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)
NODE_SHUTDOWN = TerminationCause("NodeShutdown", "the local cluster was stopped while the pod ran", is_disruption=True)
LOST = TerminationCause("Lost", "the local cluster was stopped while the pod ran, and its processes ended with it")


@dataclass
class StatusInput:
    """Everything that a pod's status is computed from."""

    pod: LocalPod
    host_ip: str
    pod_ip: str
    started_at: datetime
    init_containers: Sequence[ContainerView] = ()
    containers: Sequence[ContainerView] = ()
    sandbox_ready: bool = False  # volumes are mounted and the pod has an address
    finished: bool = False  # nothing runs, and nothing will
    terminating: bool = False
    cause: TerminationCause | None = None

    @property
    def initialized(self) -> bool:
        """Once a main container has run, initialization is complete, whatever sidecars do later."""
        return any(each.has_run for each in self.containers) or all(each.initialized for each in self.init_containers)


def compute_status(status_input: StatusInput, now: datetime) -> Manifest:
    """The whole status; conditions of other owners are copied unchanged."""
    phase = compute_phase(status_input)
    pod = status_input.pod
    status: dict[str, object] = {
        "phase": phase,
        "observedGeneration": pod.metadata.generation,
        "hostIP": status_input.host_ip,
        "hostIPs": [{"ip": status_input.host_ip}],
        "startTime": format_time(status_input.started_at),
        "conditions": compute_conditions(status_input, phase, now),
        "containerStatuses": [container_status(each) for each in status_input.containers],
    }
    if status_input.init_containers:
        status["initContainerStatuses"] = [container_status(each) for each in status_input.init_containers]
    if status_input.pod_ip:
        status |= {"podIP": status_input.pod_ip, "podIPs": [{"ip": status_input.pod_ip}]}
    if status_input.finished and status_input.cause:
        status |= {"reason": status_input.cause.reason, "message": status_input.cause.message}
    return status


def compute_phase(status_input: StatusInput) -> str:
    if status_input.finished:
        succeeded = all(each.succeeded for each in status_input.containers)
        return "Failed" if status_input.cause or not succeeded else "Succeeded"
    if not status_input.initialized or any(not each.has_run for each in status_input.containers):
        return (status_input.pod.status.phase or "Pending") if status_input.terminating else "Pending"
    return "Running"


def compute_conditions(status_input: StatusInput, phase: str, now: datetime) -> list[Manifest]:
    """Kubelet's own conditions and those of others; lastTransitionTime changes only with the condition's status."""
    before = {condition.type: condition for condition in status_input.pod.status.conditions}
    own = list(_kubelet_conditions(status_input, phase))
    scheduled = before.get("PodScheduled")
    if scheduled is None or scheduled.status != "True":  # nodeName was set by another client than a scheduler
        own.append(LocalPodCondition("PodScheduled", "True"))
    if status_input.finished and status_input.cause and status_input.cause.is_disruption:
        own.append(LocalPodCondition("DisruptionTarget", "True", "TerminationByKubelet", status_input.cause.message))
    own_types = {condition.type for condition in own}
    conditions = [*own, *(condition for condition in before.values() if condition.type not in own_types)]
    return [_condition_manifest(each, before.get(each.type), status_input.pod, now) for each in conditions]


def _kubelet_conditions(status_input: StatusInput, phase: str) -> Iterator[LocalPodCondition]:
    sandbox_ready = status_input.sandbox_ready and not status_input.finished
    yield LocalPodCondition("PodReadyToStartContainers", "True" if sandbox_ready else "False")
    if status_input.initialized:
        yield LocalPodCondition("Initialized", "True", "PodCompleted" if phase == "Succeeded" else "")
    else:
        names = " ".join(each.name for each in status_input.init_containers if not each.initialized)
        yield LocalPodCondition(
            "Initialized", "False", "ContainersNotInitialized", f"containers with incomplete status: [{names}]"
        )
    sidecars = [each for each in status_input.init_containers if each.is_sidecar]
    unready = [each.name for each in (*sidecars, *status_input.containers) if not each.ready]
    reason, message = {"Succeeded": ("PodCompleted", ""), "Failed": ("PodFailed", "")}.get(
        phase, ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    )
    for kind in ("Ready", "ContainersReady"):
        yield LocalPodCondition(kind, "False", reason, message) if unready else LocalPodCondition(kind, "True")


def container_status(container: ContainerView) -> Manifest:
    status: dict[str, object] = {
        "name": container.name,
        "image": container.image,
        "imageID": container.image_id,
        "ready": container.succeeded if container.is_init and not container.is_sidecar else container.ready,
        "started": container.started and isinstance(container.state, RunningState),
        "restartCount": container.restarts,
        "state": _state_manifest(container.state),
    }
    if container.container_id:
        status["containerID"] = container.container_id
    if container.last_termination:
        status["lastState"] = _state_manifest(container.last_termination)
    return status


def _state_manifest(state: AnyContainerState) -> Manifest:
    if isinstance(state, WaitingState):
        return {"waiting": {"reason": state.reason} | ({"message": state.message} if state.message else {})}
    if isinstance(state, RunningState):
        return {"running": {"startedAt": format_time(state.started_at)} if state.started_at else {}}
    terminated: dict[str, object] = {"exitCode": state.exit_code, "reason": state.reason}
    if state.message:
        terminated["message"] = state.message
    if state.reason == "StartError":
        terminated["startedAt"] = EPOCH
    elif state.started_at is not None:
        terminated["startedAt"] = format_time(state.started_at)
    if state.finished_at is not None:
        terminated["finishedAt"] = format_time(state.finished_at)
    return {"terminated": terminated}


def format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition_manifest(
    condition: LocalPodCondition, before: LocalPodCondition | None, pod: LocalPod, now: datetime
) -> Manifest:
    if before is condition:
        return {name: value for name, value in msgspec.to_builtins(condition).items() if value}
    since = before.last_transition_time if before and before.status == condition.status else None
    manifest: dict[str, object] = {"type": condition.type, "status": condition.status}
    if pod.metadata.generation:
        manifest["observedGeneration"] = pod.metadata.generation
    if condition.reason:
        manifest["reason"] = condition.reason
    if condition.message:
        manifest["message"] = condition.message
    manifest["lastTransitionTime"] = format_time(since or now)
    return manifest


def lost_status(pod: LocalPod, now: datetime) -> Manifest:
    """The status of a pod that ran when an earlier cluster ended: containers that had not terminated were killed."""
    status = compute_status(
        StatusInput(
            pod,
            host_ip="",
            pod_ip=pod.status.pod_ip,
            started_at=pod.status.start_time or now,
            init_containers=[_lost_container(each, now, is_init=True) for each in pod.status.init_container_statuses],
            containers=[_lost_container(each, now) for each in pod.status.container_statuses],
            finished=True,
            cause=LOST,
        ),
        now,
    )
    return {name: value for name, value in status.items() if name not in ("hostIP", "hostIPs", "startTime")}


def _lost_container(status: LocalContainerStatus, now: datetime, *, is_init: bool = False) -> ContainerView:
    running = status.state.running
    started_at = running.started_at if running else None
    killed = TerminatedState(SIGKILL_EXIT_CODE, LOST.reason, LOST.message, started_at, now)
    return ContainerView(
        status.name,
        status.image,
        status.state.terminated or killed,
        is_init,
        restarts=status.restart_count,
        image_id=status.image_id,
        container_id=status.container_id,
        finished=True,
    )
