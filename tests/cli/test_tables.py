"""Jobs, pods and events as text."""

from datetime import UTC, datetime
from typing import Any

import yaml

from paddle_operator.cli import tables
from paddle_operator.cli.describe import page
from paddle_operator.cli.events import is_about, is_older
from paddle_operator.cli.get import Output, shown

NOW = datetime(2026, 1, 2, 3, 5, 0, tzinfo=UTC)
JOB: dict[str, Any] = {
    "apiVersion": "batch.paddlepaddle.org/v1",
    "kind": "PaddleJob",
    "metadata": {"name": "mnist", "namespace": "default", "uid": "1", "creationTimestamp": "2026-01-02T03:04:00Z"},
    "spec": {"intranet": "PodIP", "worker": {"replicas": 2}},
    "status": {
        "phase": "Failed",
        "mode": "Collective",
        "ready": "0/2",
        "worker": {"failed": 1, "running": 1},
        "conditions": [
            {"type": "Failed", "status": "True", "reason": "PodFailed", "message": "mnist-worker-1 exited 137"}
        ],
    },
}
POD: dict[str, Any] = {
    "metadata": {"name": "mnist-worker-1", "creationTimestamp": "2026-01-02T03:04:50Z"},
    "spec": {"nodeName": "local-1"},
    "status": {
        "phase": "Failed",
        "podIP": "127.16.1.2",
        "containerStatuses": [{"restartCount": 2, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
    },
}
EVENT: dict[str, Any] = {
    "type": "Warning",
    "reason": "Failed",
    "note": "mnist-worker-1\n exited 137",
    "regarding": {"kind": "PaddleJob", "name": "mnist"},
    "eventTime": "2026-01-02T03:04:55.000000Z",
    "series": {"count": 3, "lastObservedTime": "2026-01-02T03:04:58.000000Z"},
}


def test_jobs_are_listed_as_kubectl_lists_them() -> None:
    assert tables.jobs_table([JOB], NOW).splitlines() == [
        "NAME    STATUS   MODE         READY   AGE",
        "mnist   Failed   Collective   0/2     60s",
    ]


def test_a_wide_list_says_why() -> None:
    assert (
        tables.jobs_table([JOB], NOW, wide=True, with_namespace=True)
        .splitlines()[1]
        .endswith("   mnist-worker-1 exited 137")
    )


def test_a_job_without_a_status_is_listed_too() -> None:
    bare = {**JOB, "status": None}
    assert tables.jobs_table([bare], NOW).splitlines()[1] == "mnist   <unknown>   <unknown>   <unknown>   60s"


def test_yaml_is_the_whole_object_and_several_are_a_list() -> None:
    assert yaml.safe_load(shown([JOB], Output.YAML, everywhere=False)) == JOB
    assert yaml.safe_load(shown([JOB, JOB], Output.YAML, everywhere=False))["items"] == [JOB, JOB]
    assert shown([JOB], Output.NAME, everywhere=False) == "paddlejob.batch.paddlepaddle.org/mnist"


def test_pods_tell_their_state_address_and_restarts() -> None:
    assert tables.pods_table([POD], NOW).splitlines() == [
        "POD              STATE                    ADDRESS      NODE      RESTARTS   AGE",
        "mnist-worker-1   exited 137 (OOMKilled)   127.16.1.2   local-1   2          10s",
    ]


def test_events_are_one_line_each_with_how_often_they_were_seen() -> None:
    assert tables.events_table([EVENT], NOW).splitlines() == [
        "LAST SEEN   TYPE      REASON   OBJECT            MESSAGE",
        "2s (x3)     Warning   Failed   paddlejob/mnist   mnist-worker-1 exited 137",
    ]


def test_events_of_a_job_are_those_of_its_children_too_and_not_of_its_namesakes() -> None:
    def about(kind: str, name: str) -> bool:
        return is_about({"regarding": {"kind": kind, "name": name}}, "mnist")

    assert about("PaddleJob", "mnist")
    assert about("Pod", "mnist-worker-0")
    assert not about("PaddleJob", "mnist-2")
    assert not about("Pod", "mnistic-worker-0")


def test_a_page_about_a_job_answers_where_its_pods_are_and_why_it_failed() -> None:
    contract = {"PADDLE_TRAINER_ENDPOINTS": "127.16.1.1:2379,127.16.1.2:2379"}
    text = "\n".join(page(JOB, [POD], [EVENT], contract, NOW))
    assert "Why:         mnist-worker-1 exited 137" in text
    assert "worker:      2 wanted: 1 running, 1 failed" in text
    assert "PADDLE_TRAINER_ENDPOINTS: 127.16.1.1:2379,127.16.1.2:2379" in text
    assert "Failed=True  PodFailed: mnist-worker-1 exited 137" in text


def test_a_page_about_a_job_that_nobody_has_looked_at_yet_is_a_page_too() -> None:
    bare = {**JOB, "status": None}
    text = "\n".join(page(bare, [], [], {}, NOW))
    assert "Status:      <unknown>" in text
    assert "not all known yet" in text


def test_an_event_of_the_second_of_the_creation_is_not_older() -> None:
    assert not is_older({"eventTime": "2026-05-04T12:00:01.200000Z"}, "2026-05-04T12:00:01Z")
    assert is_older({"eventTime": "2026-05-04T12:00:00.900000Z"}, "2026-05-04T12:00:01Z")
    assert not is_older({}, "2026-05-04T12:00:01Z")
