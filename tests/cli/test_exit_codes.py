"""The exit code of a deleted job, from the event that outlives it."""

from typing import Any

import pytest

from paddle_operator.api.paddlejob import PaddleJobSpec, PaddleJobStatus
from paddle_operator.cli.exit_codes import outcome_from_events
from paddle_operator.kube.objects import Meta
from paddle_operator.plan.job_view import Job


def make_job(ttl: int | None = 0) -> Job:
    spec = PaddleJobSpec(ttl_seconds_after_finished=ttl)
    return Job(Meta(name="mnist", namespace="default", uid="1"), spec, PaddleJobStatus(phase="Running"))


def make_event(reason: str, note: str, uid: str = "1", kind: str = "PaddleJob") -> dict[str, Any]:
    return {"reason": reason, "note": note, "regarding": {"kind": kind, "name": "mnist", "uid": uid}}


@pytest.mark.parametrize(("reason", "code"), [("Completed", 0), ("Failed", 1)])
def test_exit_code_is_that_of_the_last_event(reason: str, code: int) -> None:
    events = [make_event("AllPodsRunning", "all pods run"), make_event(reason, "so it was")]
    message = f"mnist  {reason}, then deleted (spec.ttlSecondsAfterFinished is 0): so it was"
    assert outcome_from_events(make_job(), events) == (code, message)


def test_ttl_is_named_only_if_the_job_has_one() -> None:
    events = [make_event("Completed", "all 2 workers succeeded")]
    assert outcome_from_events(make_job(None), events)[1] == "mnist  Completed, then deleted: all 2 workers succeeded"


@pytest.mark.parametrize(
    "events",
    [
        [],
        [make_event("AllPodsRunning", "all pods run")],
        [make_event("Completed", "an earlier job of this name", uid="0")],
        [make_event("Failed", "Error: ImagePullBackOff", kind="Pod")],
    ],
    ids=["no event", "it ran", "an earlier job completed", "a pod failed"],
)
def test_job_without_an_end_was_deleted_before_it(events: list[dict[str, Any]]) -> None:
    assert outcome_from_events(make_job(), events) == (2, "mnist was deleted before it finished")
