"""Jobs, pods and events as text."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import yaml

from paddle_operator.cli import tables
from paddle_operator.cli.describe import page
from paddle_operator.cli.events import events_table
from paddle_operator.cli.get import Format, format_manifests
from paddle_operator.kube.objects import Pod, StoredObject
from paddle_operator.plan.job_view import Job, job_view

NOW = datetime(2026, 1, 2, 3, 5, 0, tzinfo=UTC)
MANIFEST: dict[str, Any] = {
    "apiVersion": "batch.paddlepaddle.org/v1",
    "kind": "PaddleJob",
    "metadata": {
        "name": "mnist",
        "namespace": "default",
        "uid": "1",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-02T03:04:00Z",
    },
    "spec": {
        "intranet": "PodIP",
        "worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "paddle", "image": "mnist:v1"}]}}},
    },
    "status": {
        "phase": "Failed",
        "mode": "Collective",
        "ready": "0/2",
        "worker": {"failed": 1, "running": 1},
        "conditions": [
            {
                "type": "Failed",
                "status": "True",
                "reason": "PodFailed",
                "message": "mnist-worker-1 exited 137",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-01-02T03:04:58Z",
            }
        ],
    },
}
POD = msgspec.convert(
    {
        "metadata": {
            "name": "mnist-worker-1",
            "namespace": "default",
            "uid": "2",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-02T03:04:50Z",
        },
        "spec": {"nodeName": "local-1", "containers": [{"name": "paddle"}]},
        "status": {
            "phase": "Failed",
            "podIP": "127.16.1.2",
            "containerStatuses": [
                {
                    "name": "paddle",
                    "restartCount": 2,
                    "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                }
            ],
        },
    },
    Pod,
)
EVENT: dict[str, Any] = {
    "type": "Warning",
    "reason": "Failed",
    "note": "mnist-worker-1\n exited 137",
    "regarding": {"kind": "PaddleJob", "name": "mnist"},
    "eventTime": "2026-01-02T03:04:55.000000Z",
    "series": {"count": 3, "lastObservedTime": "2026-01-02T03:04:58.000000Z"},
}


def read_job(manifest: dict[str, Any]) -> Job:
    return job_view(msgspec.json.decode(json.dumps(manifest), type=StoredObject))


JOB = read_job(MANIFEST)
NEW_JOB = read_job({name: value for name, value in MANIFEST.items() if name != "status"})


def test_jobs_are_listed_as_kubectl_lists_them() -> None:
    assert tables.jobs_table([JOB], NOW).splitlines() == [
        "NAME    STATUS   MODE         READY   AGE",
        "mnist   Failed   Collective   0/2     60s",
    ]


def test_wide_table_says_why() -> None:
    row = tables.jobs_table([JOB], NOW, wide=True, with_namespace=True).splitlines()[1]
    assert row.endswith("   mnist-worker-1 exited 137")


def test_job_without_a_status_is_listed() -> None:
    assert tables.jobs_table([NEW_JOB], NOW).splitlines()[1] == "mnist   <unknown>   <unknown>   <unknown>   60s"


def test_yaml_of_several_jobs_is_a_list() -> None:
    assert yaml.safe_load(format_manifests([MANIFEST], Format.YAML)) == MANIFEST
    assert yaml.safe_load(format_manifests([MANIFEST, MANIFEST], Format.YAML))["items"] == [MANIFEST, MANIFEST]
    assert format_manifests([MANIFEST], Format.NAME) == "paddlejob.batch.paddlepaddle.org/mnist"


def test_pods_have_state_address_and_restarts() -> None:
    assert tables.pods_table([POD], NOW).splitlines() == [
        "POD              STATE                    ADDRESS      NODE      RESTARTS   AGE",
        "mnist-worker-1   exited 137 (OOMKilled)   127.16.1.2   local-1   2          10s",
    ]


def test_events_are_one_line_with_their_count() -> None:
    assert events_table([EVENT], NOW).splitlines() == [
        "LAST SEEN   TYPE      REASON   OBJECT            MESSAGE",
        "2s (x3)     Warning   Failed   paddlejob/mnist   mnist-worker-1 exited 137",
    ]


def test_page_shows_addresses_and_why_the_job_failed() -> None:
    rendezvous = {"PADDLE_TRAINER_ENDPOINTS": "127.16.1.1:2379,127.16.1.2:2379"}
    text = "\n".join(page(JOB, [POD], [EVENT], rendezvous, NOW))
    assert "Why:         mnist-worker-1 exited 137" in text
    assert "worker:      2 desired: 1 running, 1 failed" in text
    assert "PADDLE_TRAINER_ENDPOINTS: 127.16.1.1:2379,127.16.1.2:2379" in text
    assert "Failed=True  PodFailed: mnist-worker-1 exited 137" in text


def test_page_of_a_job_without_a_status() -> None:
    text = "\n".join(page(NEW_JOB, [], [], {}, NOW))
    assert "Status:      <unknown>" in text
    assert "not all known yet" in text
