"""Which pod failed by itself, and what does its exit code say? Paddle's codes as run (paddle-runtime.md, section 5).

When one rank of a collective dies, its peers abort within half a second: 134 under plain Python, 250 under launch. They
are victims, and blamed only where nobody else failed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from paddle_operator.api.reasons import Reason
from paddle_operator.plan.children import PodView

VICTIM_CODES = frozenset({134, 250})
ROOT_FAILURE_WAIT = timedelta(
    seconds=5
)  # the cause's status comes from another kubelet and may come later than its victims'

_MEANINGS = {
    1: "the program failed: its log has the reason",
    2: "a bad command line: trying again would not help",
    15: "it was told to stop",
    126: "the command cannot be run: it is not executable",
    127: "the command was not found",
    134: "it aborted because a peer died",
    137: "it was killed",
    139: "it crashed with a segmentation fault",
    143: "it was told to stop",
    245: "it crashed with a segmentation fault",
    247: "it was killed",
    250: "it aborted because a peer died",
}
_MEANING_OF_REASON = {
    "OOMKilled": "it used more memory than its limit allows",
    "Evicted": "its node was short of something and evicted it",
    "DeadlineExceeded": "it ran into its own activeDeadlineSeconds",
    "ContainerCannotRun": "its container cannot be run: check command and image",
    "Lost": "the local cluster ended while it ran",
    "StartError": "its container cannot be started: check command and image",
    "NodeShutdown": "its node was shut down",
    "PreemptionByScheduler": "a pod of a higher priority took its place",
    "DeletionByTaintManager": "its node was given a taint that it does not tolerate",
    "EvictionByEvictionAPI": "it was evicted, as when a node is drained",
    "TerminationByKubelet": "its node was short of something, or shut down",
    "DeletionByPodGC": "its node is gone",
}


@dataclass(frozen=True)
class JobFailure:
    """Why a job has failed, and the pod that it failed of, if it was one."""

    reason: Reason
    message: str
    cause: PodView | None = None


def is_victim(pod: PodView) -> bool:
    return pod.exit_code in VICTIM_CODES


def first_failure(failed: list[PodView]) -> PodView:
    """The first that failed by itself, else the first of all."""
    return min(failed, key=lambda pod: (is_victim(pod), _finished(pod), pod.name))


def _finished(pod: PodView) -> float:
    return pod.finished_at.timestamp() if pod.finished_at else float("inf")


def root_failure_wait(failed: list[PodView], now: datetime) -> datetime | None:
    """Until when to wait for somebody to blame, where only victims are known so far.

    Their times are by the clocks of their nodes: by one that is far ahead nobody waits.
    """
    first = min((pod.finished_at for pod in failed if pod.finished_at), default=None)
    until = first + ROOT_FAILURE_WAIT if first else None
    return until if until and now < until <= now + 2 * ROOT_FAILURE_WAIT else None


def told(pod: PodView) -> str:
    """`mnist-worker-1 exited 137 (OOMKilled): it used more memory than its limit allows`."""
    who = f"{pod.name} (container {pod.failed_container})" if pod.failed_container else pod.name
    reason = pod.exit_reason if pod.exit_reason not in ("Error", "Completed") else ""
    meaning = _MEANING_OF_REASON.get(reason)
    if pod.exit_code is None:
        return f"{who} failed ({reason or 'no reason given'})" + (f": {meaning}" if meaning else "")
    name = f" ({reason})" if reason else ""
    meaning = (
        pod.exit_message
        or meaning
        or _MEANINGS.get(pod.exit_code)
        or "the program chose this code: its log has the reason"
    )
    return f"{who} exited {pod.exit_code}{name}: {meaning}"
