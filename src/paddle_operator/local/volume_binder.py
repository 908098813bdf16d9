"""Binds PersistentVolumeClaims: to the volume that they name, to one that fits, or to a new one.

Whatever storage a PersistentVolume declares, here it is a directory of the host, so that a YAML written for a
cluster works. No directory is ever removed: the data of a deleted claim stay.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_operator.kube.backoff import run_when_woken
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Manifest, Object, Resource, View
from paddle_operator.kube.quantities import amount
from paddle_operator.local.kubelet.projected_volume import MountError

log = logging.getLogger(__name__)

PROVISIONED_BY = {"pv.kubernetes.io/provisioned-by": "paddle-operator/local"}


class ClaimReference(View, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumePath(View, frozen=True):
    path: str = ""


class StorageRequest(View, frozen=True):
    requests: dict[str, str | int | float] | None = None


class VolumePhase(View, frozen=True):
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
    status: VolumePhase = VolumePhase()


class VolumeSpec(View, frozen=True):
    capacity: dict[str, str | int | float] | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    claim_ref: ClaimReference | None = None
    host_path: VolumePath | None = None
    local: VolumePath | None = None


class PersistentVolume(Object, frozen=True):
    spec: VolumeSpec = VolumeSpec()
    status: VolumePhase = VolumePhase()


CLAIMS = Resource("api/v1", "persistentvolumeclaims", PersistentVolumeClaim)
VOLUMES = Resource("api/v1", "persistentvolumes", PersistentVolume, namespaced=False)


class ClaimCache:
    """Caches claims and volumes, and maps a claim to its directory.

    That is `volumes/<namespace>/<claim>` if it exists, else the path of its volume, else a new directory.
    """

    def __init__(self, client: Client, directory: Path, scope: Scope, clock: Clock) -> None:
        self.claims: Informer[PersistentVolumeClaim, PersistentVolumeClaim] = Informer(
            client, CLAIMS, scope, clock=clock
        )
        self.volumes: Informer[PersistentVolume, PersistentVolume] = Informer(client, VOLUMES, clock=clock)
        self._directory = directory / "volumes"

    def listen(self, listener: Callable[[], None]) -> None:
        self.claims.store.listen(lambda *_: listener())
        self.volumes.store.listen(lambda *_: listener())

    def claim_error(self, namespace: str, claim: str) -> str:
        """Why a pod with this claim cannot be scheduled; empty if it can."""
        found = self.claims.store.get(Key(namespace, claim))
        if found is None:
            return f'persistentvolumeclaim "{claim}" not found'
        if found.metadata.deletion_timestamp:
            return f'persistentvolumeclaim "{claim}" is being deleted'
        return "" if found.status.phase == "Bound" else "pod has unbound immediate PersistentVolumeClaims"

    def claim_directory(self, namespace: str, claim: str) -> Path:
        """Return the directory of a bound claim, created if missing. Raises MountError or OSError."""
        if error := self.claim_error(namespace, claim):
            raise MountError(error)
        found = self.claims.store.get(Key(namespace, claim))
        directory = self.default_directory(Key(namespace, claim))
        if directory.is_symlink() and not directory.exists():
            raise MountError(
                f"{directory} is a link to {directory.readlink()}, which does not exist: create it, or change --volume"
            )
        if not directory.exists():
            volume = self.volumes.store.get(Key("", found.spec.volume_name)) if found else None
            if volume and (source := volume.spec.host_path or volume.spec.local) and source.path != str(directory):
                directory = Path(source.path)
            directory.mkdir(parents=True, exist_ok=True)
        return directory.resolve()

    def default_directory(self, claim: Key) -> Path:
        return self._directory / claim.namespace / claim.name


class VolumeBinder:
    """The PersistentVolume controller of the local cluster; a real cluster has its own."""

    def __init__(self, client: Client, cache: ClaimCache, clock: Clock) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._woken = asyncio.Event()
        cache.listen(self._woken.set)

    async def run(self) -> None:
        """Run until cancelled; an unreachable server is retried."""
        await run_when_woken(self._woken, self._bind_all, self._clock, _log_error)

    async def _bind_all(self) -> None:
        claims, volumes = self._cache.claims.store, self._cache.volumes.store
        for volume in list(volumes):
            if not volume.metadata.deletion_timestamp:
                await self._sync_volume(volume)
        for claim in sorted(claims, key=lambda each: each.key):
            if claim.status.phase != "Bound" and not claim.metadata.deletion_timestamp:
                await self._bind(claim)

    async def _sync_volume(self, volume: PersistentVolume) -> None:
        """Mark a new volume available; release one whose claim was deleted, or delete it if it was provisioned."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            if volume.status.phase != "Available":
                await self._set_phase(volume, "Available")
            return
        claim = self._cache.claims.store.get(Key(reference.namespace, reference.name))
        if (claim and claim.uid == reference.uid) or volume.status.phase not in ("Bound", "Released"):
            return
        if volume.metadata.annotations.items() >= PROVISIONED_BY.items():
            try:
                await self._client.delete(VOLUMES, volume.key, uid=volume.uid)
            except NotFound:
                return
        elif volume.status.phase != "Released":
            await self._set_phase(volume, "Released")

    async def _set_phase(self, volume: PersistentVolume, phase: str) -> None:
        self._cache.volumes.observe_write(await self._client.merge_status(VOLUMES, volume.key, {"phase": phase}))

    async def _bind(self, claim: PersistentVolumeClaim) -> None:
        volume = self._find_volume(claim)
        if volume is None:
            if claim.spec.volume_name:
                return  # the named volume does not exist or belongs to another claim: wait for it
            volume = await self._provision(claim)
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.key.namespace,
            "name": claim.key.name,
            "uid": claim.uid,
        }
        if not (volume.spec.claim_ref and volume.spec.claim_ref.uid == claim.uid):
            precondition = {"resourceVersion": volume.metadata.resource_version}
            volume = await self._client.merge(
                VOLUMES, volume.key, {"metadata": precondition, "spec": {"claimRef": reference}}
            )
        await self._set_phase(volume, "Bound")
        if claim.spec.volume_name != volume.key.name:
            await self._client.merge(CLAIMS, claim.key, {"spec": {"volumeName": volume.key.name}})
        status = {
            "phase": "Bound",
            "accessModes": list(volume.spec.access_modes),
            "capacity": volume.spec.capacity or {"storage": claim.spec.storage},
        }
        self._cache.claims.observe_write(await self._client.merge_status(CLAIMS, claim.key, status))

    def _find_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        store = self._cache.volumes.store
        if claim.spec.volume_name:
            named = store.get(Key("", claim.spec.volume_name))
            return named if named and _is_available_for(named, claim) else None
        candidates = [volume for volume in store if _is_available_for(volume, claim) and _fits(volume, claim)]
        return min(
            candidates, key=lambda each: (amount((each.spec.capacity or {}).get("storage", 0)), each.key), default=None
        )

    async def _provision(self, claim: PersistentVolumeClaim) -> PersistentVolume:
        manifest: Manifest = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pvc-{claim.uid}", "annotations": PROVISIONED_BY},
            "spec": {
                "capacity": {"storage": claim.spec.storage},
                "accessModes": list(claim.spec.access_modes) or ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": claim.spec.storage_class_name or "",
                "volumeMode": claim.spec.volume_mode,
                "hostPath": {"path": str(self._cache.default_directory(claim.key))},
            },
        }
        try:
            return await self._client.create(VOLUMES, manifest)
        except AlreadyExists:
            return await self._client.get(VOLUMES, Key("", f"pvc-{claim.uid}"))


def _is_available_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    if volume.metadata.deletion_timestamp:
        return False
    if reference is None:
        return True
    same = (reference.namespace, reference.name) == claim.key
    return same and reference.uid in ("", claim.uid)


def _fits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """As Kubernetes matches them, but a claim with a label selector always gets its own volume."""
    spec, request = volume.spec, claim.spec
    return (
        not request.selector
        and spec.storage_class_name == (request.storage_class_name or "")
        and set(request.access_modes) <= set(spec.access_modes)
        and spec.volume_mode == request.volume_mode
        and amount((spec.capacity or {}).get("storage", 0)) >= amount(request.storage)
    )


def _log_error(error: KubeError) -> None:
    if not isinstance(error, Conflict | AlreadyExists):  # another client was faster
        log.warning("claim binding failed, retrying", extra={"error": str(error)})
