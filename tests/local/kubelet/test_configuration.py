"""ConfigMaps, Secrets and volumes as a program sees them."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from paddle_operator.local.cri import Image, Mount
from tests.local.kubelet.bed import (
    CLAIMS,
    CONFIG_MAPS,
    PATIENCE_SECONDS,
    PODS,
    SECRETS,
    VOLUMES,
    Bed,
    config_map,
    opened_bed,
    pod,
)

BARRIER = {"envFrom": [{"configMapRef": {"name": "mnist"}}]}


def mounted(path: str, **more: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "data", "mountPath": path, **more}]}


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "data", **source}]}


async def test_a_container_waits_for_its_config_map_and_starts_the_moment_it_is_there(bed: Bed) -> None:
    await bed.create(pod("late", "echo $RANK", container=BARRIER))
    held = await bed.until("late", lambda pod: pod.waits() == "CreateContainerConfigError")
    assert held.state()["message"] == 'configmap "mnist" not found'
    assert held.address
    assert held.phase == "Pending"
    assert held.condition("PodReadyToStartContainers")["status"] == "True"
    await bed.create(config_map("mnist", RANK="3"), CONFIG_MAPS)
    await bed.annotate("late", woken="yes")
    assert await bed.log(await bed.finished("late")) == "3\n"


async def test_a_missing_key_is_told_and_waited_for(bed: Bed) -> None:
    await bed.create(config_map("mnist", other="x"), CONFIG_MAPS)
    reference = {"name": "mnist", "key": "rank"}
    env = [{"name": "RANK", "valueFrom": {"configMapKeyRef": reference}}]
    await bed.create(pod("keyless", "echo $RANK", container={"env": env}))
    held = await bed.until("keyless", lambda pod: pod.waits() == "CreateContainerConfigError")
    assert held.state()["message"] == "couldn't find key rank in ConfigMap default/mnist"
    await bed.client.merge(CONFIG_MAPS, Key(bed.namespace, "mnist"), {"data": {"rank": "5"}})
    assert await bed.log(await bed.finished("keyless")) == "5\n"


async def test_a_container_sees_only_what_it_was_given(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_SUPERVISOR", "1")
    ended = await bed.run(
        "bare", "env | sed 's/=.*//' | sort | tr '\\n' ' '", container={"env": [{"name": "OWN", "value": "1"}]}
    )
    assert (await bed.log(ended)).split() == ["HOME", "HOSTNAME", "OWN", "PATH", "PWD"]


async def test_a_pod_knows_its_own_address_and_host_name(bed: Bed) -> None:
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    script = "echo $POD_IP; hostname; getent hosts $(hostname) | cut -d' ' -f1; echo $HOSTNAME"
    ended = await bed.run("known", script, container={"env": env})
    assert (await bed.log(ended)).split() == [ended.address, "known", ended.address, "known"]


async def test_an_images_files_are_each_containers_own(bed: Bed, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "train.py").write_text("print('trains')")
    bed.images.known["demo"] = Image(
        "demo",
        entrypoint=("python3", "train.py"),
        working_directory="/wide_and_deep",
        mounts=(Mount(files, "/wide_and_deep"),),
    )
    own = {"image": "demo", "command": None}
    assert await bed.log(await bed.run("trains", container=own)) == "trains\n"
    changes = {"image": "demo", "command": ["sh", "-c", "echo changed > train.py; cat train.py"]}
    assert await bed.log(await bed.run("changes", container=changes)) == "changed\n"
    assert (files / "train.py").read_text() == "print('trains')"


async def test_an_empty_dir_is_shared_by_the_containers_and_gone_with_the_pod(bed: Bed) -> None:
    init = {"name": "first", "image": "python", "command": ["sh", "-c", "echo here > /a/file"], **mounted("/a")}
    ended = await bed.run(
        "shares", "cat /b/c/file", container=mounted("/b/c"), initContainers=[init], **volume(emptyDir={})
    )
    assert await bed.log(ended) == "here\n"
    await bed.swept(ended, "_volumes")


async def test_an_empty_dir_in_memory_is_in_memory(bed: Bed) -> None:
    script = "stat -f -c %T /dev/shm; touch /dev/shm/it"
    ended = await bed.run("quick", script, container=mounted("/dev/shm"), **volume(emptyDir={"medium": "Memory"}))
    assert ended.phase == "Succeeded"
    assert await bed.log(ended) == "tmpfs\n"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while Path(f"/dev/shm/paddle-operator-{ended.uid}").exists():
            await asyncio.sleep(0.01)


async def test_a_config_map_is_files_and_they_change_while_the_program_runs(bed: Bed) -> None:
    await bed.create(config_map("mnist", greeting="hello"), CONFIG_MAPS)
    script = "cat /etc/own/greeting; echo; until grep -q bye /etc/own/greeting; do sleep 0.02; done; ls /etc/own"
    await bed.create(pod("files", script, container=mounted("/etc/own"), **volume(configMap={"name": "mnist"})))
    await bed.printed(await bed.running("files"), "hello")
    await bed.client.merge(CONFIG_MAPS, Key(bed.namespace, "mnist"), {"data": {"greeting": "bye", "more": "x"}})
    assert await bed.log(await bed.finished("files")) == "hello\ngreeting\nmore\n"


async def test_a_secret_is_files_with_the_mode_that_was_asked_for(bed: Bed) -> None:
    data = {"token": base64.b64encode(b"\x00secret").decode()}
    await bed.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data}, SECRETS)
    source = {"secretName": "s", "items": [{"key": "token", "path": "deep/it", "mode": 0o400}]}
    ended = await bed.run(
        "reads", "stat -L -c %a /s/deep/it; wc -c < /s/deep/it", container=mounted("/s"), **volume(secret=source)
    )
    assert (await bed.log(ended)).split() == ["400", "7"]


async def test_a_config_map_is_read_only(bed: Bed) -> None:
    await bed.create(config_map("mnist", greeting="hello"), CONFIG_MAPS)
    ended = await bed.run("writes", "echo x > /c/new", container=mounted("/c"), **volume(configMap={"name": "mnist"}))
    assert ended.phase == "Failed"
    assert "Read-only file system" in await bed.log(ended)


async def test_the_downward_api_and_a_config_map_are_projected_into_one_folder(bed: Bed) -> None:
    await bed.create(config_map("mnist", greeting="hello"), CONFIG_MAPS)
    sources = [
        {"configMap": {"name": "mnist"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    ended = await bed.run(
        "projects",
        "cat /p/greeting /p/labels",
        container=mounted("/p"),
        metadata={"labels": {"role": "worker"}},
        **volume(projected={"sources": sources}),
    )
    assert await bed.log(ended) == 'hellorole="worker"\n'


async def test_one_file_of_a_config_map_can_stand_in_for_etc_hosts(bed: Bed) -> None:
    await bed.create(config_map("mnist", hosts="127.0.0.1 somewhere\n"), CONFIG_MAPS)
    ended = await bed.run(
        "named",
        "cat /etc/hosts",
        container=mounted("/etc/hosts", subPath="hosts", readOnly=True),
        **volume(configMap={"name": "mnist", "items": [{"key": "hosts", "path": "hosts"}]}),
    )
    assert await bed.log(ended) == "127.0.0.1 somewhere\n"


async def test_a_sub_path_may_come_from_a_variable_and_is_made(bed: Bed, tmp_path: Path) -> None:
    env = [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    own = {"env": env} | mounted("/out", subPathExpr="of/$(WHO)")
    await bed.run("sub", "echo hi > /out/it", container=own, **volume(hostPath={"path": str(tmp_path)}))
    assert (tmp_path / "of/sub/it").read_text() == "hi\n"


async def test_a_sub_path_that_leads_out_of_its_volume_is_refused(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    await bed.create(
        pod(
            "escapes",
            "cat /in/passwd",
            container=mounted("/in", subPath="out"),
            **volume(hostPath={"path": str(tmp_path)}),
        )
    )
    held = await bed.until("escapes", lambda pod: pod.waits() == "CreateContainerError")
    assert 'subPath "out" leads out of the volume' in held.state()["message"]


@pytest.mark.parametrize(
    ("source", "sentence"),
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
    ids=["no folder", "no file", "no ConfigMap", "no Secret", "another kind"],
)
async def test_a_volume_that_cannot_be_made_is_told_and_waited_for(bed: Bed, source: Any, sentence: str) -> None:
    await bed.create(pod("stuck", container=mounted("/data"), **volume(**source)))
    note = await bed.event("stuck", "FailedMount")
    assert note.startswith('MountVolume.SetUp failed for volume "data" : ')
    assert sentence in note
    held = await bed.until("stuck", lambda pod: "MountVolume" in pod.state().get("message", ""))
    assert (held.phase, held.waits()) == ("Pending", "ContainerCreating")


async def test_a_pod_on_the_hosts_network_has_its_address_while_it_waits_for_a_volume(bed: Bed) -> None:
    source = volume(configMap={"name": "mnist"})
    await bed.create(pod("hosted", "echo $HOSTNAME", container=mounted("/data"), hostNetwork=True, **source))
    held = await bed.until("hosted", lambda pod: "MountVolume" in pod.state().get("message", ""))
    assert held.address == held.status["hostIP"] == f"127.{bed.block.number}.0.1"
    await bed.create(config_map("mnist", x="y"), CONFIG_MAPS)
    ended = await bed.finished("hosted")
    assert await bed.log(ended) == "local-1\n"


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


def claimed() -> dict[str, Any]:
    return volume(persistentVolumeClaim={"claimName": "nfs-pvc"})


async def bound(bed: Bed) -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (claim := await bed.client.get(CLAIMS, Key("default", "nfs-pvc"))).phase != "Bound":
            await asyncio.sleep(0.01)
    return claim


async def test_the_user_guides_claim_of_an_nfs_volume_is_a_folder_here(bed: Bed) -> None:
    await bed.create(NFS, VOLUMES)
    await bed.create({**CLAIM, "spec": CLAIM["spec"] | {"volumeName": "nfs-pv"}}, CLAIMS)  # type: ignore[operator]
    ended = await bed.run("stores", "echo data > /nas/it", container=mounted("/nas"), **claimed())
    assert ended.phase == "Succeeded"
    assert (bed.folder / "volumes/default/nfs-pvc/it").read_text() == "data\n"
    volume = await bed.client.get(VOLUMES, Key("", "nfs-pv"))
    assert volume.phase == "Bound"
    assert volume.spec["claimRef"]["name"] == "nfs-pvc"
    assert (await bound(bed)).status["capacity"] == {"storage": "10Gi"}


async def test_a_claim_that_no_volume_fits_gets_one_of_its_own_and_its_data_outlive_both(bed: Bed) -> None:
    await bed.create(CLAIM, CLAIMS)
    claim = await bound(bed)
    assert claim.spec["volumeName"] == f"pvc-{claim.uid}"
    await bed.run("stores", "echo data > /nas/it", container=mounted("/nas"), **claimed())
    await bed.client.delete(CLAIMS, claim.key)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await bed.client.list_all(VOLUMES):
            await asyncio.sleep(0.01)
    assert (bed.folder / "volumes/default/nfs-pvc/it").read_text() == "data\n"


async def test_a_free_volume_that_fits_is_taken(bed: Bed) -> None:
    await bed.create(NFS, VOLUMES)
    await bed.create(CLAIM, CLAIMS)
    assert (await bound(bed)).spec["volumeName"] == "nfs-pv"


async def test_a_claims_folder_may_be_a_link_to_the_users_own(bed: Bed, tmp_path: Path) -> None:
    own = tmp_path / "datasets"
    own.mkdir()
    (bed.folder / "volumes/default").mkdir(parents=True)
    (bed.folder / "volumes/default/nfs-pvc").symlink_to(own)
    await bed.create(CLAIM, CLAIMS)
    await bed.run("stores", "echo data > /nas/it", container=mounted("/nas"), **claimed())
    assert (own / "it").read_text() == "data\n"


async def test_a_pod_whose_claim_is_missing_is_unschedulable_until_it_is_there(bed: Bed) -> None:
    await bed.create(pod("unclaimed", "true", container=mounted("/nas"), **claimed()))
    waiting = await bed.until("unclaimed", lambda pod: pod.condition("PodScheduled").get("status") == "False")
    assert waiting.condition("PodScheduled")["reason"] == "Unschedulable"
    assert waiting.condition("PodScheduled")["message"] == (
        '0/1 nodes are available: persistentvolumeclaim "nfs-pvc" not found.'
    )
    await bed.create(CLAIM, CLAIMS)
    assert (await bed.finished("unclaimed")).phase == "Succeeded"


async def test_a_state_folder_that_cannot_be_written_is_a_sentence_in_the_pods_status(
    embedded: Client, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/pods").write_text("a file where a folder should be")
    async with opened_bed(embedded, tmp_path / "state", "default") as bed:
        await bed.create(pod("stuck"))
        held = await bed.until("stuck", lambda pod: "directory" in pod.state().get("message", "").lower())
        assert held.phase == "Pending"
        (tmp_path / "state/pods").unlink()
        assert (await bed.finished("stuck")).phase == "Succeeded"
        assert await bed.client.get(PODS, Key(bed.namespace, "stuck"))
