"""How a pod's life is told: its status as kubelet 1.36 writes it, phase and conditions by kubelet's own rules. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from paddle_operator.kube.objects import Manifest
from paddle_operator.local.kubelet.pod import Condition, ContainerStatus, LocalPod
from paddle_operator.local.kubelet.states import (
    KILLED,
    LOST,
    ContainerView,
    Ending,
    Running,
    State,
    Terminated,
    Waiting,
)

NEVER_STARTED = "1970-01-01T00:00:00Z"  # what kubelet writes for a container that could not be started


@dataclass
class StatusInput:
    """All that a status is made of."""

    pod: LocalPod
    node_address: str
    address: str
    started_at: datetime
    initial: Sequence[ContainerView] = ()
    containers: Sequence[ContainerView] = ()
    sandboxed: bool = False  # volumes are there and the pod has an address
    over: bool = False  # nothing runs, and nothing will
    told_to_end: bool = False
    ending: Ending | None = None

    @property
    def initialized(self) -> bool:
        return all(each.initialized for each in self._ahead())

    def _ahead(self) -> list[ContainerView]:
        """Once the containers proper have run, init containers are behind us, whatever sidecars do since."""
        return [] if any(each.has_run for each in self.containers) else [*self.initial]


def status_of(account: StatusInput, now: datetime) -> Manifest:
    """The whole status; conditions that others wrote are in it as they were."""
    phase = phase_of(account)
    pod = account.pod
    status: dict[str, object] = {
        "phase": phase,
        "observedGeneration": pod.metadata.generation,
        "hostIP": account.node_address,
        "hostIPs": [{"ip": account.node_address}],
        "startTime": instant(account.started_at),
        "conditions": conditions_of(account, phase, now),
        "containerStatuses": [container_status(each) for each in account.containers],
    }
    if account.initial:
        status["initContainerStatuses"] = [container_status(each) for each in account.initial]
    if account.address:
        status |= {"podIP": account.address, "podIPs": [{"ip": account.address}]}
    if account.over and account.ending:
        status |= {"reason": account.ending.reason, "message": account.ending.message}
    return status


def phase_of(account: StatusInput) -> str:
    if account.over:
        succeeded = all(each.succeeded for each in account.containers)
        return "Failed" if account.ending or not succeeded else "Succeeded"
    if not account.initialized or any(not each.has_run for each in account.containers):
        return (account.pod.status.phase or "Pending") if account.told_to_end else "Pending"
    return "Running"


def conditions_of(account: StatusInput, phase: str, now: datetime) -> list[Manifest]:
    """Kubelet's own and those of others; a condition's time changes with its status only."""
    before = {condition.type: condition for condition in account.pod.status.conditions}
    made = list(_conditions(account, phase))
    scheduled = before.get("PodScheduled")
    if scheduled is None or scheduled.status != "True":  # somebody else than a scheduler has set the node's name
        made.append(Condition("PodScheduled", "True"))
    if account.over and account.ending and account.ending.disruption:
        made.append(Condition("DisruptionTarget", "True", "TerminationByKubelet", account.ending.message))
    told = {condition.type for condition in made}
    conditions = [*made, *(condition for condition in before.values() if condition.type not in told)]
    return [_manifest(each, before.get(each.type), account.pod, now) for each in conditions]


def _conditions(account: StatusInput, phase: str) -> Iterator[Condition]:
    yield Condition("PodReadyToStartContainers", "True" if account.sandboxed and not account.over else "False")
    if account.initialized:
        yield Condition("Initialized", "True", "PodCompleted" if phase == "Succeeded" else "")
    else:
        names = " ".join(each.name for each in account.initial if not each.initialized)
        yield Condition(
            "Initialized", "False", "ContainersNotInitialized", f"containers with incomplete status: [{names}]"
        )
    sidecars = [each for each in account.initial if each.sidecar]
    unready = [each.name for each in (*sidecars, *account.containers) if not each.ready]
    reason, message = {"Succeeded": ("PodCompleted", ""), "Failed": ("PodFailed", "")}.get(
        phase, ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    )
    for kind in ("Ready", "ContainersReady"):
        yield Condition(kind, "False", reason, message) if unready else Condition(kind, "True")


def container_status(container: ContainerView) -> Manifest:
    status: dict[str, object] = {
        "name": container.name,
        "image": container.image,
        "imageID": container.image_id,
        "ready": container.succeeded if container.initial and not container.sidecar else container.ready,
        "started": container.started and isinstance(container.state, Running),
        "restartCount": container.restarts,
        "state": state_of(container.state),
    }
    if container.container_id:
        status["containerID"] = container.container_id
    if container.last:
        status["lastState"] = state_of(container.last)
    return status


def state_of(state: State) -> Manifest:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason} | ({"message": state.message} if state.message else {})}
    if isinstance(state, Running):
        return {"running": {"startedAt": instant(state.started_at)}}
    end: dict[str, object] = {"exitCode": state.code, "reason": state.reason}
    if state.message:
        end["message"] = state.message
    if state.reason == "StartError":
        end["startedAt"] = NEVER_STARTED
    elif state.started_at is not None:
        end["startedAt"] = instant(state.started_at)
    if state.finished_at is not None:
        end["finishedAt"] = instant(state.finished_at)
    return {"terminated": end}


def instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _manifest(condition: Condition, before: Condition | None, pod: LocalPod, now: datetime) -> Manifest:
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
    manifest["lastTransitionTime"] = instant(since or now)
    return manifest


def lost_status(pod: LocalPod, now: datetime) -> Manifest:
    """What is said of a pod that ran when an earlier cluster ended: whatever had not ended by itself was killed."""
    account = StatusInput(pod, "", pod.status.pod_ip, pod.status.start_time or now, over=True, ending=LOST)
    account.initial = [_lost(each, now, initial=True) for each in pod.status.init_container_statuses]
    account.containers = [_lost(each, now) for each in pod.status.container_statuses]
    status = status_of(account, now)
    return {name: value for name, value in status.items() if name not in ("hostIP", "hostIPs", "startTime")}


def _lost(told: ContainerStatus, now: datetime, *, initial: bool = False) -> ContainerView:
    ended, running = told.state.terminated, told.state.running
    if ended:
        state = Terminated(ended.exit_code, ended.reason, ended.message, ended.started_at, ended.finished_at)
    else:
        started_at = running.started_at if running else None
        state = Terminated(KILLED, LOST.reason, LOST.message, started_at, now)
    return ContainerView(
        told.name,
        told.image,
        state,
        initial,
        restarts=told.restart_count,
        image_id=told.image_id,
        container_id=told.container_id,
        finished=True,
    )
