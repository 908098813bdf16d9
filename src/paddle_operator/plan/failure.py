"""Which pod failed by itself, and what does its exit code say? Paddle's codes as run (paddle-runtime.md, section 5).

When one rank of a collective dies, its peers abort within half a second: 134 under plain Python, 250 under launch. They
are victims, and blamed only where nobody else failed.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from paddle_operator.plan.world import PodView

VICTIM_CODES = frozenset({134, 250})
PATIENCE = timedelta(seconds=5)  # the cause's status comes from another kubelet and may come later than its victims'

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
    "StartError": "its container cannot be started: check command and image",
}


def failed_pods(pods: Iterable[PodView]) -> list[PodView]:
    return [pod for pod in pods if pod.phase == "Failed"]


def is_victim(pod: PodView) -> bool:
    return pod.exit_code in VICTIM_CODES


def cause_of(failed: list[PodView]) -> PodView:
    """The first that failed by itself, else the first of all."""
    return min(failed, key=lambda pod: (is_victim(pod), _finished(pod), pod.name))


def _finished(pod: PodView) -> float:
    return pod.finished_at.timestamp() if pod.finished_at else float("inf")


def cause_may_still_come(failed: list[PodView], now: datetime) -> datetime | None:
    """Until when to wait for somebody to blame, where only victims are known so far."""
    if not all(is_victim(pod) for pod in failed):
        return None
    first = min((pod.finished_at for pod in failed if pod.finished_at), default=None)
    until = first + PATIENCE if first else None
    return until if until and now < until else None


def told(pod: PodView) -> str:
    """`mnist-worker-1 exited 137 (OOMKilled): it used more memory than its limit allows`."""
    reason = pod.disruption or pod.exit_reason
    meaning = _MEANING_OF_REASON.get(reason)
    if pod.exit_code is None:
        return f"{pod.name} failed ({reason or 'no reason given'})" + (f": {meaning}" if meaning else "")
    name = f" ({reason})" if reason not in ("", "Error", "Completed") else ""
    meaning = meaning or _MEANINGS.get(pod.exit_code) or "the program chose this code: its log has the reason"
    return f"{pod.name} exited {pod.exit_code}{name}: {meaning}"
