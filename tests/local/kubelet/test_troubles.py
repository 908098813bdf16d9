"""What goes wrong around a node: a server out of reach, a full disk, an end in the middle, a start after that."""

import asyncio
import errno
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import Connection, PlainConnection
from paddle_operator.kube.objects import Key, Manifest, Resource, T
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import KINDS
from paddle_operator.local.container_logs import LogFiles
from paddle_operator.local.cri import Command, Image, ImageError, Progress, StartError
from paddle_operator.local.kubelet.projected_volume import ProjectedFile
from paddle_operator.local.sandbox.sandbox import PlainSandbox
from testbed.faults import FaultProxy
from tests.local.kubelet.bed import CONFIG_MAPS, PATIENCE_SECONDS, PODS, Bed, config_map, opened_bed, pod

WAITS = "trap 'echo told; exit 7' TERM; echo begun; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[tuple[FaultProxy, str]]:
    token = secrets.token_hex(8)
    async with (
        ApiServer(tmp_path / "server", KINDS, token=token) as server,
        FaultProxy(PlainConnection(server.url, token)) as proxy,
    ):
        yield proxy, token


async def test_what_happens_while_the_server_is_out_of_reach_is_told_afterwards(
    proxy: tuple[FaultProxy, str], tmp_path: Path
) -> None:
    faults, token = proxy
    go = tmp_path / "go"
    async with Client(faults.connection(token)) as client, opened_bed(client, tmp_path / "state", "default") as bed:
        source = {"volumes": [{"name": "data", "hostPath": {"path": str(tmp_path)}}]}
        own = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        await bed.create(pod("cut", "until test -e /data/go; do sleep 0.02; done; exit 9", container=own, **source))
        await bed.running("cut")
        faults.deny()
        go.touch()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while bed.node.running_pods:
                await asyncio.sleep(0.01)
        faults.heal()
        ended = await bed.finished("cut")
        assert ended.state()["exitCode"] == 9


class NotingClient(Client):
    """Notes each status that it is told to write, and lets `meanwhile` happen right before that."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.statuses: list[str] = []
        self.meanwhile: Callable[[str], Awaitable[object]] | None = None

    async def merge(self, kind: Resource[T], key: Key, change: Manifest, *, subresource: str = "") -> T:
        if kind.plural == "pods":
            phase = change["status"].get("phase", "")
            self.statuses.append(phase)
            if self.meanwhile:
                await self.meanwhile(phase)
        return await super().merge(kind, key, change, subresource=subresource)


async def test_what_somebody_else_wrote_a_moment_before_is_not_lost(embedded: Client, tmp_path: Path) -> None:
    async def note(phase: str) -> None:
        if phase == "Succeeded":
            noting.meanwhile = None
            running = await embedded.get(PODS, Key("default", "seen"))
            conditions = [*running.status["conditions"], {"type": "example.com/Seen", "status": "True"}]
            await embedded.merge_status(PODS, running.key, {"conditions": conditions})

    async with NotingClient(embedded.connection) as noting:
        noting.meanwhile = note
        async with opened_bed(noting, tmp_path / "state", "default") as bed:
            ended = await bed.run("seen")
            assert ended.condition("example.com/Seen")["status"] == "True"
            assert ended.condition("Ready")["status"] == "False"
    assert noting.statuses[-2:] == ["Succeeded", "Succeeded"]


async def test_a_change_that_changes_nothing_for_the_status_is_not_written(embedded: Client, tmp_path: Path) -> None:
    async with NotingClient(embedded.connection) as noting, opened_bed(noting, tmp_path / "state", "default") as bed:
        barrier = {"envFrom": [{"configMapRef": {"name": "late"}}]}
        await bed.create(pod("held", container=barrier))
        await bed.until("held", lambda pod: pod.waits() == "CreateContainerConfigError")
        written = len(noting.statuses)
        for number in range(3):
            await embedded.merge(PODS, Key("default", "held"), {"metadata": {"annotations": {"n": str(number)}}})
        await bed.create(config_map("late", x="y"), CONFIG_MAPS)
        await bed.finished("held")
        assert [phase for phase in noting.statuses[written:] if phase == "Pending"] == []


async def test_a_pod_that_fits_nowhere_is_told_so_once_whatever_else_comes_and_goes(
    embedded: Client, tmp_path: Path
) -> None:
    async with NotingClient(embedded.connection) as noting, opened_bed(noting, tmp_path / "state", "default") as bed:
        await bed.create(pod("homeless", container={"resources": {"limits": {"nvidia.com/gpu": 1}}}))
        await bed.until("homeless", lambda pod: bool(pod.condition("PodScheduled")))
        for number in range(3):
            await bed.run(f"other-{number}")
        assert noting.statuses.count("") == 1  # a scheduler's write has no phase


async def test_a_node_that_stops_does_not_blame_itself_for_a_pod_that_has_ended(
    embedded: Client, tmp_path: Path
) -> None:
    async def stop(phase: str) -> None:
        if phase == "Succeeded":
            bed.node.stop()

    async with NotingClient(embedded.connection) as noting:
        noting.meanwhile = stop
        async with opened_bed(noting, tmp_path / "state", "default") as bed:
            await bed.create(pod("good"))
            await bed.served
    assert (await embedded.get(PODS, Key("default", "good"))).phase == "Succeeded"


async def test_a_second_request_to_stop_kills_what_does_not_end(embedded: Client, tmp_path: Path) -> None:
    async with opened_bed(embedded, tmp_path / "state", "default") as bed:
        await bed.create(pod("deaf", DEAF, terminationGracePeriodSeconds=3600))
        await bed.printed(await bed.running("deaf"), "begun")
        bed.node.stop()
        await asyncio.sleep(0.1)
        assert bed.node.running_pods == 1
        bed.node.stop()
        ended = await bed.finished("deaf")
        assert ended.state()["exitCode"] == 137
    assert bed.node.running_pods == 0


async def test_a_node_ends_although_its_server_is_gone(
    proxy: tuple[FaultProxy, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddle_operator.local.kubelet.pod_worker.FINAL_STATUS_SECONDS", 0.1)
    faults, token = proxy
    async with Client(faults.connection(token)) as client, opened_bed(client, tmp_path / "state", "default") as bed:
        await bed.create(pod("deaf", DEAF, terminationGracePeriodSeconds=3600))
        await bed.printed(await bed.running("deaf"), "begun")
        faults.deny()
        bed.node.stop()
        bed.node.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await bed.served
        assert bed.node.running_pods == 0


async def test_a_node_that_is_cancelled_leaves_no_process(embedded: Client, tmp_path: Path) -> None:
    async with opened_bed(embedded, tmp_path / "state", "default") as bed:
        await bed.create(pod("cut", DEAF))
        running = await bed.running("cut")
        pid = int(running.container()["containerID"].rpartition("/")[2])
        os.kill(pid, 0)
        assert bed.served
        bed.served.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bed.served
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_node_that_starts_again_goes_on_with_what_has_not_begun_and_keeps_logs(
    embedded: Client, tmp_path: Path
) -> None:
    barrier = {"envFrom": [{"configMapRef": {"name": "late"}}]}
    async with opened_bed(embedded, tmp_path / "state", "default") as bed:
        done = await bed.run("done", "echo kept")
        await bed.create(pod("held", "echo started", container=barrier))
        await bed.until("held", lambda pod: pod.waits() == "CreateContainerConfigError")
        await bed.create(pod("ran", WAITS))
        await bed.running("ran")
    async with opened_bed(embedded, tmp_path / "state", "default") as bed:
        assert await bed.log(done) == "kept\n"
        await bed.create(config_map("late", x="y"), CONFIG_MAPS)
        assert (await bed.finished("held")).phase == "Succeeded"
        assert (await bed.client.get(PODS, Key("default", "ran"))).status["reason"] == "NodeShutdown"
        await bed.delete("done")
        await bed.gone("done")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (tmp_path / "state/pods" / done.uid).exists():
                await asyncio.sleep(0.01)


async def test_a_full_disk_is_a_sentence_in_the_pods_status(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, _: Mapping[str, ProjectedFile]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    await bed.create(config_map("files", x="y"), CONFIG_MAPS)
    own = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "configMap": {"name": "files"}}]
    with monkeypatch.context() as patched:
        patched.setattr("paddle_operator.local.kubelet.volume_manager.write_files", full)
        await bed.create(pod("full", "cat /data/x", container=own, volumes=volumes))
        held = await bed.until("full", lambda pod: "No space left on device" in pod.state().get("message", ""))
        assert held.phase == "Pending"
    assert (await bed.finished("full")).phase == "Succeeded"


async def test_a_log_that_cannot_be_opened_holds_the_container_back_and_says_why(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(LogFiles, "open", full)
        await bed.create(pod("mute", "echo hi"))
        held = await bed.until("mute", lambda pod: pod.waits() == "CreateContainerError")
        assert held.state()["message"] == "No space left on device"
    await bed.annotate("mute", again="please")
    assert await bed.log(await bed.finished("mute")) == "hi\n"


async def test_a_pod_that_is_deleted_while_it_starts_leaves_nothing(embedded: Client, tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    class Slow(PlainSandbox):
        async def start(self, command: Command, output: int):  # type: ignore[no-untyped-def]
            begun.set()
            await go.wait()
            return await super().start(command, output)

    async with opened_bed(embedded, tmp_path / "state", "default", sandbox=Slow("this is a test")) as bed:
        await bed.create(pod("brief", DEAF, terminationGracePeriodSeconds=1))
        await begun.wait()
        await bed.delete("brief")
        await bed.until("brief", lambda pod: pod.metadata.deletion_timestamp is not None)
        go.set()
        await bed.gone("brief")
        assert bed.node.running_pods == 0


async def test_a_sandbox_that_refuses_is_told_and_tried_again_by_the_restart_policy(
    embedded: Client, tmp_path: Path
) -> None:
    class Refusing(PlainSandbox):
        refusals = 1

        async def start(self, command: Command, output: int):  # type: ignore[no-untyped-def]
            self.refusals -= 1
            if self.refusals >= 0:
                raise StartError("the machine refuses")
            return await super().start(command, output)

    async with opened_bed(embedded, tmp_path / "state", "default", sandbox=Refusing("this is a test")) as bed:
        ended = await bed.run("refused", "exit 0", restartPolicy="OnFailure")
        assert ended.phase == "Succeeded"
        last = ended.container()["lastState"]["terminated"]
        assert (last["exitCode"], last["reason"], last["message"]) == (128, "StartError", "the machine refuses")


async def test_how_a_download_goes_on_is_seen_in_the_pods_status(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = asyncio.Event()

    async def find(name: str, progress: Progress) -> Image:
        progress("downloading paddlepaddle (30 of 126 MB)")
        await arrived.wait()
        return Image(name)

    monkeypatch.setattr(bed.images, "find", find)
    await bed.create(pod("large", "exit 0"))
    waiting = await bed.until("large", lambda pod: "30 of 126 MB" in pod.state().get("message", ""))
    assert waiting.waits() == "ContainerCreating"
    arrived.set()
    assert (await bed.finished("large")).phase == "Succeeded"


async def test_an_image_name_that_is_wrong_stays_so(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(_name: str, _progress: Progress) -> Image:
        raise ImageError("InvalidImageName", "a name has no capital letters")

    monkeypatch.setattr(bed.images, "find", find)
    await bed.create(pod("wrong"))
    waiting = await bed.until("wrong", lambda pod: pod.waits() == "InvalidImageName")
    assert waiting.state()["message"] == "a name has no capital letters"
