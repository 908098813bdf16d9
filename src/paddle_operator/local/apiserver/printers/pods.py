"""What `kubectl get pods` says of a pod: how many containers are ready, and one word for its state.

The word is found as kube-apiserver's printer finds it (pkg/printers/internalversion, printPod), since people know its
answers: Init:0/1, ContainerCreating, CrashLoopBackOff, Completed, Error, Terminating.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddle_operator.local.apiserver.printers.ages import age, latest
from paddle_operator.local.apiserver.printers.columns import AGE, NAME, NONE, text
from paddle_operator.local.apiserver.scheme.defaulting import maps
from paddle_operator.local.apiserver.scheme.kind import Column, Manifest


@dataclass(frozen=True)
class Told:
    """What the columns say of a pod's containers."""

    ready: int
    total: int
    word: str
    restarts: int
    restarted_at: str | None


def told(pod: Manifest) -> Told:
    status = pod.get("status", {})
    inits, containers = maps(status.get("initContainerStatuses")), maps(status.get("containerStatuses"))
    sidecars = {each.get("name") for each in maps(pod["spec"].get("initContainers")) if is_sidecar(each)}
    total = len(maps(pod["spec"].get("containers"))) + len(sidecars)
    word, ready, initializing = init_word(pod, inits, sidecars)
    counted = inits
    if not initializing or condition(status, "Initialized") == "True":
        counted = [each for each in inits if each.get("name") in sidecars] + containers
        word = running_word(word, status, containers)
        ready += sum(is_running(each) for each in containers)
    restarts = sum(int(each.get("restartCount", 0)) for each in counted)
    return Told(ready, total, last_word(pod, word), restarts, latest(ended_before(counted)))


def init_word(pod: Manifest, inits: list[dict[str, Any]], sidecars: set[object]) -> tuple[str, int, bool]:
    """The word so far, how many sidecars are ready, and whether an init container is still to end."""
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
            return f"Init:{ending(terminated)}", ready, True
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}", ready, True
        return f"Init:{index}/{len(maps(pod['spec'].get('initContainers')))}", ready, True
    return phase_word(pod.get("status", {})), ready, False


def phase_word(status: Manifest) -> str:
    if any(each.get("reason") == "SchedulingGated" for each in maps(status.get("conditions"))):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "")


def running_word(word: str, status: Manifest, containers: list[dict[str, Any]]) -> str:
    """The first container that waits or has ended gives the word; one that runs turns Completed back."""
    failed = ""
    for each in reversed(containers):
        state = each.get("state", {})
        if reason := state.get("waiting", {}).get("reason"):
            word = reason
        elif terminated := state.get("terminated"):
            word = ending(terminated)
            failed = word if terminated.get("exitCode") else failed
    if word != "Completed":
        return word
    running = any(is_running(each) for each in containers)
    if running and condition(status, "Ready") == "True":
        return "Running"
    return failed or ("NotReady" if running else word)


def last_word(pod: Manifest, word: str) -> str:
    if not pod["metadata"].get("deletionTimestamp"):
        return word
    status = pod.get("status", {})
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return word if status.get("phase") in ("Succeeded", "Failed") else "Terminating"


def ending(terminated: Manifest) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def is_running(container: Manifest) -> bool:
    """Waiting and ended containers may still be told ready; the printer asks in this order."""
    state = container.get("state", {})
    waits = state.get("waiting", {}).get("reason")
    return bool(not waits and not state.get("terminated") and container.get("ready") and "running" in state)


def is_sidecar(container: Manifest) -> bool:
    return container.get("restartPolicy") == "Always"


def condition(status: Manifest, kind: str) -> str:
    return next((str(each.get("status")) for each in maps(status.get("conditions")) if each.get("type") == kind), "")


def ended_before(containers: list[dict[str, Any]]) -> Iterator[object]:
    for each in containers:
        yield each.get("lastState", {}).get("terminated", {}).get("finishedAt")


def ready(pod: Manifest, _now: datetime) -> str:
    found = told(pod)
    return f"{found.ready}/{found.total}"


def restarts(pod: Manifest, now: datetime) -> str:
    found = told(pod)
    if found.restarts and found.restarted_at:
        return f"{found.restarts} ({age(found.restarted_at, now)} ago)"
    return str(found.restarts)


def address(pod: Manifest, _now: datetime) -> str:
    return str(next((each.get("ip") for each in maps(pod.get("status", {}).get("podIPs"))), None) or NONE)


def gates(pod: Manifest, _now: datetime) -> str:
    wanted = maps(pod["spec"].get("readinessGates"))
    met = sum(condition(pod.get("status", {}), str(each.get("conditionType"))) == "True" for each in wanted)
    return f"{met}/{len(wanted)}" if wanted else NONE


POD = (
    NAME,
    Column("Ready", "string", ready),
    Column("Status", "string", lambda pod, _now: told(pod).word),
    Column("Restarts", "string", restarts),
    AGE,
    Column("IP", "string", address, wide=True),
    Column("Node", "string", text("spec", "nodeName", default=NONE), wide=True),
    Column("Nominated Node", "string", text("status", "nominatedNodeName", default=NONE), wide=True),
    Column("Readiness Gates", "string", gates, wide=True),
)
