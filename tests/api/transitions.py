"""What may become of a job that is there, and what may not: fields that last (KF-C10 and KF-C15 of peers.md)."""

from dataclasses import dataclass

from paddle_operator.api.paddlejob import MANAGER
from tests.api.jobs import Written, a_role

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
OTHER = "example.org/other"
MANAGER_LASTS = "spec.managedBy cannot change: delete the job and create it again"
QUEUE_LASTS = (
    "spec.schedulingPolicy.queue cannot change while the job runs: suspend the job, change it, and resume the job"
)


@dataclass(frozen=True)
class Transition:
    """A spec, what is merged into it, and the sentence that refuses it, if one does."""

    name: str
    before: Written
    change: Written
    refused: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def stored(self) -> Written:
        return {"worker": a_role()} | self.before

    @property
    def after(self) -> Written:
        return merged(self.stored, self.change)


def merged(before: Written, change: Written) -> Written:
    """As a JSON merge patch does it."""
    parts = {key: merged(before.get(key) or {}, value) for key, value in change.items() if isinstance(value, dict)}
    return {key: value for key, value in {**before, **change, **parts}.items() if value is not None}


def managed(by: str | None) -> Written:
    return {"managedBy": by}


def queued(queue: str | None, **others: object) -> Written:
    return {"schedulingPolicy": {"queue": queue}, **others}


MANAGERS = {"nobody": None, "us": MANAGER, "multikueue": MULTIKUEUE, "another": OTHER}

TRANSITIONS = [
    *(
        Transition(
            f"managed by {before}, then by {after}",
            managed(MANAGERS[before]) if MANAGERS[before] else {},
            managed(MANAGERS[after]),
            "" if before == after else MANAGER_LASTS,
        )
        for before in MANAGERS
        for after in MANAGERS
    ),
    Transition(
        "suspending lets no other manager in", managed(OTHER), managed(MANAGER) | {"suspend": True}, MANAGER_LASTS
    ),
    Transition("another queue while it runs", queued("one"), queued("two"), QUEUE_LASTS),
    Transition("a queue where there was none", {}, queued("two"), QUEUE_LASTS),
    Transition("no queue where there was one", queued("one"), queued(None), QUEUE_LASTS),
    Transition("no policy where there was a queue", queued("one"), {"schedulingPolicy": None}, QUEUE_LASTS),
    Transition("the empty queue is none", {}, queued("")),
    Transition("the same queue, and more workers", queued("one"), queued("one", worker={"replicas": 3})),
    Transition("another queue while it is suspended", queued("one", suspend=True), queued("two")),
    Transition("no queue while it is suspended", queued("one", suspend=True), {"schedulingPolicy": None}),
    Transition("another queue, suspending it", queued("one"), queued("two", suspend=True)),
    Transition("another queue, resuming it", queued("one", suspend=True), queued("two", suspend=False), QUEUE_LASTS),
    Transition("another priority while it runs", queued("one"), {"schedulingPolicy": {"priorityClass": "high"}}),
    Transition(
        "all other policies",
        {"backoffLimit": 1, "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 9},
        {"backoffLimit": 2, "activeDeadlineSeconds": 90, "ttlSecondsAfterFinished": None, "startDeadlineSeconds": 5},
    ),
]
