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
    CLAIMS,
    CONFIG_MAPS,
    PODS,
    SECRETS,
    TIMEOUT_SECONDS,
    VOLUMES,
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
    held = await harness.wait_until("late", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
    assert held.state()["message"] == 'configmap "mnist" not found'
    assert held.address
    assert held.phase == "Pending"
    assert held.condition("PodReadyToStartContainers")["status"] == "True"
    await harness.create(make_config_map("mnist", RANK="3"), CONFIG_MAPS)
    await harness.annotate("late", woken="yes")
    assert await harness.read_log(await harness.wait_finished("late")) == "3\n"


async def test_container_waits_for_a_missing_key(harness: NodeHarness) -> None:
    await harness.create(make_config_map("mnist", other="x"), CONFIG_MAPS)
    reference = {"name": "mnist", "key": "rank"}
    env = [{"name": "RANK", "valueFrom": {"configMapKeyRef": reference}}]
    await harness.create(make_pod("keyless", "echo $RANK", container={"env": env}))
    held = await harness.wait_until("keyless", lambda pod: pod.waiting_reason() == "CreateContainerConfigError")
    assert held.state()["message"] == "couldn't find key rank in ConfigMap default/mnist"
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
    held = await harness.wait_until("escapes", lambda pod: pod.waiting_reason() == "CreateContainerError")
    assert 'subPath "out" leads out of the volume' in held.state()["message"]


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
    held = await harness.wait_until("stuck", lambda pod: "MountVolume" in pod.state().get("message", ""))
    assert (held.phase, held.waiting_reason()) == ("Pending", "ContainerCreating")


async def test_host_network_pod_has_an_address_before_its_volumes(harness: NodeHarness) -> None:
    source = volume(configMap={"name": "mnist"})
    await harness.create(make_pod("hosted", "echo $HOSTNAME", container=mount("/data"), hostNetwork=True, **source))
    held = await harness.wait_until("hosted", lambda pod: "MountVolume" in pod.state().get("message", ""))
    assert held.address == held.status["hostIP"] == f"127.{harness.block.number}.0.1"
    await harness.create(make_config_map("mnist", x="y"), CONFIG_MAPS)
    ended = await harness.wait_finished("hosted")
    assert await harness.read_log(ended) == "local-1\n"


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "nfs-pvc"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "slow",
    },
}
NFS = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "nfs-pv"},
    "spec": {
        "capacity": {"storage": "10Gi"},
        "volumeMode": "Filesystem",
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Recycle",
        "storageClassName": "slow",
        "nfs": {"path": "/nas", "server": "10.12.201.1"},
    },
}


def claim_volume() -> dict[str, Any]:
    return volume(persistentVolumeClaim={"claimName": "nfs-pvc"})


async def wait_bound(harness: NodeHarness) -> Any:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (claim := await harness.client.get(CLAIMS, Key("default", "nfs-pvc"))).phase != "Bound":
            await asyncio.sleep(0.01)
    return claim


async def test_nfs_claim_of_the_user_guide_is_a_folder(harness: NodeHarness) -> None:
    await harness.create(NFS, VOLUMES)
    await harness.create({**CLAIM, "spec": CLAIM["spec"] | {"volumeName": "nfs-pv"}}, CLAIMS)  # type: ignore[operator]
    ended = await harness.run_pod("stores", "echo data > /nas/it", container=mount("/nas"), **claim_volume())
    assert ended.phase == "Succeeded"
    assert (harness.folder / "volumes/default/nfs-pvc/it").read_text() == "data\n"
    volume = await harness.client.get(VOLUMES, Key("", "nfs-pv"))
    assert volume.phase == "Bound"
    assert volume.spec["claimRef"]["name"] == "nfs-pvc"
    assert (await wait_bound(harness)).status["capacity"] == {"storage": "10Gi"}


async def test_data_of_a_provisioned_volume_survive_its_claim(harness: NodeHarness) -> None:
    await harness.create(CLAIM, CLAIMS)
    claim = await wait_bound(harness)
    assert claim.spec["volumeName"] == f"pvc-{claim.uid}"
    await harness.run_pod("stores", "echo data > /nas/it", container=mount("/nas"), **claim_volume())
    await harness.client.delete(CLAIMS, claim.key)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await harness.client.list_all(VOLUMES):
            await asyncio.sleep(0.01)
    assert (harness.folder / "volumes/default/nfs-pvc/it").read_text() == "data\n"


async def test_matching_volume_is_bound(harness: NodeHarness) -> None:
    await harness.create(NFS, VOLUMES)
    await harness.create(CLAIM, CLAIMS)
    assert (await wait_bound(harness)).spec["volumeName"] == "nfs-pv"


async def test_claim_folder_may_be_a_link(harness: NodeHarness, tmp_path: Path) -> None:
    own = tmp_path / "datasets"
    own.mkdir()
    (harness.folder / "volumes/default").mkdir(parents=True)
    (harness.folder / "volumes/default/nfs-pvc").symlink_to(own)
    await harness.create(CLAIM, CLAIMS)
    await harness.run_pod("stores", "echo data > /nas/it", container=mount("/nas"), **claim_volume())
    assert (own / "it").read_text() == "data\n"


async def test_pod_is_unschedulable_until_its_claim_exists(harness: NodeHarness) -> None:
    await harness.create(make_pod("unclaimed", "true", container=mount("/nas"), **claim_volume()))
    waiting = await harness.wait_until("unclaimed", lambda pod: pod.condition("PodScheduled").get("status") == "False")
    assert waiting.condition("PodScheduled")["reason"] == "Unschedulable"
    assert waiting.condition("PodScheduled")["message"] == (
        '0/1 nodes are available: persistentvolumeclaim "nfs-pvc" not found.'
    )
    await harness.create(CLAIM, CLAIMS)
    assert (await harness.wait_finished("unclaimed")).phase == "Succeeded"


async def test_unwritable_state_folder_is_a_message_in_the_status(embedded: Client, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/pods").write_text("a file where a folder should be")
    async with run_node(embedded, tmp_path / "state", "default") as harness:
        await harness.create(make_pod("stuck"))
        held = await harness.wait_until("stuck", lambda pod: "directory" in pod.state().get("message", "").lower())
        assert held.phase == "Pending"
        (tmp_path / "state/pods").unlink()
        assert (await harness.wait_finished("stuck")).phase == "Succeeded"
        assert await harness.client.get(PODS, Key(harness.namespace, "stuck"))
