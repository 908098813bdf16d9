"""Which pod failed first, and what does its exit code mean? The codes were measured with Paddle 2.6 to 3.3.

When one rank of a collective dies, its peers abort within 0.5 s: 134 under plain Python, 250 under launch. They are
victims, and count as failures only if no other pod failed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from paddle_operator.api.reasons import Reason
from paddle_operator.plan.children import PodView

VICTIM_CODES = frozenset({134, 250})
ROOT_FAILURE_WAIT = timedelta(seconds=5)  # another kubelet reports the root failure, perhaps later than its victims

_MEANINGS = {
    1: "the program failed: its log has the reason",
    2: "a bad command line: retrying would not help",
    15: "it was terminated by SIGTERM",
    126: "the command cannot be run: it is not executable",
    127: "the command was not found",
    134: "it aborted because a peer died",
    137: "it was killed",
    139: "it crashed with a segmentation fault",
    143: "it was terminated by SIGTERM",
    245: "it crashed with a segmentation fault",
    247: "it was killed",
    250: "it aborted because a peer died",
}
_REASON_MEANINGS = {
    "OOMKilled": "it used more memory than its limit allows",
    "Evicted": "its node ran short of a resource and evicted it",
    "DeadlineExceeded": "it exceeded its own activeDeadlineSeconds",
    "ContainerCannotRun": "its container cannot be run: check command and image",
    "Lost": "the local cluster ended while it ran",
    "StartError": "its container cannot be started: check command and image",
    "NodeShutdown": "its node was shut down",
    "PreemptionByScheduler": "a pod of higher priority preempted it",
    "DeletionByTaintManager": "its node got a taint that it does not tolerate",
    "EvictionByEvictionAPI": "it was evicted, as when a node is drained",
    "TerminationByKubelet": "its node ran short of a resource, or was shut down",
    "DeletionByPodGC": "its node no longer exists",
}


@dataclass(frozen=True)
class JobFailure:
    """Why a job fails, and the pod that failed first, if a pod is the reason."""

    reason: Reason
    message: str
    pod: PodView | None = None


def is_victim(pod: PodView) -> bool:
    return pod.exit_code in VICTIM_CODES


def first_failure(failed: list[PodView]) -> PodView:
    """The first pod that is no victim, else the first of all."""
    return min(failed, key=lambda pod: (is_victim(pod), _finished(pod), pod.name))


def _finished(pod: PodView) -> float:
    return pod.finished_at.timestamp() if pod.finished_at else float("inf")


def root_failure_wait(failed: list[PodView], now: datetime) -> datetime | None:
    """Until when to wait for the root failure, where only victims are known.

    The times are by the clocks of the nodes; a clock far ahead delays nothing.
    """
    first = min((pod.finished_at for pod in failed if pod.finished_at), default=None)
    until = first + ROOT_FAILURE_WAIT if first else None
    return until if until and now < until <= now + 2 * ROOT_FAILURE_WAIT else None


def describe_failure(pod: PodView) -> str:
    """`mnist-worker-1 exited 137 (OOMKilled): it used more memory than its limit allows`."""
    name = f"{pod.name} (container {pod.failed_container})" if pod.failed_container else pod.name
    reason = pod.exit_reason if pod.exit_reason not in ("Error", "Completed") else ""
    meaning = _REASON_MEANINGS.get(reason)
    if pod.exit_code is None:
        return f"{name} failed ({reason or 'no reason given'})" + (f": {meaning}" if meaning else "")
    suffix = f" ({reason})" if reason else ""
    meaning = pod.exit_message or meaning or _MEANINGS.get(pod.exit_code) or "its log has the reason"
    return f"{name} exited {pod.exit_code}{suffix}: {meaning}"
