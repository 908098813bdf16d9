"""Probes: when an answer counts, and what it does to a container."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddle_operator.kube.client import Client
from paddle_operator.local.kubelet.pod import Probe
from paddle_operator.local.kubelet.probe_manager import ProbeCounter
from testbed.clock import HurriedClock
from tests.local.kubelet.bed import Bed, opened_bed, pod

SERVES = """python3 -c '
import http.server, os, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists("/signs/well") else 500)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
'"""
POD_IP = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def probe(**fields: Any) -> Probe:
    return msgspec.convert(fields, Probe)


@pytest.mark.parametrize(
    ("answers", "verdicts"),
    [
        ("+", [True]),
        ("--", [None, None]),
        ("---", [None, None, False]),
        ("--+--", [None, None, True, None, None]),
        ("----", [None, None, False, False]),
    ],
)
def test_so_many_bad_answers_in_a_row_are_a_verdict(answers: str, verdicts: list[bool | None]) -> None:
    count = ProbeCounter(probe())
    assert [count.observe(answer == "+") for answer in answers] == verdicts


def test_good_answers_may_have_to_be_several_too() -> None:
    count = ProbeCounter(probe(successThreshold=2))
    assert [count.observe(True), count.observe(True), count.observe(False), count.observe(True)] == [
        None,
        True,
        None,
        None,
    ]


async def test_a_container_is_ready_when_its_http_probe_says_so_and_no_longer_when_not(
    bed: Bed, tmp_path: Path
) -> None:
    signs = tmp_path / "signs"
    signs.mkdir()
    probe = {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60}
    own = {
        "readinessProbe": probe,
        "ports": [{"name": "web", "containerPort": 8080}],
        "env": POD_IP,
        "volumeMounts": [{"name": "signs", "mountPath": "/signs"}],
    }
    volumes = [{"name": "signs", "hostPath": {"path": str(signs)}}]
    await bed.create(pod("serves", SERVES, container=own, volumes=volumes))
    unready = await bed.running("serves")
    assert unready.condition("Ready")["status"] == "False"
    (signs / "well").touch()
    await bed.until("serves", lambda pod: pod.condition("Ready").get("status") == "True")
    (signs / "well").unlink()
    await bed.until("serves", lambda pod: pod.condition("Ready").get("status") == "False")
    assert await bed.event("serves", "Unhealthy", "HTTP probe failed with statuscode: 500")


async def test_a_container_whose_liveness_probe_fails_is_restarted(bed: Bed) -> None:
    asked = {"command": ["test", "!", "-e", "/tmp/ill"]}
    liveness = {"exec": asked, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60}
    script = "trap 'exit 0' TERM; touch /tmp/ill; while :; do sleep 0.05; done"
    await bed.create(pod("sick", script, container={"livenessProbe": liveness}, restartPolicy="Always"))
    restarted = await bed.until("sick", lambda pod: pod.container().get("restartCount") == 1)
    assert restarted.container()["lastState"]["terminated"]["exitCode"] == 0
    assert await bed.event("sick", "Killing") == "Container main failed liveness probe, will be restarted"


async def test_a_tcp_probe_asks_the_pods_own_address(bed: Bed) -> None:
    startup = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 30}
    await bed.create(pod("listens", SERVES, container={"startupProbe": startup, "env": POD_IP}))
    await bed.until("listens", lambda pod: pod.container().get("started") is True)


async def test_until_its_startup_probe_is_content_a_container_is_asked_nothing_else(
    embedded: Client, tmp_path: Path
) -> None:
    # In a hurry: a probe has 60 s of real time to answer, and a container to end.
    asked = {"command": ["test", "-e", "/tmp/up"]}
    startup = {"exec": asked, "periodSeconds": 1, "failureThreshold": 1000, "timeoutSeconds": 600}
    liveness = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    script = "trap 'exit 3' TERM; sleep 1; touch /tmp/up; while :; do sleep 0.05; done"
    own = {"startupProbe": startup, "livenessProbe": liveness}
    async with opened_bed(embedded, tmp_path / "state", "default", clock=HurriedClock(10)) as bed:
        ended = await bed.run("slow", script, container=own, terminationGracePeriodSeconds=600)
        assert ended.state()["exitCode"] == 3


async def test_a_container_that_never_starts_is_killed_by_its_startup_probe(bed: Bed) -> None:
    startup = {"exec": {"command": ["false"]}, "initialDelaySeconds": 1, "periodSeconds": 1, "failureThreshold": 1}
    script = "trap 'exit 4' TERM; while :; do sleep 0.05; done"
    ended = await bed.run("never", script, container={"startupProbe": startup})
    assert (ended.phase, ended.state()["exitCode"]) == ("Failed", 4)
    assert "failed startup probe" in await bed.event("never", "Killing")


async def test_a_probe_that_hangs_counts_as_a_bad_answer_and_leaves_no_process(bed: Bed) -> None:
    liveness = {"exec": {"command": ["sleep", "1000"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 1}
    script = "trap 'exit 5' TERM; while :; do sleep 0.05; done"
    ended = await bed.run("hangs", script, container={"livenessProbe": liveness})
    assert ended.state()["exitCode"] == 5
    assert "no response within 1 s" in await bed.event("hangs", "Unhealthy")
