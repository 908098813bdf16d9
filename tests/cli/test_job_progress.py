"""The lines in which a watched job is shown."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from paddle_operator.api.paddlejob import Condition, PaddleJobStatus, Phase, Role, RootFailure
from paddle_operator.cli.job_progress import JobProgress, format_pod_detail, headline, status_message, summary
from paddle_operator.cli.live_view import live_table
from paddle_operator.kube.objects import Meta, Pod
from paddle_operator.plan.children import pod_view
from paddle_operator.plan.job_view import Job

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_job(phase: str = "Running", message: str = "all pods run", kind: str = "Running", **status: Any) -> Job:
    condition = Condition(kind, "True", "Because", message, 1, T0)
    meta = Meta(name="mnist", namespace="default", uid="1", resource_version="1", creation_timestamp=T0)
    return Job(meta, None, PaddleJobStatus(phase=phase, conditions=(condition,), ready="2/2", **status))


def make_pod(name: str = "mnist-worker-0", uid: str = "2", phase: str = "Running", **state: Any) -> Pod:
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
    ("pod", "text"),
    [
        (make_pod(), "Running"),
        (make_pod(phase="Pending", waiting={"reason": "ContainerCreating"}), "ContainerCreating"),
        (make_pod(phase="Pending", waiting={"reason": "CreateContainerConfigError"}), "waiting for peer addresses"),
        (make_pod(phase="Succeeded", terminated={"exitCode": 0}), "Completed"),
        (make_pod(phase="Failed", terminated={"exitCode": 3, "reason": "Error"}), "exited 3"),
        (make_pod(phase="Failed", terminated={"exitCode": 137, "reason": "OOMKilled"}), "exited 137 (OOMKilled)"),
    ],
)
def test_pod_state(pod: Pod, text: str) -> None:
    assert format_pod_detail(pod_view(pod)) == text


def test_headline_has_phase_ready_count_and_elapsed_time() -> None:
    assert headline(make_job(), T0 + timedelta(seconds=12)) == "mnist  Running  2/2  12s"


def test_headline_and_summary_have_the_retries_used() -> None:
    job = make_job("Completed", "all 2 workers succeeded", "Completed", completion_time=T0, restarts=1)
    assert headline(job, T0) == "mnist  Completed  2/2  0s  retries used: 1"
    assert live_table(JobProgress(job), T0).min_width == len(headline(job, T0)), "it stays on one line"
    assert summary(JobProgress(job), T0)[1:] == ["  retries used: 1"]


def test_suspended_summary_mentions_resume() -> None:
    job = make_job(Phase.SUSPENDED, "spec.suspend is true: no pod exists")
    assert status_message(job) == "spec.suspend is true: no pod exists; paddlejob resume mnist starts it again"


def test_summary_has_the_results_of_the_programs() -> None:
    ended = T0 + timedelta(seconds=14)
    progress = JobProgress(make_job("Completed", "all 2 workers succeeded", "Completed", completion_time=ended))
    pod = make_pod()
    progress.update_pod(pod)
    progress.add_line(pod, 'PADDLE_RESULT {"accuracy": 0.97}')
    assert summary(progress, T0 + timedelta(hours=1)) == [
        "mnist  Completed  after 14s: all 2 workers succeeded",
        "  worker-0  accuracy 0.97",
    ]


def test_summary_of_a_failure_ends_with_the_root_failure_log() -> None:
    failure = RootFailure("mnist-worker-1", Role.WORKER, 1, exit_code=1)
    progress = JobProgress(
        make_job(Phase.FAILED, "training failed", "Failed", completion_time=T0, root_failure=failure)
    )
    for index in (0, 1):
        pod = make_pod(f"mnist-worker-{index}", uid=str(index))
        progress.update_pod(pod)
        progress.add_line(pod, f"Traceback of {index}")
    assert summary(progress, T0)[1:] == ["  last log lines of worker-1:", "    Traceback of 1"]


def test_recreated_pod_has_no_progress() -> None:
    progress = JobProgress(make_job())
    progress.update_pod(make_pod(uid="2"))
    progress.add_line(make_pod(uid="2"), "step 3 loss 0.5")
    assert progress.update_pod(make_pod(uid="3"))
    assert progress.pods["mnist-worker-0"].progress is None


def test_pod_changes_only_if_its_text_changes() -> None:
    progress = JobProgress(make_job())
    assert progress.update_pod(make_pod())
    assert not progress.update_pod(make_pod())
    assert progress.update_pod(make_pod(phase="Succeeded", terminated={"exitCode": 0}))


def test_pods_are_sorted_by_role_and_index() -> None:
    progress = JobProgress(make_job())
    for name in ("worker-10", "worker-9", "ps-0"):
        progress.update_pod(make_pod(f"mnist-{name}", uid=name))
    assert [pod.view.name for pod in progress.sorted_pods] == ["mnist-ps-0", "mnist-worker-9", "mnist-worker-10"]
    assert live_table(progress, T0).row_count == 3
