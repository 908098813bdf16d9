"""A job that somebody watches, in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from paddle_operator.api.paddlejob import Condition, PaddleJobStatus, Phase, Role, RootFailure
from paddle_operator.cli.job_progress import JobProgress, headline, reason_of, state_in_words, summary
from paddle_operator.cli.live_view import drawn
from paddle_operator.kube.objects import Meta, Pod
from paddle_operator.plan.children import Job, pod_view

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def a_job(phase: str = "Running", message: str = "all pods run", kind: str = "Running", **status: Any) -> Job:
    told = Condition(kind, "True", "Because", message, 1, T0)
    meta = Meta(name="mnist", namespace="default", uid="1", resource_version="1", creation_timestamp=T0)
    return Job(meta, None, PaddleJobStatus(phase=phase, conditions=(told,), ready="2/2", **status))


def a_pod(name: str = "mnist-worker-0", uid: str = "2", phase: str = "Running", **state: Any) -> Pod:
    ended = state.get("terminated")
    manifest = {
        "metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": "1"},
        "spec": {"containers": [{"name": "paddle"}]},
        "status": {
            "phase": phase,
            "podIP": "127.16.1.1",
            "containerStatuses": [{"name": "paddle", "ready": not ended, "state": state or {"running": {}}}],
        },
    }
    return msgspec.convert(manifest, Pod)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (a_pod(), "Running"),
        (a_pod(phase="Pending", waiting={"reason": "ContainerCreating"}), "ContainerCreating"),
        (a_pod(phase="Pending", waiting={"reason": "CreateContainerConfigError"}), "waiting for the addresses of all"),
        (a_pod(phase="Succeeded", terminated={"exitCode": 0}), "Completed"),
        (a_pod(phase="Failed", terminated={"exitCode": 3, "reason": "Error"}), "exited 3"),
        (a_pod(phase="Failed", terminated={"exitCode": 137, "reason": "OOMKilled"}), "exited 137, out of memory"),
    ],
)
def test_a_pod_says_what_it_is_doing(pod: Pod, words: str) -> None:
    assert state_in_words(pod_view(pod)) == words


def test_the_headline_has_the_phase_the_count_and_the_time() -> None:
    assert headline(a_job(), T0 + timedelta(seconds=12)) == "mnist  Running  2/2  12s"


def test_the_headline_and_the_summary_have_the_tries_that_were_used() -> None:
    job = a_job("Completed", "all 2 workers have succeeded", "Completed", completion_time=T0, restarts=1)
    assert headline(job, T0) == "mnist  Completed  2/2  0s  tries used: 1"
    assert drawn(JobProgress(job), T0).min_width == len(headline(job, T0)), "it stays on one line"
    assert summary(JobProgress(job), T0)[1:] == ["  tries used: 1"]


def test_of_a_suspended_job_it_is_told_how_it_goes_on() -> None:
    job = a_job(Phase.SUSPENDED, "spec.suspend is true: no pod exists")
    assert reason_of(job) == "spec.suspend is true: no pod exists; paddlejob resume mnist starts it again"


def test_the_summary_has_what_the_programs_reached() -> None:
    ended = T0 + timedelta(seconds=14)
    scene = JobProgress(a_job("Completed", "all 2 workers have succeeded", "Completed", completion_time=ended))
    pod = a_pod()
    scene.saw(pod)
    scene.heard(pod, 'PADDLE_RESULT {"accuracy": 0.97}')
    assert summary(scene, T0 + timedelta(hours=1)) == [
        "mnist  Completed  after 14s: all 2 workers have succeeded",
        "  worker-0  accuracy 0.97",
    ]


def test_the_summary_of_a_failure_ends_with_the_last_words_of_who_is_blamed() -> None:
    failure = RootFailure("mnist-worker-1", Role.WORKER, 1, exit_code=1)
    scene = JobProgress(a_job(Phase.FAILED, "training failed", "Failed", completion_time=T0, root_failure=failure))
    for index in (0, 1):
        pod = a_pod(f"mnist-worker-{index}", uid=str(index))
        scene.saw(pod)
        scene.heard(pod, f"Traceback of {index}")
    assert summary(scene, T0)[1:] == ["  the last lines of worker-1:", "    Traceback of 1"]


def test_a_pod_that_was_made_again_starts_with_an_empty_record() -> None:
    scene = JobProgress(a_job())
    scene.saw(a_pod(uid="2"))
    scene.heard(a_pod(uid="2"), "step 3 loss 0.5")
    assert scene.saw(a_pod(uid="3"))
    assert scene.actors["mnist-worker-0"].progress is None


def test_news_about_a_pod_are_only_what_reads_otherwise() -> None:
    scene = JobProgress(a_job())
    assert scene.saw(a_pod())
    assert not scene.saw(a_pod())
    assert scene.saw(a_pod(phase="Succeeded", terminated={"exitCode": 0}))


def test_the_table_has_servers_before_workers_and_ten_behind_nine() -> None:
    scene = JobProgress(a_job())
    for name in ("worker-10", "worker-9", "ps-0"):
        scene.saw(a_pod(f"mnist-{name}", uid=name))
    assert [actor.view.name for actor in scene.in_order] == ["mnist-ps-0", "mnist-worker-9", "mnist-worker-10"]
    assert drawn(scene, T0).row_count == 3
