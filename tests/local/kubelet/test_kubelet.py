"""Failures around a node: server outages, a full disk, shutdown and restart."""

import asyncio
import errno
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import ServerConfig, StaticServerConfig
from paddle_operator.kube.objects import Key, Manifest, Resource, T
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import BUILTIN_KINDS
from paddle_operator.local.container_logs import LogFiles
from paddle_operator.local.cri import Command, Image, ImageError, Progress, StartError
from paddle_operator.local.kubelet.projected_volume import ProjectedFile
from paddle_operator.local.sandbox.sandbox import PlainSandbox
from testbed.faults import FaultProxy
from tests.local.kubelet.harness import (
    CONFIG_MAPS,
    PODS,
    TIMEOUT_SECONDS,
    NodeHarness,
    make_config_map,
    make_pod,
    run_node,
)

RUNS_UNTIL_SIGTERM = "trap 'echo terminating; exit 7' TERM; echo started; while :; do sleep 0.05; done"
IGNORES_SIGTERM = "trap '' TERM; echo started; while :; do sleep 0.05; done"


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[tuple[FaultProxy, str]]:
    token = secrets.token_hex(8)
    async with (
        ApiServer(tmp_path / "server", BUILTIN_KINDS, token=token) as server,
        FaultProxy(StaticServerConfig(server.url, token)) as proxy,
    ):
        yield proxy, token


async def test_status_is_written_after_a_server_outage(proxy: tuple[FaultProxy, str], tmp_path: Path) -> None:
    faults, token = proxy
    go = tmp_path / "go"
    async with Client(faults.connection(token)) as client, run_node(client, tmp_path / "state", "default") as harness:
        source = {"volumes": [{"name": "data", "hostPath": {"path": str(tmp_path)}}]}
        own = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        await harness.create(
            make_pod("cut", "until test -e /data/go; do sleep 0.02; done; exit 9", container=own, **source)
        )
        await harness.wait_running("cut")
        faults.reset_connections()
        go.touch()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while harness.node.running_pods:
                await asyncio.sleep(0.01)
        faults.heal()
        ended = await harness.wait_finished("cut")
        assert ended.state()["exitCode"] == 9


class RecordingClient(Client):
    """Records each status write, and calls `before_write` right before it."""

    def __init__(self, connection: ServerConfig) -> None:
        super().__init__(connection)
        self.statuses: list[str] = []
        self.before_write: Callable[[str], Awaitable[object]] | None = None

    async def merge(self, kind: Resource[T], key: Key, change: Manifest, *, subresource: str = "") -> T:
        if kind.plural == "pods":
            phase = change["status"].get("phase", "")
            self.statuses.append(phase)
            if self.before_write:
                await self.before_write(phase)
        return await super().merge(kind, key, change, subresource=subresource)


async def test_concurrent_status_write_of_another_client_survives(embedded: Client, tmp_path: Path) -> None:
    async def add_condition(phase: str) -> None:
        if phase == "Succeeded":
            recording.before_write = None
            running = await embedded.get(PODS, Key("default", "seen"))
            conditions = [*running.status["conditions"], {"type": "example.com/Seen", "status": "True"}]
            await embedded.merge_status(PODS, running.key, {"conditions": conditions})

    async with RecordingClient(embedded.config) as recording:
        recording.before_write = add_condition
        async with run_node(recording, tmp_path / "state", "default") as harness:
            ended = await harness.run_pod("seen")
            assert ended.condition("example.com/Seen")["status"] == "True"
            assert ended.condition("Ready")["status"] == "False"
    assert recording.statuses[-2:] == ["Succeeded", "Succeeded"]


async def test_unchanged_status_is_not_written(embedded: Client, tmp_path: Path) -> None:
    async with (
        RecordingClient(embedded.config) as recording,
        run_node(recording, tmp_path / "state", "default") as harness,
    ):
        barrier = {"envFrom": [{"configMapRef": {"name": "late"}}]}
        await harness.create(make_pod("waiting", container=barrier))
        await harness.wait_until("waiting", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
        written = len(recording.statuses)
        for number in range(3):
            await embedded.merge(PODS, Key("default", "waiting"), {"metadata": {"annotations": {"n": str(number)}}})
        await harness.create(make_config_map("late", x="y"), CONFIG_MAPS)
        await harness.wait_finished("waiting")
        assert [phase for phase in recording.statuses[written:] if phase == "Pending"] == []


async def test_unschedulable_is_written_once(embedded: Client, tmp_path: Path) -> None:
    async with (
        RecordingClient(embedded.config) as recording,
        run_node(recording, tmp_path / "state", "default") as harness,
    ):
        await harness.create(make_pod("unschedulable", container={"resources": {"limits": {"nvidia.com/gpu": 1}}}))
        await harness.wait_until("unschedulable", lambda pod: bool(pod.condition("PodScheduled")))
        for number in range(3):
            await harness.run_pod(f"other-{number}")
        assert recording.statuses.count("") == 1  # a scheduler's write has no phase


async def test_shutdown_is_no_cause_for_a_pod_that_has_ended(embedded: Client, tmp_path: Path) -> None:
    async def stop(phase: str) -> None:
        if phase == "Succeeded":
            harness.node.stop()

    async with RecordingClient(embedded.config) as recording:
        recording.before_write = stop
        async with run_node(recording, tmp_path / "state", "default") as harness:
            await harness.create(make_pod("good"))
            await harness.served
    assert (await embedded.get(PODS, Key("default", "good"))).phase == "Succeeded"


async def test_second_stop_kills_at_once(embedded: Client, tmp_path: Path) -> None:
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        await harness.create(make_pod("deaf", IGNORES_SIGTERM, terminationGracePeriodSeconds=3600))
        await harness.wait_printed(await harness.wait_running("deaf"), "started")
        harness.node.stop()
        await asyncio.sleep(0.1)
        assert harness.node.running_pods == 1
        harness.node.stop()
        ended = await harness.wait_finished("deaf")
        assert ended.state()["exitCode"] == 137
    assert harness.node.running_pods == 0


async def test_node_stops_without_its_server(
    proxy: tuple[FaultProxy, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddle_operator.local.kubelet.pod_worker.FINAL_STATUS_SECONDS", 0.1)
    faults, token = proxy
    async with Client(faults.connection(token)) as client, run_node(client, tmp_path / "state", "default") as harness:
        await harness.create(make_pod("deaf", IGNORES_SIGTERM, terminationGracePeriodSeconds=3600))
        await harness.wait_printed(await harness.wait_running("deaf"), "started")
        faults.reset_connections()
        harness.node.stop()
        harness.node.stop()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await harness.served
        assert harness.node.running_pods == 0


async def test_cancelled_node_leaves_no_process(embedded: Client, tmp_path: Path) -> None:
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        await harness.create(make_pod("cut", IGNORES_SIGTERM))
        running = await harness.wait_running("cut")
        pid = int(running.container()["containerID"].rpartition("/")[2])
        os.kill(pid, 0)
        assert harness.served
        harness.served.cancel()
        with pytest.raises(asyncio.CancelledError):
            await harness.served
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_restarted_node_resumes_pending_pods_and_retains_logs(embedded: Client, tmp_path: Path) -> None:
    barrier = {"envFrom": [{"configMapRef": {"name": "late"}}]}
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        done = await harness.run_pod("done", "echo retained")
        await harness.create(make_pod("waiting", "echo started", container=barrier))
        await harness.wait_until("waiting", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
        await harness.create(make_pod("ran", RUNS_UNTIL_SIGTERM))
        await harness.wait_running("ran")
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        assert await harness.read_log(done) == "retained\n"
        await harness.create(make_config_map("late", x="y"), CONFIG_MAPS)
        assert (await harness.wait_finished("waiting")).phase == "Succeeded"
        assert (await harness.client.get(PODS, Key("default", "ran"))).status["reason"] == "NodeShutdown"
        await harness.delete("done")
        await harness.wait_deleted("done")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (tmp_path / "state/pods" / done.uid).exists():
                await asyncio.sleep(0.01)


async def test_full_disk_is_a_message_in_the_pods_status(harness: NodeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, _: Mapping[str, ProjectedFile]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    await harness.create(make_config_map("files", x="y"), CONFIG_MAPS)
    own = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "configMap": {"name": "files"}}]
    with monkeypatch.context() as patched:
        patched.setattr("paddle_operator.local.kubelet.volume_manager.write_files", full)
        await harness.create(make_pod("full", "cat /data/x", container=own, volumes=volumes))
        waiting = await harness.wait_until(
            "full", lambda pod: "No space left on device" in pod.state().get("message", "")
        )
        assert waiting.phase == "Pending"
    assert (await harness.wait_finished("full")).phase == "Succeeded"


async def test_container_waits_while_its_log_cannot_be_opened(
    harness: NodeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(LogFiles, "open", full)
        await harness.create(make_pod("mute", "echo hi"))
        waiting = await harness.wait_until("mute", lambda pod: pod.waiting_reason() == "CreateContainerError")
        assert waiting.state()["message"] == "No space left on device"
    await harness.annotate("mute", again="please")
    assert await harness.read_log(await harness.wait_finished("mute")) == "hi\n"


async def test_pod_deleted_during_its_start_leaves_no_process(embedded: Client, tmp_path: Path) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    class Slow(PlainSandbox):
        async def start(self, command: Command, output: int):  # type: ignore[no-untyped-def]
            started.set()
            await go.wait()
            return await super().start(command, output)

    async with run_node(embedded, tmp_path / "state", "default", sandbox=Slow("this is a test")) as harness:
        await harness.create(make_pod("brief", IGNORES_SIGTERM, terminationGracePeriodSeconds=1))
        await started.wait()
        await harness.delete("brief")
        await harness.wait_until("brief", lambda pod: pod.metadata.deletion_timestamp is not None)
        go.set()
        await harness.wait_deleted("brief")
        assert harness.node.running_pods == 0


async def test_sandbox_error_is_retried_by_the_restart_policy(embedded: Client, tmp_path: Path) -> None:
    class Refusing(PlainSandbox):
        refusals = 1

        async def start(self, command: Command, output: int):  # type: ignore[no-untyped-def]
            self.refusals -= 1
            if self.refusals >= 0:
                raise StartError("the machine refuses")
            return await super().start(command, output)

    async with run_node(embedded, tmp_path / "state", "default", sandbox=Refusing("this is a test")) as harness:
        ended = await harness.run_pod("refused", "exit 0", restartPolicy="OnFailure")
        assert ended.phase == "Succeeded"
        last = ended.container()["lastState"]["terminated"]
        assert (last["exitCode"], last["reason"], last["message"]) == (128, "StartError", "the machine refuses")


async def test_download_progress_is_in_the_pods_status(harness: NodeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = asyncio.Event()

    async def find(name: str, progress: Progress) -> Image:
        progress("downloading paddlepaddle (30 of 126 MB)")
        await arrived.wait()
        return Image(name)

    monkeypatch.setattr(harness.images, "find", find)
    await harness.create(make_pod("large", "exit 0"))
    waiting = await harness.wait_until("large", lambda pod: "30 of 126 MB" in pod.state().get("message", ""))
    assert waiting.waiting_reason() == "ContainerCreating"
    arrived.set()
    assert (await harness.wait_finished("large")).phase == "Succeeded"


async def test_invalid_image_name_remains_the_reason(harness: NodeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(_name: str, _progress: Progress) -> Image:
        raise ImageError("InvalidImageName", "a name has no capital letters")

    monkeypatch.setattr(harness.images, "find", find)
    await harness.create(make_pod("wrong"))
    waiting = await harness.wait_until("wrong", lambda pod: pod.waiting_reason() == "InvalidImageName")
    assert waiting.state()["message"] == "a name has no capital letters"
