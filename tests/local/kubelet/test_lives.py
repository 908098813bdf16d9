"""Lives of pods with real processes behind them: starts, ends, restarts, deletions, deadlines."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.container_worker import RestartBackoff
from testbed.clock import HurriedClock, LeapingClock
from tests.local.kubelet.bed import PODS, Bed, Whole, opened_bed, pod

WAITS = "trap 'echo told; exit 7' TERM; echo begun; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


def says(text: str) -> Callable[[Whole], bool]:
    return lambda pod: text in pod.state().get("message", "")


async def test_a_pod_that_ends_well_has_succeeded(bed: Bed) -> None:
    ended = await bed.run("good", "echo hello; exit 0")
    assert ended.phase == "Succeeded"
    assert ended.state()["exitCode"] == 0
    assert ended.state()["reason"] == "Completed"
    assert ended.condition("Initialized")["reason"] == "PodCompleted"
    assert ended.condition("Ready")["status"] == "False"
    assert await bed.log(ended) == "hello\n"


async def test_a_pod_that_fails_keeps_its_exit_code(bed: Bed) -> None:
    ended = await bed.run("bad", "exit 3")
    assert (ended.phase, ended.state()["exitCode"], ended.state()["reason"]) == ("Failed", 3, "Error")


async def test_a_process_that_is_killed_ends_with_137(bed: Bed) -> None:
    await bed.create(pod("killed", WAITS))
    running = await bed.running("killed")
    os.kill(int(running.container()["containerID"].rpartition("/")[2]), signal.SIGKILL)
    ended = await bed.finished("killed")
    assert (ended.phase, ended.state()["exitCode"]) == ("Failed", 137)


async def test_a_running_pod_is_ready_and_has_an_address_of_the_clusters_block(bed: Bed) -> None:
    await bed.create(pod("waits", WAITS))
    running = await bed.running("waits")
    assert running.address.startswith(f"127.{bed.block.number}.1.")
    assert running.status["hostIP"] == f"127.{bed.block.number}.0.1"
    assert running.spec["nodeName"] == "local-1"
    for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        assert running.condition(kind)["status"] == "True", kind
    assert running.container()["started"] is True


async def test_a_program_that_does_not_exist_is_a_start_error_with_code_128(bed: Bed) -> None:
    ended = await bed.run("typo", container={"command": ["pyhton3", "train.py"]})
    assert ended.phase == "Failed"
    assert (ended.state()["exitCode"], ended.state()["reason"]) == (128, "StartError")
    assert 'exec: "pyhton3": executable file not found in $PATH' in ended.state()["message"]
    assert "pyhton3" in await bed.event("typo", "Failed")


async def test_an_unknown_image_is_told_and_asked_for_again_after_a_back_off(embedded: Client, tmp_path: Path) -> None:
    async with opened_bed(embedded, tmp_path / "state", "default", clock=HurriedClock(50)) as bed:
        await bed.create(pod("imageless", container={"image": "nobodys"}))
        waiting = await bed.until("imageless", lambda pod: pod.waits() == "ImagePullBackOff")
        assert "nobody knows the image nobodys" in waiting.state()["message"]
        assert waiting.phase == "Pending"
        bed.images.known["nobodys"] = bed.images.known["python"]
        assert (await bed.finished("imageless")).phase == "Succeeded"
    assert bed.images.asked.count("nobodys") >= 2


async def test_init_containers_run_one_after_the_other_before_the_others(bed: Bed) -> None:
    def step(name: str) -> dict[str, Any]:
        mounts = [{"name": "shared", "mountPath": "/shared"}]
        script = f"test $(ls /shared | wc -l) = {name[-1]} && touch /shared/{name}"
        return {"name": name, "image": "python", "command": ["sh", "-c", script], "volumeMounts": mounts}

    ended = await bed.run(
        "ordered",
        container=step("last-2") | {"name": "main"},
        initContainers=[step("first-0"), step("second-1")],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    assert ended.phase == "Succeeded"
    assert ended.container("second-1")["ready"] is True


async def test_a_failed_init_container_fails_the_pod_and_nothing_else_starts(bed: Bed) -> None:
    init = {"name": "first", "image": "python", "command": ["sh", "-c", "exit 5"]}
    ended = await bed.run("barred", initContainers=[init])
    assert ended.phase == "Failed"
    assert ended.state("first")["exitCode"] == 5
    assert ended.waits() == "PodInitializing"
    assert ended.condition("Initialized")["status"] == "False"


async def test_a_sidecar_is_there_before_the_containers_and_ended_after_them(bed: Bed) -> None:
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
    ended = await bed.run(
        "aided",
        "test -e /shared/there",
        container={"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
        initContainers=[sidecar],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    assert ended.phase == "Succeeded"
    assert await bed.log(ended, "aside") == "last\n"


async def test_a_pod_with_two_containers_runs_until_both_have_ended(bed: Bed) -> None:
    manifest = pod("pair", "exit 4")
    manifest["spec"]["containers"].append({"name": "other", "image": "python", "command": ["sh", "-c", WAITS]})
    await bed.create(manifest)
    running = await bed.until("pair", lambda pod: pod.phase == "Running" and pod.state().get("exitCode") == 4)
    await bed.printed(running, "begun", "other")
    assert running.condition("Ready")["message"] == "containers with unready status: [main]"
    await bed.client.merge(PODS, Key(bed.namespace, "pair"), {"spec": {"activeDeadlineSeconds": 1}})
    ended = await bed.finished("pair")
    assert (ended.state("other")["exitCode"], ended.state()["exitCode"]) == (7, 4)


async def test_restarts_come_at_once_and_then_after_10_20_40_seconds(embedded: Client, tmp_path: Path) -> None:
    clock = LeapingClock()  # a pause lasts until it has been seen
    async with opened_bed(embedded, tmp_path / "state", "default", clock=clock) as bed:
        await bed.create(pod("backoff", "exit 1", restartPolicy="Always"))
        for seconds in (10, 20, 40):
            crashed = await bed.until("backoff", says(f"back-off {seconds}s "))
            assert crashed.waits() == "CrashLoopBackOff"
            assert crashed.phase == "Running"
            assert crashed.container()["lastState"]["terminated"]["exitCode"] == 1
            if seconds < 40:
                clock.leap(timedelta(seconds=seconds))
        assert crashed.container()["restartCount"] == 3
        assert "Back-off restarting failed container main" in await bed.event("backoff", "BackOff")


def test_the_pauses_between_restarts_double_up_to_five_minutes_and_begin_anew_after_ten_quiet_ones() -> None:
    backoff = RestartBackoff()
    assert [backoff.next_delay(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert [backoff.next_delay(seconds) for seconds in (600, 599, 1)] == [0, 10, 20]


async def test_on_failure_a_container_is_restarted_until_it_ends_well(bed: Bed) -> None:
    script = "test -e /shared/tried && exit 0; touch /shared/tried; exit 9"
    ended = await bed.run(
        "retried",
        script,
        container={"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
        restartPolicy="OnFailure",
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    assert ended.phase == "Succeeded"
    assert ended.container()["restartCount"] == 1
    assert ended.container()["lastState"]["terminated"]["exitCode"] == 9


async def test_a_deleted_pod_gets_sigterm_and_its_object_goes_when_it_has_ended(bed: Bed) -> None:
    await bed.create(pod("leaves", WAITS))
    running = await bed.running("leaves")
    await bed.printed(running, "begun")
    await bed.delete("leaves")
    ended = await bed.until("leaves", lambda pod: "exitCode" in pod.state())
    assert (ended.phase, ended.state()["exitCode"]) == ("Failed", 7)
    await bed.gone("leaves")
    await bed.swept(running)


async def test_a_program_that_is_deaf_to_sigterm_is_killed_after_the_grace_period(bed: Bed) -> None:
    await bed.create(pod("deaf", DEAF, terminationGracePeriodSeconds=1))
    await bed.printed(await bed.running("deaf"), "begun")
    await bed.delete("deaf")
    ended = await bed.until("deaf", lambda pod: "exitCode" in pod.state())
    assert ended.state()["exitCode"] == 137
    await bed.gone("deaf")


async def test_a_second_deletion_may_cut_the_grace_short(bed: Bed) -> None:
    await bed.create(pod("stubborn", DEAF, terminationGracePeriodSeconds=3600))
    await bed.printed(await bed.running("stubborn"), "begun")
    await bed.delete("stubborn")
    await bed.until("stubborn", lambda pod: pod.metadata.deletion_timestamp is not None)
    await bed.delete("stubborn", grace_seconds=1)
    await bed.gone("stubborn")


async def test_a_pod_that_is_deleted_by_force_leaves_no_process(bed: Bed) -> None:
    await bed.create(
        pod(
            "forced",
            f"echo $$ > /shared/pid; {DEAF}",
            container={"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
            volumes=[{"name": "shared", "emptyDir": {}}],
        )
    )
    running = await bed.running("forced")
    await bed.printed(running, "begun")
    await bed.delete("forced", grace_seconds=0)
    await bed.gone("forced")
    await bed.swept(running)
    assert not bed.node.running_pods


async def test_a_deadline_that_is_patched_onto_a_running_pod_ends_it_with_its_true_code(bed: Bed) -> None:
    await bed.create(pod("limited", WAITS))
    await bed.printed(await bed.running("limited"), "begun")
    await bed.client.merge(PODS, Key(bed.namespace, "limited"), {"spec": {"activeDeadlineSeconds": 1}})
    ended = await bed.finished("limited")
    assert (ended.phase, ended.status["reason"]) == ("Failed", "DeadlineExceeded")
    assert ended.state()["exitCode"] == 7
    assert await bed.log(ended) == "begun\ntold\n"


async def test_a_memory_limit_that_is_exceeded_is_told_as_oomkilled(bed: Bed) -> None:
    script = "python3 -c 'x = bytearray(300 * 1024 * 1024)'"
    ended = await bed.run("hungry", script, container={"resources": {"limits": {"memory": "64Mi"}}})
    assert (ended.state()["exitCode"], ended.state()["reason"]) == (137, "OOMKilled")


async def test_hooks_run_after_the_start_and_before_the_end(bed: Bed) -> None:
    def appends(word: str) -> dict[str, Any]:
        return {"exec": {"command": ["sh", "-c", f"echo {word} >> /shared/story"]}}

    script = "trap 'cat /shared/story; exit 0' TERM; while :; do test -e /shared/story && echo begun; sleep 0.05; done"
    lifecycle = {"postStart": appends("hello"), "preStop": appends("goodbye")}
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    await bed.create(
        pod(
            "polite",
            script,
            container={"lifecycle": lifecycle, "volumeMounts": mounts},
            volumes=[{"name": "shared", "emptyDir": {}}],
            activeDeadlineSeconds=3600,
        )
    )
    await bed.printed(await bed.running("polite"), "begun")
    await bed.client.merge(PODS, Key(bed.namespace, "polite"), {"spec": {"activeDeadlineSeconds": 1}})
    ended = await bed.finished("polite")
    assert (await bed.log(ended)).endswith("hello\ngoodbye\n")


async def test_what_a_container_writes_to_its_termination_log_is_its_message(bed: Bed) -> None:
    ended = await bed.run("speaks", "echo -n last words > /dev/termination-log; exit 1")
    assert ended.state()["message"] == "last words"


async def test_the_end_of_the_log_is_the_message_where_the_policy_says_so(bed: Bed) -> None:
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    ended = await bed.run("mumbles", "echo one; echo two; exit 1", container=policy)
    assert ended.state()["message"] == "one\ntwo\n"


async def test_a_pod_tells_its_story_in_events(bed: Bed) -> None:
    await bed.run("told")
    await bed.event("told", "Started")
    await bed.event("told", "Scheduled")  # whose teller is another: it may be heard after the others
    reasons = [reason for reason, _ in await bed.events("told") if reason != "Scheduled"]
    assert reasons == ["Pulled", "Created", "Started"]


async def test_a_pod_that_is_stopped_with_the_node_ends_with_grace_and_is_failed(
    embedded: Client, tmp_path: Path
) -> None:
    async with opened_bed(embedded, tmp_path / "state", "default") as bed:
        await bed.create(pod("shut", WAITS))
        await bed.create(pod("held", container={"envFrom": [{"configMapRef": {"name": "absent"}}]}))
        await bed.printed(await bed.running("shut"), "begun")
        await bed.until("held", lambda pod: pod.waits() == "CreateContainerConfigError")
        bed.node.stop()
        ended = await bed.finished("shut")
        assert (ended.state()["exitCode"], ended.status["reason"]) == (7, "NodeShutdown")
    held = await embedded.get(PODS, Key("default", "held"))
    assert (held.phase, held.waits()) == ("Pending", "CreateContainerConfigError")


async def test_pods_that_ran_when_an_earlier_node_died_are_reported_lost(embedded: Client, tmp_path: Path) -> None:
    async with opened_bed(embedded, tmp_path / "other", "default") as bed:
        await bed.create(pod("mine", WAITS))
        lost = await bed.running("mine")
        copy = {"metadata": {"resourceVersion": None}, "status": lost.status}
    await embedded.delete(PODS, Key("default", "mine"), grace_seconds=0)
    manifest = pod("mine", WAITS, nodeName="local-1")
    manifest["metadata"]["namespace"] = "default"
    again = await embedded.create(PODS, manifest)
    await embedded.merge(PODS, Key("default", "mine"), copy, subresource="status")
    secret, memory = tmp_path / "state/pods" / again.uid / "_volumes", Path(f"/dev/shm/paddle-operator-{again.uid}")
    for leftover in (secret, memory):
        leftover.mkdir(parents=True)
    async with opened_bed(embedded, tmp_path / "state", "default") as bed:
        ended = await bed.finished("mine")
        assert (ended.phase, ended.status["reason"]) == ("Failed", "Lost")
        assert (ended.state()["exitCode"], ended.state()["reason"]) == (137, "Lost")
        assert "the local cluster was stopped" in ended.state()["message"]
        assert ended.state()["startedAt"]
        assert ended.container()["containerID"] == lost.container()["containerID"]
        assert not memory.exists()
        assert not secret.exists()


async def test_a_defect_in_one_pods_life_fails_that_pod_and_no_other(bed: Bed) -> None:
    bed.images.known["broken"] = None  # type: ignore[assignment]
    ended = await bed.run("unlucky", container={"image": "broken"})
    assert (ended.phase, ended.status["reason"]) == ("Failed", "NodeDefect")
    assert "AttributeError" in ended.status["message"]
    assert (await bed.run("lucky")).phase == "Succeeded"
