"""Probes: when a result counts, and its effect on the container."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddle_operator.kube.client import Client
from paddle_operator.local.kubelet.pod import Probe
from paddle_operator.local.kubelet.probe_manager import ProbeCounter
from testbed.clock import AcceleratedClock
from tests.local.kubelet.harness import NodeHarness, make_pod, run_node

SERVES = """python3 -c '
import http.server, os, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists("/signals/healthy") else 500)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
'"""
POD_IP = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def make_probe(**fields: Any) -> Probe:
    return msgspec.convert(fields, Probe)


@pytest.mark.parametrize(
    ("results", "decisions"),
    [
        ("+", [True]),
        ("--", [None, None]),
        ("---", [None, None, False]),
        ("--+--", [None, None, True, None, None]),
        ("----", [None, None, False, False]),
    ],
)
def test_failure_threshold_counts_failures_in_a_row(results: str, decisions: list[bool | None]) -> None:
    counter = ProbeCounter(make_probe())
    assert [counter.observe(result == "+") for result in results] == decisions


def test_success_threshold_counts_successes_in_a_row() -> None:
    counter = ProbeCounter(make_probe(successThreshold=2))
    assert [counter.observe(True), counter.observe(True), counter.observe(False), counter.observe(True)] == [
        None,
        True,
        None,
        None,
    ]


async def test_http_readiness_probe_sets_and_clears_ready(harness: NodeHarness, tmp_path: Path) -> None:
    signals = tmp_path / "signals"
    signals.mkdir()
    probe = {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60}
    own = {
        "readinessProbe": probe,
        "ports": [{"name": "web", "containerPort": 8080}],
        "env": POD_IP,
        "volumeMounts": [{"name": "signals", "mountPath": "/signals"}],
    }
    volumes = [{"name": "signals", "hostPath": {"path": str(signals)}}]
    await harness.create(make_pod("serves", SERVES, container=own, volumes=volumes))
    unready = await harness.wait_running("serves")
    assert unready.condition("Ready")["status"] == "False"
    (signals / "healthy").touch()
    await harness.wait_until("serves", lambda pod: pod.condition("Ready").get("status") == "True")
    (signals / "healthy").unlink()
    await harness.wait_until("serves", lambda pod: pod.condition("Ready").get("status") == "False")
    assert await harness.wait_event("serves", "Unhealthy", "HTTP probe failed with statuscode: 500")


async def test_failed_liveness_probe_restarts_the_container(harness: NodeHarness) -> None:
    command = {"command": ["test", "!", "-e", "/tmp/failing"]}
    liveness = {"exec": command, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60}
    script = "trap 'exit 0' TERM; touch /tmp/failing; while :; do sleep 0.05; done"
    await harness.create(make_pod("sick", script, container={"livenessProbe": liveness}, restartPolicy="Always"))
    restarted = await harness.wait_until("sick", lambda pod: pod.container().get("restartCount") == 1)
    assert restarted.container()["lastState"]["terminated"]["exitCode"] == 0
    assert await harness.wait_event("sick", "Killing") == "Container main failed liveness probe, will be restarted"


async def test_tcp_probe_connects_to_the_pods_address(harness: NodeHarness) -> None:
    startup = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 30}
    await harness.create(make_pod("listens", SERVES, container={"startupProbe": startup, "env": POD_IP}))
    await harness.wait_until("listens", lambda pod: pod.container().get("started") is True)


async def test_liveness_probe_waits_for_the_startup_probe(embedded: Client, tmp_path: Path) -> None:
    # With the clock ten times faster a probe still has 60 s of real time, as has the termination.
    command = {"command": ["test", "-e", "/tmp/up"]}
    startup = {"exec": command, "periodSeconds": 1, "failureThreshold": 1000, "timeoutSeconds": 600}
    liveness = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    script = "trap 'exit 3' TERM; sleep 1; touch /tmp/up; while :; do sleep 0.05; done"
    own = {"startupProbe": startup, "livenessProbe": liveness}
    async with run_node(embedded, tmp_path / "state", "default", clock=AcceleratedClock(10)) as harness:
        ended = await harness.run_pod("slow", script, container=own, terminationGracePeriodSeconds=600)
        assert ended.state()["exitCode"] == 3


async def test_failed_startup_probe_kills_the_container(harness: NodeHarness) -> None:
    startup = {"exec": {"command": ["false"]}, "initialDelaySeconds": 1, "periodSeconds": 1, "failureThreshold": 1}
    script = "trap 'exit 4' TERM; while :; do sleep 0.05; done"
    ended = await harness.run_pod("never", script, container={"startupProbe": startup})
    assert (ended.phase, ended.state()["exitCode"]) == ("Failed", 4)
    assert "failed startup probe" in await harness.wait_event("never", "Killing")


async def test_probe_that_times_out_is_a_failure(harness: NodeHarness) -> None:
    liveness = {"exec": {"command": ["sleep", "1000"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 1}
    script = "trap 'exit 5' TERM; while :; do sleep 0.05; done"
    ended = await harness.run_pod("hangs", script, container={"livenessProbe": liveness})
    assert ended.state()["exitCode"] == 5
    assert "no response within 1 s" in await harness.wait_event("hangs", "Unhealthy")
