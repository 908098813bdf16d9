"""Claims are bound, and their data stay in folders of the machine."""

import asyncio
from pathlib import Path
from typing import Any

from paddle_operator.kube.objects import Key
from tests.local.kubelet.harness import CLAIMS, TIMEOUT_SECONDS, VOLUMES, NodeHarness, make_pod

MOUNT = {"volumeMounts": [{"name": "data", "mountPath": "/nas"}]}
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
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "nfs-pvc"}}]}


async def wait_bound(harness: NodeHarness) -> Any:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (claim := await harness.client.get(CLAIMS, Key("default", "nfs-pvc"))).phase != "Bound":
            await asyncio.sleep(0.01)
    return claim


async def test_nfs_claim_of_the_user_guide_is_a_folder(harness: NodeHarness) -> None:
    await harness.create(NFS, VOLUMES)
    await harness.create({**CLAIM, "spec": CLAIM["spec"] | {"volumeName": "nfs-pv"}}, CLAIMS)  # type: ignore[operator]
    ended = await harness.run_pod("stores", "echo data > /nas/it", container=MOUNT, **claim_volume())
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
    await harness.run_pod("stores", "echo data > /nas/it", container=MOUNT, **claim_volume())
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
    await harness.run_pod("stores", "echo data > /nas/it", container=MOUNT, **claim_volume())
    assert (own / "it").read_text() == "data\n"


async def test_pod_is_unschedulable_until_its_claim_exists(harness: NodeHarness) -> None:
    await harness.create(make_pod("unclaimed", "true", container=MOUNT, **claim_volume()))
    waiting = await harness.wait_until("unclaimed", lambda pod: pod.condition("PodScheduled").get("status") == "False")
    assert waiting.condition("PodScheduled")["reason"] == "Unschedulable"
    assert waiting.condition("PodScheduled")["message"] == (
        '0/1 nodes are available: persistentvolumeclaim "nfs-pvc" not found.'
    )
    await harness.create(CLAIM, CLAIMS)
    assert (await harness.wait_finished("unclaimed")).phase == "Succeeded"
