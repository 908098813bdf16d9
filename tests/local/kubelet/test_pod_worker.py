"""Pods with real processes: start, exit, restart, deletion, deadline, shutdown."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.container_worker import RestartBackoff
from testbed.clock import AcceleratedClock, OffsetClock
from tests.local.kubelet.harness import PODS, NodeHarness, RawObject, make_pod, run_node

RUNS_UNTIL_SIGTERM = "trap 'echo terminating; exit 7' TERM; echo started; while :; do sleep 0.05; done"
IGNORES_SIGTERM = "trap '' TERM; echo started; while :; do sleep 0.05; done"


def has_message(text: str) -> Callable[[RawObject], bool]:
    return lambda pod: text in pod.state().get("message", "")


async def test_pod_that_exits_zero_succeeds(harness: NodeHarness) -> None:
    ended = await harness.run_pod("good", "echo hello; exit 0")
    assert ended.phase == "Succeeded"
    assert ended.state()["exitCode"] == 0
    assert ended.state()["reason"] == "Completed"
    assert ended.condition("Initialized")["reason"] == "PodCompleted"
    assert ended.condition("Ready")["status"] == "False"
    assert await harness.read_log(ended) == "hello\n"


async def test_failed_pod_reports_its_exit_code(harness: NodeHarness) -> None:
    ended = await harness.run_pod("bad", "exit 3")
    assert (ended.phase, ended.state()["exitCode"], ended.state()["reason"]) == ("Failed", 3, "Error")


async def test_killed_process_exits_with_137(harness: NodeHarness) -> None:
    await harness.create(make_pod("killed", RUNS_UNTIL_SIGTERM))
    running = await harness.wait_running("killed")
    os.kill(int(running.container()["containerID"].rpartition("/")[2]), signal.SIGKILL)
    ended = await harness.wait_finished("killed")
    assert (ended.phase, ended.state()["exitCode"]) == ("Failed", 137)


async def test_running_pod_is_ready_and_has_an_address_of_the_block(harness: NodeHarness) -> None:
    await harness.create(make_pod("waits", RUNS_UNTIL_SIGTERM))
    running = await harness.wait_running("waits")
    assert running.address.startswith(f"127.{harness.block.number}.1.")
    assert running.status["hostIP"] == f"127.{harness.block.number}.0.1"
    assert running.spec["nodeName"] == "local-1"
    for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        assert running.condition(kind)["status"] == "True", kind
    assert running.container()["started"] is True


async def test_missing_program_is_a_start_error_with_code_128(harness: NodeHarness) -> None:
    ended = await harness.run_pod("typo", container={"command": ["pyhton3", "train.py"]})
    assert ended.phase == "Failed"
    assert (ended.state()["exitCode"], ended.state()["reason"]) == (128, "StartError")
    assert 'exec: "pyhton3": executable file not found in $PATH' in ended.state()["message"]
    assert "pyhton3" in await harness.wait_event("typo", "Failed")


async def test_unknown_image_is_pulled_again_after_a_backoff(embedded: Client, tmp_path: Path) -> None:
    async with run_node(embedded, tmp_path / "state", "default", clock=AcceleratedClock(50)) as harness:
        await harness.create(make_pod("imageless", container={"image": "unknown"}))
        waiting = await harness.wait_until("imageless", lambda pod: pod.waiting_reason() == "ImagePullBackOff")
        assert "unknown image unknown" in waiting.state()["message"]
        assert waiting.phase == "Pending"
        harness.images.known["unknown"] = harness.images.known["python"]
        assert (await harness.wait_finished("imageless")).phase == "Succeeded"
    assert harness.images.requested.count("unknown") >= 2


async def test_init_containers_run_in_order_before_the_others(harness: NodeHarness) -> None:
    def step(name: str) -> dict[str, Any]:
        mounts = [{"name": "shared", "mountPath": "/shared"}]
        script = f"test $(ls /shared | wc -l) = {name[-1]} && touch /shared/{name}"
        return {"name": name, "image": "python", "command": ["sh", "-c", script], "volumeMounts": mounts}

    ended = await harness.run_pod(
        "ordered",
        container=step("last-2") | {"name": "main"},
        initContainers=[step("first-0"), step("second-1")],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    assert ended.phase == "Succeeded"
    assert ended.container("second-1")["ready"] is True


async def test_failed_init_container_fails_the_pod(harness: NodeHarness) -> None:
    init = {"name": "first", "image": "python", "command": ["sh", "-c", "exit 5"]}
    ended = await harness.run_pod("barred", initContainers=[init])
    assert ended.phase == "Failed"
    assert ended.state("first")["exitCode"] == 5
    assert ended.waiting_reason() == "PodInitializing"
    assert ended.condition("Initialized")["status"] == "False"


async def test_sidecar_starts_before_and_ends_after_the_containers(harness: NodeHarness) -> None:
    sidecar = {
        "name": "aside",
        "image": "python",
        "restartPolicy": "Always",
        "command": ["sh", "-c", "trap 'echo last; exit 0' TERM; touch /shared/there; while :; do sleep 0.05; done"],
        "startupProbe": {
            "exec": {"command": ["test", "-e", "/shared/there"]},
            "periodSeconds": 1,
            "timeoutSeconds": 60,
            "failureThreshold": 60,
        },
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    ended = await harness.run_pod(
        "aided",
        "test -e /shared/there",
        container={"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
        initContainers=[sidecar],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    assert ended.phase == "Succeeded"
    assert await harness.read_log(ended, "aside") == "last\n"


async def test_pod_runs_until_both_containers_have_exited(harness: NodeHarness) -> None:
    manifest = make_pod("pair", "exit 4")
    manifest["spec"]["containers"].append(
        {"name": "other", "image": "python", "command": ["sh", "-c", RUNS_UNTIL_SIGTERM]}
    )
    await harness.create(manifest)
    running = await harness.wait_until("pair", lambda pod: pod.phase == "Running" and pod.state().get("exitCode") == 4)
    await harness.wait_printed(running, "started", "other")
    assert running.condition("Ready")["message"] == "containers with unready status: [main]"
    await harness.client.merge(PODS, Key(harness.namespace, "pair"), {"spec": {"activeDeadlineSeconds": 1}})
    ended = await harness.wait_finished("pair")
    assert (ended.state("other")["exitCode"], ended.state()["exitCode"]) == (7, 4)


async def test_restarts_are_delayed_by_0_10_20_40_seconds(embedded: Client, tmp_path: Path) -> None:
    clock = OffsetClock()  # a delay lasts until it was observed
    async with run_node(embedded, tmp_path / "state", "default", clock=clock) as harness:
        await harness.create(make_pod("backoff", "exit 1", restartPolicy="Always"))
        for seconds in (10, 20, 40):
            crashed = await harness.wait_until("backoff", has_message(f"back-off {seconds}s "))
            assert crashed.waiting_reason() == "CrashLoopBackOff"
            assert crashed.phase == "Running"
            assert crashed.container()["lastState"]["terminated"]["exitCode"] == 1
            if seconds < 40:
                clock.advance(timedelta(seconds=seconds))
        assert crashed.container()["restartCount"] == 3
        assert "Back-off restarting failed container main" in await harness.wait_event("backoff", "BackOff")


def test_restart_backoff_doubles_and_resets_after_ten_minutes() -> None:
    backoff = RestartBackoff()
    assert [backoff.next_delay(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert [backoff.next_delay(seconds) for seconds in (600, 599, 1)] == [0, 10, 20]


async def test_on_failure_restarts_until_the_container_succeeds(harness: NodeHarness) -> None:
    script = "test -e /shared/tried && exit 0; touch /shared/tried; exit 9"
    ended = await harness.run_pod(
        "retried",
        script,
        container={"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
        restartPolicy="OnFailure",
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    assert ended.phase == "Succeeded"
    assert ended.container()["restartCount"] == 1
    assert ended.container()["lastState"]["terminated"]["exitCode"] == 9


async def test_deleted_pod_gets_sigterm_before_its_object_is_removed(harness: NodeHarness) -> None:
    await harness.create(make_pod("leaves", RUNS_UNTIL_SIGTERM))
    running = await harness.wait_running("leaves")
    await harness.wait_printed(running, "started")
    await harness.delete("leaves")
    ended = await harness.wait_until("leaves", lambda pod: "exitCode" in pod.state())
    assert (ended.phase, ended.state()["exitCode"]) == ("Failed", 7)
    await harness.wait_deleted("leaves")
    await harness.wait_removed(running)


async def test_program_that_ignores_sigterm_is_killed(harness: NodeHarness) -> None:
    await harness.create(make_pod("deaf", IGNORES_SIGTERM, terminationGracePeriodSeconds=1))
    await harness.wait_printed(await harness.wait_running("deaf"), "started")
    await harness.delete("deaf")
    ended = await harness.wait_until("deaf", lambda pod: "exitCode" in pod.state())
    assert ended.state()["exitCode"] == 137
    await harness.wait_deleted("deaf")


async def test_second_deletion_shortens_the_grace_period(harness: NodeHarness) -> None:
    await harness.create(make_pod("stubborn", IGNORES_SIGTERM, terminationGracePeriodSeconds=3600))
    await harness.wait_printed(await harness.wait_running("stubborn"), "started")
    await harness.delete("stubborn")
    await harness.wait_until("stubborn", lambda pod: pod.metadata.deletion_timestamp is not None)
    await harness.delete("stubborn", grace_seconds=1)
    await harness.wait_deleted("stubborn")


async def test_force_deleted_pod_leaves_no_process(harness: NodeHarness) -> None:
    await harness.create(
        make_pod(
            "forced",
            f"echo $$ > /shared/pid; {IGNORES_SIGTERM}",
            container={"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
            volumes=[{"name": "shared", "emptyDir": {}}],
        )
    )
    running = await harness.wait_running("forced")
    await harness.wait_printed(running, "started")
    await harness.delete("forced", grace_seconds=0)
    await harness.wait_deleted("forced")
    await harness.wait_removed(running)
    assert not harness.node.running_pods


async def test_patched_deadline_ends_the_pod_with_its_exit_code(harness: NodeHarness) -> None:
    await harness.create(make_pod("limited", RUNS_UNTIL_SIGTERM))
    await harness.wait_printed(await harness.wait_running("limited"), "started")
    await harness.client.merge(PODS, Key(harness.namespace, "limited"), {"spec": {"activeDeadlineSeconds": 1}})
    ended = await harness.wait_finished("limited")
    assert (ended.phase, ended.status["reason"]) == ("Failed", "DeadlineExceeded")
    assert ended.state()["exitCode"] == 7
    assert await harness.read_log(ended) == "started\nterminating\n"


async def test_exceeded_memory_limit_is_oomkilled(harness: NodeHarness) -> None:
    script = "python3 -c 'x = bytearray(300 * 1024 * 1024)'"
    ended = await harness.run_pod("hungry", script, container={"resources": {"limits": {"memory": "64Mi"}}})
    assert (ended.state()["exitCode"], ended.state()["reason"]) == (137, "OOMKilled")


async def test_hooks_run_after_start_and_before_sigterm(harness: NodeHarness) -> None:
    def appends(word: str) -> dict[str, Any]:
        return {"exec": {"command": ["sh", "-c", f"echo {word} >> /shared/story"]}}

    script = (
        "trap 'cat /shared/story; exit 0' TERM; while :; do test -e /shared/story && echo started; sleep 0.05; done"
    )
    lifecycle = {"postStart": appends("hello"), "preStop": appends("goodbye")}
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    await harness.create(
        make_pod(
            "polite",
            script,
            container={"lifecycle": lifecycle, "volumeMounts": mounts},
            volumes=[{"name": "shared", "emptyDir": {}}],
            activeDeadlineSeconds=3600,
        )
    )
    await harness.wait_printed(await harness.wait_running("polite"), "started")
    await harness.client.merge(PODS, Key(harness.namespace, "polite"), {"spec": {"activeDeadlineSeconds": 1}})
    ended = await harness.wait_finished("polite")
    assert (await harness.read_log(ended)).endswith("hello\ngoodbye\n")


async def test_termination_log_is_the_message(harness: NodeHarness) -> None:
    ended = await harness.run_pod("speaks", "echo -n last words > /dev/termination-log; exit 1")
    assert ended.state()["message"] == "last words"


async def test_log_is_the_message_with_fallback_policy(harness: NodeHarness) -> None:
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    ended = await harness.run_pod("mumbles", "echo one; echo two; exit 1", container=policy)
    assert ended.state()["message"] == "one\ntwo\n"


async def test_pod_events_in_order(harness: NodeHarness) -> None:
    await harness.run_pod("observed")
    await harness.wait_event("observed", "Started")
    await harness.wait_event("observed", "Scheduled")  # from another recorder: it may arrive after the others
    reasons = [reason for reason, _ in await harness.events("observed") if reason != "Scheduled"]
    assert reasons == ["Pulled", "Created", "Started"]


async def test_node_shutdown_terminates_pods_with_grace(embedded: Client, tmp_path: Path) -> None:
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        await harness.create(make_pod("shut", RUNS_UNTIL_SIGTERM))
        await harness.create(make_pod("waiting", container={"envFrom": [{"configMapRef": {"name": "absent"}}]}))
        await harness.wait_printed(await harness.wait_running("shut"), "started")
        await harness.wait_until("waiting", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
        harness.node.stop()
        ended = await harness.wait_finished("shut")
        assert (ended.state()["exitCode"], ended.status["reason"]) == (7, "NodeShutdown")
    waiting = await embedded.get(PODS, Key("default", "waiting"))
    assert (waiting.phase, waiting.waiting_reason()) == ("Pending", "CreateContainerConfigError")


async def test_pods_of_a_killed_node_are_reported_lost(embedded: Client, tmp_path: Path) -> None:
    async with run_node(embedded, tmp_path / "other", "default") as harness:
        await harness.create(make_pod("mine", RUNS_UNTIL_SIGTERM))
        lost = await harness.wait_running("mine")
        copy = {"metadata": {"resourceVersion": None}, "status": lost.status}
    await embedded.delete(PODS, Key("default", "mine"), grace_seconds=0)
    manifest = make_pod("mine", RUNS_UNTIL_SIGTERM, nodeName="local-1")
    manifest["metadata"]["namespace"] = "default"
    again = await embedded.create(PODS, manifest)
    await embedded.merge(PODS, Key("default", "mine"), copy, subresource="status")
    secret, memory = tmp_path / "state/pods" / again.uid / "_volumes", Path(f"/dev/shm/paddle-operator-{again.uid}")
    for leftover in (secret, memory):
        leftover.mkdir(parents=True)
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        ended = await harness.wait_finished("mine")
        assert (ended.phase, ended.status["reason"]) == ("Failed", "Lost")
        assert (ended.state()["exitCode"], ended.state()["reason"]) == (137, "Lost")
        assert "the local cluster was stopped" in ended.state()["message"]
        assert ended.state()["startedAt"]
        assert ended.container()["containerID"] == lost.container()["containerID"]
        assert not memory.exists()
        assert not secret.exists()


async def test_internal_error_fails_only_that_pod(harness: NodeHarness) -> None:
    harness.images.known["broken"] = None  # type: ignore[assignment]
    ended = await harness.run_pod("unlucky", container={"image": "broken"})
    assert (ended.phase, ended.status["reason"]) == ("Failed", "NodeDefect")
    assert "AttributeError" in ended.status["message"]
    assert (await harness.run_pod("lucky")).phase == "Succeeded"
