"""A job that is gone: how it had ended, by the event that outlives it."""

from typing import Any

import pytest

from paddle_operator.api.paddlejob import PaddleJobSpec, PaddleJobStatus
from paddle_operator.cli.deleted_job import fate
from paddle_operator.kube.objects import Meta
from paddle_operator.plan.children import Job


def a_job(ttl: int | None = 0) -> Job:
    spec = PaddleJobSpec(ttl_seconds_after_finished=ttl)
    return Job(Meta(name="mnist", namespace="default", uid="1"), spec, PaddleJobStatus(phase="Running"))


def an_event(reason: str, note: str, uid: str = "1", kind: str = "PaddleJob") -> dict[str, Any]:
    return {"reason": reason, "note": note, "regarding": {"kind": kind, "name": "mnist", "uid": uid}}


@pytest.mark.parametrize(("reason", "code"), [("Completed", 0), ("Failed", 1)])
def test_the_exit_code_is_that_of_its_end(reason: str, code: int) -> None:
    events = [an_event("AllPodsRunning", "all pods run"), an_event(reason, "so it was")]
    sentence = f"mnist  {reason}, and was deleted since (spec.ttlSecondsAfterFinished is 0): so it was"
    assert fate(a_job(), events) == (code, sentence)


def test_where_somebody_else_deleted_it_no_time_to_live_is_named() -> None:
    events = [an_event("Completed", "all 2 workers have succeeded")]
    assert fate(a_job(None), events)[1] == "mnist  Completed, and was deleted since: all 2 workers have succeeded"


@pytest.mark.parametrize(
    "events",
    [
        [],
        [an_event("AllPodsRunning", "all pods run")],
        [an_event("Completed", "of a namesake before it", uid="0")],
        [an_event("Failed", "Error: ImagePullBackOff", kind="Pod")],
    ],
    ids=["nothing is known", "it ran", "a namesake has completed", "a pod has failed"],
)
def test_without_word_of_its_end_it_was_deleted_before(events: list[dict[str, Any]]) -> None:
    assert fate(a_job(), events) == (2, "mnist was deleted before it had finished")
