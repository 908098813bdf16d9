"""ConfigMaps, Secrets, volumes and claims as a program sees them."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from paddle_operator.local.cri import Image, Mount
from tests.local.kubelet.harness import (
    CONFIG_MAPS,
    PODS,
    SECRETS,
    TIMEOUT_SECONDS,
    NodeHarness,
    make_config_map,
    make_pod,
    run_node,
)

BARRIER = {"envFrom": [{"configMapRef": {"name": "mnist"}}]}


def mount(path: str, **more: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "data", "mountPath": path, **more}]}


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "data", **source}]}


async def test_container_starts_as_soon_as_its_config_map_exists(harness: NodeHarness) -> None:
    await harness.create(make_pod("late", "echo $RANK", container=BARRIER))
    waiting = await harness.wait_until("late", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
    assert waiting.state()["message"] == 'configmap "mnist" not found'
    assert waiting.address
    assert waiting.phase == "Pending"
    assert waiting.condition("PodReadyToStartContainers")["status"] == "True"
    await harness.create(make_config_map("mnist", RANK="3"), CONFIG_MAPS)
    await harness.annotate("late", woken="yes")
    assert await harness.read_log(await harness.wait_finished("late")) == "3\n"


async def test_container_waits_for_a_missing_key(harness: NodeHarness) -> None:
    await harness.create(make_config_map("mnist", other="x"), CONFIG_MAPS)
    reference = {"name": "mnist", "key": "rank"}
    env = [{"name": "RANK", "valueFrom": {"configMapKeyRef": reference}}]
    await harness.create(make_pod("keyless", "echo $RANK", container={"env": env}))
    waiting = await harness.wait_until("keyless", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
    assert waiting.state()["message"] == "couldn't find key rank in ConfigMap default/mnist"
    await harness.client.merge(CONFIG_MAPS, Key(harness.namespace, "mnist"), {"data": {"rank": "5"}})
    assert await harness.read_log(await harness.wait_finished("keyless")) == "5\n"


async def test_environment_contains_only_declared_variables(
    harness: NodeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_SUPERVISOR", "1")
    ended = await harness.run_pod(
        "bare", "env | sed 's/=.*//' | sort | tr '\\n' ' '", container={"env": [{"name": "OWN", "value": "1"}]}
    )
    assert (await harness.read_log(ended)).split() == ["HOME", "HOSTNAME", "OWN", "PATH", "PWD"]


async def test_pod_knows_its_own_address_and_hostname(harness: NodeHarness) -> None:
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    script = "echo $POD_IP; hostname; getent hosts $(hostname) | cut -d' ' -f1; echo $HOSTNAME"
    ended = await harness.run_pod("known", script, container={"env": env})
    assert (await harness.read_log(ended)).split() == [ended.address, "known", ended.address, "known"]


async def test_each_container_has_its_own_image_files(harness: NodeHarness, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "train.py").write_text("print('trains')")
    harness.images.known["demo"] = Image(
        "demo",
        entrypoint=("python3", "train.py"),
        working_directory="/wide_and_deep",
        mounts=(Mount(files, "/wide_and_deep"),),
    )
    own = {"image": "demo", "command": None}
    assert await harness.read_log(await harness.run_pod("trains", container=own)) == "trains\n"
    changes = {"image": "demo", "command": ["sh", "-c", "echo changed > train.py; cat train.py"]}
    assert await harness.read_log(await harness.run_pod("changes", container=changes)) == "changed\n"
    assert (files / "train.py").read_text() == "print('trains')"


async def test_empty_dir_is_shared_and_removed_with_the_pod(harness: NodeHarness) -> None:
    init = {"name": "first", "image": "python", "command": ["sh", "-c", "echo here > /a/file"], **mount("/a")}
    ended = await harness.run_pod(
        "shares", "cat /b/c/file", container=mount("/b/c"), initContainers=[init], **volume(emptyDir={})
    )
    assert await harness.read_log(ended) == "here\n"
    await harness.wait_removed(ended, "_volumes")


async def test_empty_dir_with_medium_memory_is_tmpfs(harness: NodeHarness) -> None:
    script = "stat -f -c %T /dev/shm; touch /dev/shm/it"
    ended = await harness.run_pod("quick", script, container=mount("/dev/shm"), **volume(emptyDir={"medium": "Memory"}))
    assert ended.phase == "Succeeded"
    assert await harness.read_log(ended) == "tmpfs\n"
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while Path(f"/dev/shm/paddle-operator-{ended.uid}").exists():
            await asyncio.sleep(0.01)


async def test_config_map_files_change_while_the_program_runs(harness: NodeHarness) -> None:
    await harness.create(make_config_map("mnist", greeting="hello"), CONFIG_MAPS)
    script = "cat /etc/own/greeting; echo; until grep -q bye /etc/own/greeting; do sleep 0.02; done; ls /etc/own"
    await harness.create(make_pod("files", script, container=mount("/etc/own"), **volume(configMap={"name": "mnist"})))
    await harness.wait_printed(await harness.wait_running("files"), "hello")
    await harness.client.merge(CONFIG_MAPS, Key(harness.namespace, "mnist"), {"data": {"greeting": "bye", "more": "x"}})
    assert await harness.read_log(await harness.wait_finished("files")) == "hello\ngreeting\nmore\n"


async def test_secret_files_have_the_requested_mode(harness: NodeHarness) -> None:
    data = {"token": base64.b64encode(b"\x00secret").decode()}
    await harness.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data}, SECRETS)
    source = {"secretName": "s", "items": [{"key": "token", "path": "deep/it", "mode": 0o400}]}
    ended = await harness.run_pod(
        "reads", "stat -L -c %a /s/deep/it; wc -c < /s/deep/it", container=mount("/s"), **volume(secret=source)
    )
    assert (await harness.read_log(ended)).split() == ["400", "7"]


async def test_config_map_is_read_only(harness: NodeHarness) -> None:
    await harness.create(make_config_map("mnist", greeting="hello"), CONFIG_MAPS)
    ended = await harness.run_pod(
        "writes", "echo x > /c/new", container=mount("/c"), **volume(configMap={"name": "mnist"})
    )
    assert ended.phase == "Failed"
    assert "Read-only file system" in await harness.read_log(ended)


async def test_projected_volume_combines_sources(harness: NodeHarness) -> None:
    await harness.create(make_config_map("mnist", greeting="hello"), CONFIG_MAPS)
    sources = [
        {"configMap": {"name": "mnist"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    ended = await harness.run_pod(
        "projects",
        "cat /p/greeting /p/labels",
        container=mount("/p"),
        metadata={"labels": {"role": "worker"}},
        **volume(projected={"sources": sources}),
    )
    assert await harness.read_log(ended) == 'hellorole="worker"\n'


async def test_config_map_file_can_replace_etc_hosts(harness: NodeHarness) -> None:
    await harness.create(make_config_map("mnist", hosts="127.0.0.1 somewhere\n"), CONFIG_MAPS)
    ended = await harness.run_pod(
        "named",
        "cat /etc/hosts",
        container=mount("/etc/hosts", subPath="hosts", readOnly=True),
        **volume(configMap={"name": "mnist", "items": [{"key": "hosts", "path": "hosts"}]}),
    )
    assert await harness.read_log(ended) == "127.0.0.1 somewhere\n"


async def test_sub_path_expr_is_expanded_and_created(harness: NodeHarness, tmp_path: Path) -> None:
    env = [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    own = {"env": env} | mount("/out", subPathExpr="of/$(WHO)")
    await harness.run_pod("sub", "echo hi > /out/it", container=own, **volume(hostPath={"path": str(tmp_path)}))
    assert (tmp_path / "of/sub/it").read_text() == "hi\n"


async def test_sub_path_outside_the_volume_is_rejected(harness: NodeHarness, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    await harness.create(
        make_pod(
            "escapes",
            "cat /in/passwd",
            container=mount("/in", subPath="out"),
            **volume(hostPath={"path": str(tmp_path)}),
        )
    )
    waiting = await harness.wait_until("escapes", lambda pod: pod.waiting_reason() == "CreateContainerError")
    assert 'subPath "out" leads out of the volume' in waiting.state()["message"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"hostPath": {"path": "/etc/hostname", "type": "Directory"}},
            "hostPath type check failed: /etc/hostname is not a directory",
        ),
        ({"hostPath": {"path": "/not/there", "type": "File"}}, "hostPath type check failed: /not/there does not exist"),
        ({"configMap": {"name": "absent"}}, 'configmap "absent" not found'),
        ({"secret": {"secretName": "absent"}}, 'secret "absent" not found'),
        ({"nfs": {"path": "/nas", "server": "10.0.0.1"}}, "local mode does not support volumes of this type"),
    ],
    ids=["not-a-directory", "missing-file", "missing-configmap", "missing-secret", "unsupported-type"],
)
async def test_pod_waits_for_a_volume_that_cannot_be_mount(harness: NodeHarness, source: Any, message: str) -> None:
    await harness.create(make_pod("stuck", container=mount("/data"), **volume(**source)))
    note = await harness.wait_event("stuck", "FailedMount")
    assert note.startswith('MountVolume.SetUp failed for volume "data" : ')
    assert message in note
    waiting = await harness.wait_until("stuck", lambda pod: "MountVolume" in pod.state().get("message", ""))
    assert (waiting.phase, waiting.waiting_reason()) == ("Pending", "ContainerCreating")


async def test_host_network_pod_has_an_address_before_its_volumes(harness: NodeHarness) -> None:
    source = volume(configMap={"name": "mnist"})
    await harness.create(make_pod("hosted", "echo $HOSTNAME", container=mount("/data"), hostNetwork=True, **source))
    waiting = await harness.wait_until("hosted", lambda pod: "MountVolume" in pod.state().get("message", ""))
    assert waiting.address == waiting.status["hostIP"] == f"127.{harness.block.number}.0.1"
    await harness.create(make_config_map("mnist", x="y"), CONFIG_MAPS)
    ended = await harness.wait_finished("hosted")
    assert await harness.read_log(ended) == "local-1\n"


async def test_unwritable_state_folder_is_a_message_in_the_status(embedded: Client, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/pods").write_text("a file where a folder should be")
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        await harness.create(make_pod("stuck"))
        waiting = await harness.wait_until("stuck", lambda pod: "directory" in pod.state().get("message", "").lower())
        assert waiting.phase == "Pending"
        (tmp_path / "state/pods").unlink()
        assert (await harness.wait_finished("stuck")).phase == "Succeeded"
        assert await harness.client.get(PODS, Key(harness.namespace, "stuck"))
