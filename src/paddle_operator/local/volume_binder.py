"""Binds PersistentVolumeClaims: to the volume that they name, to one that fits, or to one made for them.

Whatever storage a PersistentVolume names, on this machine it is a folder, so that a YAML written for a cluster works.
Nothing here ever removes a folder: the data of a deleted claim stay.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_operator.kube.backoff import Backoff
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Manifest, Object, Resource, View
from paddle_operator.kube.quantities import amount
from paddle_operator.local.kubelet.projected_volume import MountError

log = logging.getLogger(__name__)

OURS = {"pv.kubernetes.io/provisioned-by": "paddle-operator/local"}


class ClaimReference(View, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PathOf(View, frozen=True):
    path: str = ""


class StorageRequest(View, frozen=True):
    requests: dict[str, str | int | float] | None = None


class Phase(View, frozen=True):
    phase: str = ""


class ClaimSpec(View, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    resources: StorageRequest = StorageRequest()
    selector: dict[str, Any] | None = None

    @property
    def storage(self) -> str:
        return str((self.resources.requests or {}).get("storage", "1Gi"))


class PersistentVolumeClaim(Object, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class VolumeSpec(View, frozen=True):
    capacity: dict[str, str | int | float] | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    claim_ref: ClaimReference | None = None
    host_path: PathOf | None = None
    local: PathOf | None = None


class PersistentVolume(Object, frozen=True):
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()


CLAIMS = Resource("api/v1", "persistentvolumeclaims", PersistentVolumeClaim)
VOLUMES = Resource("api/v1", "persistentvolumes", PersistentVolume, namespaced=False)


class ClaimFolders:
    """Where claims' files are: what `volumes/<namespace>/<claim>` is, else its volume's own path, else a new folder."""

    def __init__(self, client: Client, folder: Path, scope: Scope, clock: Clock) -> None:
        self.claims: Informer[PersistentVolumeClaim, PersistentVolumeClaim] = Informer(
            client, CLAIMS, scope, clock=clock
        )
        self.volumes: Informer[PersistentVolume, PersistentVolume] = Informer(client, VOLUMES, clock=clock)
        self._folder = folder / "volumes"

    def listen(self, listener: Callable[[], None]) -> None:
        self.claims.store.listen(lambda *_: listener())
        self.volumes.store.listen(lambda *_: listener())

    def problem(self, namespace: str, claim: str) -> str:
        """Why a pod that wants this claim cannot be placed; empty where it can."""
        found = self.claims.store.get(Key(namespace, claim))
        if found is None:
            return f'persistentvolumeclaim "{claim}" not found'
        if found.metadata.deletion_timestamp:
            return f'persistentvolumeclaim "{claim}" is being deleted'
        return "" if found.status.phase == "Bound" else "pod has unbound immediate PersistentVolumeClaims"

    def folder_of(self, namespace: str, claim: str) -> Path:
        """Raises MountError or OSError."""
        if problem := self.problem(namespace, claim):
            raise MountError(problem)
        found = self.claims.store.get(Key(namespace, claim))
        place = self._folder / namespace / claim
        if place.is_symlink() and not place.exists():
            raise MountError(
                f"{place} leads to {place.readlink()}, which does not exist: make it, or set --volume anew"
            )
        if not place.exists():
            volume = self.volumes.store.get(Key("", found.spec.volume_name)) if found else None
            if volume and (own := volume.spec.host_path or volume.spec.local) and own.path != str(place):
                place = Path(own.path)
            place.mkdir(parents=True, exist_ok=True)
        return place.resolve()

    def path_of(self, key: Key) -> Path:
        return self._folder / key.namespace / key.name


class ClaimBinder:
    """The volume controller of a machine; a cluster that has one of its own does not need this."""

    def __init__(self, client: Client, folders: ClaimFolders, clock: Clock) -> None:
        self._client = client
        self._folders = folders
        self._clock = clock
        self._look = asyncio.Event()
        folders.listen(self._look.set)

    async def run(self) -> None:
        """Until cancelled; an unreachable server is waited for."""
        backoff = Backoff(self._clock)
        while True:
            await self._look.wait()
            self._look.clear()
            backoff.begin()
            try:
                await self._pass()
            except (Conflict, AlreadyExists):
                await backoff.pause()
                self._look.set()
            except KubeError as error:
                log.warning("could not bind a claim, trying again", extra={"why": str(error)})
                await backoff.pause()
                self._look.set()

    async def _pass(self) -> None:
        claims, volumes = self._folders.claims.store, self._folders.volumes.store
        for volume in list(volumes):
            if not volume.metadata.deletion_timestamp:
                await self._look_after(volume)
        for claim in sorted(claims, key=lambda each: each.key):
            if claim.status.phase != "Bound" and not claim.metadata.deletion_timestamp:
                await self._bind(claim)

    async def _look_after(self, volume: PersistentVolume) -> None:
        """A volume without a phase is new; one whose claim is gone is released, or goes, if it was made for that."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            if volume.status.phase != "Available":
                await self._told(volume, "Available")
            return
        claim = self._folders.claims.store.get(Key(reference.namespace, reference.name))
        if (claim and claim.uid == reference.uid) or volume.status.phase not in ("Bound", "Released"):
            return
        if volume.metadata.annotations.items() >= OURS.items():
            try:
                await self._client.delete(VOLUMES, volume.key, uid=volume.uid)
            except NotFound:
                return
        elif volume.status.phase != "Released":
            await self._told(volume, "Released")

    async def _told(self, volume: PersistentVolume, phase: str) -> None:
        self._folders.volumes.observe_write(await self._client.merge_status(VOLUMES, volume.key, {"phase": phase}))

    async def _bind(self, claim: PersistentVolumeClaim) -> None:
        volume = self._volume_for(claim)
        if volume is None:
            if claim.spec.volume_name:
                return  # the one that it names is not there, or is another's: wait for it
            volume = await self._made_for(claim)
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.key.namespace,
            "name": claim.key.name,
            "uid": claim.uid,
        }
        if not (volume.spec.claim_ref and volume.spec.claim_ref.uid == claim.uid):
            known = {"resourceVersion": volume.metadata.resource_version}
            volume = await self._client.merge(VOLUMES, volume.key, {"metadata": known, "spec": {"claimRef": reference}})
        await self._told(volume, "Bound")
        if claim.spec.volume_name != volume.key.name:
            await self._client.merge(CLAIMS, claim.key, {"spec": {"volumeName": volume.key.name}})
        status = {
            "phase": "Bound",
            "accessModes": list(volume.spec.access_modes),
            "capacity": volume.spec.capacity or {"storage": claim.spec.storage},
        }
        self._folders.claims.observe_write(await self._client.merge_status(CLAIMS, claim.key, status))

    def _volume_for(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        store = self._folders.volumes.store
        if claim.spec.volume_name:
            named = store.get(Key("", claim.spec.volume_name))
            return named if named and _is_free_for(named, claim) else None
        fitting = [volume for volume in store if _is_free_for(volume, claim) and _fits(volume, claim)]
        return min(
            fitting, key=lambda each: (amount((each.spec.capacity or {}).get("storage", 0)), each.key), default=None
        )

    async def _made_for(self, claim: PersistentVolumeClaim) -> PersistentVolume:
        manifest: Manifest = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pvc-{claim.uid}", "annotations": OURS},
            "spec": {
                "capacity": {"storage": claim.spec.storage},
                "accessModes": list(claim.spec.access_modes) or ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": claim.spec.storage_class_name or "",
                "volumeMode": claim.spec.volume_mode,
                "hostPath": {"path": str(self._folders.path_of(claim.key))},
            },
        }
        try:
            return await self._client.create(VOLUMES, manifest)
        except AlreadyExists:
            return await self._client.get(VOLUMES, Key("", f"pvc-{claim.uid}"))


def _is_free_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    if volume.metadata.deletion_timestamp:
        return False
    if reference is None:
        return True
    same = (reference.namespace, reference.name) == claim.key
    return same and reference.uid in ("", claim.uid)


def _fits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """As Kubernetes matches them; a label selector of the claim is not looked at, such a claim gets its own volume."""
    spec, wanted = volume.spec, claim.spec
    return (
        not wanted.selector
        and spec.storage_class_name == (wanted.storage_class_name or "")
        and set(wanted.access_modes) <= set(spec.access_modes)
        and spec.volume_mode == wanted.volume_mode
        and amount((spec.capacity or {}).get("storage", 0)) >= amount(wanted.storage)
    )
