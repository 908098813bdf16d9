"""What does `kubectl get pods` show of a pod? Ready containers, restarts and a status such as Init:0/1.

The status is computed as in kube-apiserver's printPod (pkg/printers/internalversion): ContainerCreating,
CrashLoopBackOff, Completed, Error, Terminating.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddle_operator.local.apiserver.printers.columns import AGE_COLUMN, NAME_COLUMN, NONE, value_cell
from paddle_operator.local.apiserver.printers.table import format_age, latest_time
from paddle_operator.local.apiserver.scheme.kind import Column, Manifest
from paddle_operator.local.apiserver.scheme.unstructured import maps_in


@dataclass(frozen=True)
class ContainerSummary:
    """The cells that depend on a pod's containers."""

    ready: int
    total: int
    status: str
    restarts: int
    restarted_at: str | None


def summarize_containers(pod: Manifest) -> ContainerSummary:
    pod_status = pod.get("status", {})
    inits, containers = maps_in(pod_status.get("initContainerStatuses")), maps_in(pod_status.get("containerStatuses"))
    sidecars = {each.get("name") for each in maps_in(pod["spec"].get("initContainers")) if is_sidecar(each)}
    total = len(maps_in(pod["spec"].get("containers"))) + len(sidecars)
    status, ready, initializing = init_status(pod, inits, sidecars)
    counted = inits
    if not initializing or condition_status(pod_status, "Initialized") == "True":
        counted = [each for each in inits if each.get("name") in sidecars] + containers
        status = running_status(status, pod_status, containers)
        ready += sum(is_running(each) for each in containers)
    restarts = sum(int(each.get("restartCount", 0)) for each in counted)
    return ContainerSummary(ready, total, final_status(pod, status), restarts, latest_time(previous_ends(counted)))


def init_status(pod: Manifest, inits: list[dict[str, Any]], sidecars: set[object]) -> tuple[str, int, bool]:
    """The status so far, how many sidecars are ready, and whether an init container still runs."""
    ready = 0
    for index, each in enumerate(inits):
        state = each.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting", {}).get("reason")
        if terminated and not terminated.get("exitCode"):
            continue
        if each.get("name") in sidecars and each.get("started"):
            ready += bool(each.get("ready"))
            continue
        if terminated:
            return f"Init:{exit_status(terminated)}", ready, True
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}", ready, True
        return f"Init:{index}/{len(maps_in(pod['spec'].get('initContainers')))}", ready, True
    return phase_status(pod.get("status", {})), ready, False


def phase_status(status: Manifest) -> str:
    if any(each.get("reason") == "SchedulingGated" for each in maps_in(status.get("conditions"))):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "")


def running_status(current: str, pod_status: Manifest, containers: list[dict[str, Any]]) -> str:
    """The first waiting or terminated container decides; Completed is replaced if another one runs."""
    failed = ""
    for each in reversed(containers):
        state = each.get("state", {})
        if reason := state.get("waiting", {}).get("reason"):
            current = reason
        elif terminated := state.get("terminated"):
            current = exit_status(terminated)
            failed = current if terminated.get("exitCode") else failed
    if current != "Completed":
        return current
    running = any(is_running(each) for each in containers)
    if running and condition_status(pod_status, "Ready") == "True":
        return "Running"
    return failed or ("NotReady" if running else current)


def final_status(pod: Manifest, current: str) -> str:
    if not pod["metadata"].get("deletionTimestamp"):
        return current
    status = pod.get("status", {})
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return current if status.get("phase") in ("Succeeded", "Failed") else "Terminating"


def exit_status(terminated: Manifest) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def is_running(container: Manifest) -> bool:
    """Waiting and terminated containers may still be reported as ready."""
    state = container.get("state", {})
    waiting = state.get("waiting", {}).get("reason")
    return bool(not waiting and not state.get("terminated") and container.get("ready") and "running" in state)


def is_sidecar(container: Manifest) -> bool:
    return container.get("restartPolicy") == "Always"


def condition_status(status: Manifest, condition_type: str) -> str:
    return next(
        (str(each.get("status")) for each in maps_in(status.get("conditions")) if each.get("type") == condition_type),
        "",
    )


def previous_ends(containers: list[dict[str, Any]]) -> Iterator[object]:
    for each in containers:
        yield each.get("lastState", {}).get("terminated", {}).get("finishedAt")


def ready(pod: Manifest, _now: datetime) -> str:
    summary = summarize_containers(pod)
    return f"{summary.ready}/{summary.total}"


def restarts(pod: Manifest, now: datetime) -> str:
    summary = summarize_containers(pod)
    if summary.restarts and summary.restarted_at:
        return f"{summary.restarts} ({format_age(summary.restarted_at, now)} ago)"
    return str(summary.restarts)


def address(pod: Manifest, _now: datetime) -> str:
    return str(next((each.get("ip") for each in maps_in(pod.get("status", {}).get("podIPs"))), None) or NONE)


def readiness_gates(pod: Manifest, _now: datetime) -> str:
    gates = maps_in(pod["spec"].get("readinessGates"))
    met = sum(condition_status(pod.get("status", {}), str(each.get("conditionType"))) == "True" for each in gates)
    return f"{met}/{len(gates)}" if gates else NONE


POD_COLUMNS = (
    NAME_COLUMN,
    Column("Ready", "string", ready),
    Column("Status", "string", lambda pod, _now: summarize_containers(pod).status),
    Column("Restarts", "string", restarts),
    AGE_COLUMN,
    Column("IP", "string", address, wide=True),
    Column("Node", "string", value_cell("spec", "nodeName", default=NONE), wide=True),
    Column("Nominated Node", "string", value_cell("status", "nominatedNodeName", default=NONE), wide=True),
    Column("Readiness Gates", "string", readiness_gates, wide=True),
)
