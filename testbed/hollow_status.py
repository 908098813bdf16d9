"""How a pod's life is told: its status as kubelet 1.36 writes it, phase and conditions by kubelet's own rules."""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from paddle_operator.kube.objects import Manifest
from testbed.hollow_container import Container, Running, State, Terminated, Waiting
from testbed.hollow_life import Life
from testbed.hollow_pod import Condition

OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


def status_of(life: Life, now: float) -> Manifest:
    """The whole status; conditions that others wrote are in it as they were."""
    phase = phase_of(life)
    stop = life.stop if life.over else None
    status: dict[str, object] = {
        "phase": phase,
        "observedGeneration": life.pod.metadata.generation,
        "hostIP": life.node_address,
        "hostIPs": [{"ip": life.node_address}],
        "startTime": instant(life.started_at),
        "conditions": conditions_of(life, phase, now),
        "containerStatuses": [container_status(container, life.pod.uid) for container in life.containers],
    }
    if life.initial:
        status["initContainerStatuses"] = [container_status(container, life.pod.uid) for container in life.initial]
    if life.address:
        status |= {"podIP": life.address, "podIPs": [{"ip": life.address}]}
    if stop and stop.reason:
        status |= {"reason": stop.reason, "message": stop.message}
    return status


def phase_of(life: Life) -> str:
    if life.over:
        ended = bool(life.stop and life.stop.reason)
        return "Failed" if ended or not all(container.succeeded for container in life.containers) else "Succeeded"
    if not life.initialized or any(_never_ran(container) for container in life.containers):
        return life.pod.status.phase or "Pending" if life.stop else "Pending"
    return "Running"


def conditions_of(life: Life, phase: str, now: float) -> list[Manifest]:
    """Kubelet's four and those of others; a condition's time changes with its status only."""
    before = {condition.type: condition for condition in life.pod.status.conditions}
    made = list(_conditions(life, phase))
    if "PodScheduled" not in before:  # somebody else than the scheduler has set the node's name
        made.append(Condition("PodScheduled", "True"))
    if life.over and life.stop and life.stop.disruption:
        made.append(Condition("DisruptionTarget", "True", "TerminationByKubelet", life.stop.message))
    told = {condition.type: condition for condition in made}
    conditions = [*made, *(condition for condition in before.values() if condition.type not in told)]
    return [_manifest(condition, before.get(condition.type), life, now) for condition in conditions]


def _conditions(life: Life, phase: str) -> Iterator[Condition]:
    sandbox = bool(life.sandbox and not life.over)
    yield Condition("PodReadyToStartContainers", _truth(sandbox))
    if life.initialized:
        yield Condition("Initialized", "True", "PodCompleted" if phase == "Succeeded" else "")
    else:
        names = " ".join(container.spec.name for container in life.initial if not container.succeeded)
        yield Condition(
            "Initialized", "False", "ContainersNotInitialized", f"containers with incomplete status: [{names}]"
        )
    unready = [container.spec.name for container in life.containers if not container.ready]
    reason, message = {"Succeeded": ("PodCompleted", ""), "Failed": ("PodFailed", "")}.get(
        phase, ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    )
    for kind in ("Ready", "ContainersReady"):
        yield Condition(kind, "False", reason, message) if unready else Condition(kind, "True")


def container_status(container: Container, uid: str) -> Manifest:
    """No process stands behind the container's id; it only has to differ from every other."""
    status: dict[str, object] = {
        "name": container.spec.name,
        "image": container.spec.image,
        "imageID": "",
        "ready": container.succeeded if container.initial else container.ready,
        "started": isinstance(container.state, Running),
        "restartCount": container.restarts,
        "state": state_of(container.state),
    }
    if not _never_ran(container):
        status["containerID"] = f"hollow://{uid}/{container.spec.name}/{container.restarts}"
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
    if state.started_at is not None:
        end["startedAt"] = instant(state.started_at)
    if state.finished_at is not None:
        end["finishedAt"] = instant(state.finished_at)
    return {"terminated": end}


def instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _never_ran(container: Container) -> bool:
    """Waiting after a first end is a crash loop, and such a pod counts as running."""
    state = container.state
    lost = isinstance(state, Terminated) and state.started_at is None
    return container.last is None and (isinstance(state, Waiting) or lost)


def _truth(claim: bool) -> str:
    return "True" if claim else "False"


def _manifest(condition: Condition, before: Condition | None, life: Life, now: float) -> Manifest:
    if before is condition:
        return {name: value for name, value in msgspec.to_builtins(condition).items() if value}
    since = before.last_transition_time if before and before.status == condition.status else None
    manifest = {"type": condition.type, "status": condition.status, "observedGeneration": life.pod.metadata.generation}
    if condition.reason:
        manifest["reason"] = condition.reason
    if condition.message:
        manifest["message"] = condition.message
    manifest["lastTransitionTime"] = instant(since.timestamp() if since else now)
    return manifest
