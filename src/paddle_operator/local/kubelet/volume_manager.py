"""Creates a pod's volumes as directories of the host, and maps them to each container's mounts.

An emptyDir in memory is a directory of /dev/shm. A claim is the directory `volumes/<namespace>/<claim>` below the
state directory, or the target of a link of that name, whatever storage its PersistentVolume declares.
"""

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from paddle_operator.kube.errors import describe_os_error
from paddle_operator.local.cri import Mount
from paddle_operator.local.kubelet.container_env import ConfigReader, DownwardContext, expand_references
from paddle_operator.local.kubelet.pod import (
    ContainerSpec,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    LocalPod,
    Volume,
    VolumeMount,
)
from paddle_operator.local.kubelet.projected_volume import Files, MountError, projected_files, write_files

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
SUPPORTED_TYPES = "emptyDir, hostPath, configMap, secret, projected, downwardAPI and persistentVolumeClaim"

_HOST_PATH_TYPES: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


class ClaimDirectories(Protocol):
    def claim_directory(self, namespace: str, claim: str) -> Path:
        """The directory with a claim's files. Raises MountError while the claim is missing or not bound."""


class VolumeManager:
    """The volumes of one pod; nothing else uses `directory`."""

    def __init__(self, pod: LocalPod, directory: Path, configs: ConfigReader, claims: ClaimDirectories) -> None:
        self._pod = pod
        self._directory = directory
        self._configs = configs
        self._claims = claims
        self._written: dict[str, Files] = {}
        self._paths: dict[str, Path] = {}

    def set_up(self, context: DownwardContext) -> None:
        """Create the volumes that do not exist yet. Raises MountError, whose message names the volume."""
        for volume in self._pod.spec.volumes:
            try:
                self._paths[volume.name] = self._volume_path(volume, context)
            except MountError as error:
                raise MountError(f'MountVolume.SetUp failed for volume "{volume.name}" : {error}') from None
            except OSError as error:
                file = f": {error.filename}" if error.filename else ""
                raise MountError(
                    f'MountVolume.SetUp failed for volume "{volume.name}" : {describe_os_error(error)}{file}'
                ) from None

    def refresh(self, context: DownwardContext) -> None:
        """Rewrite changed files; files of a source that was deleted stay. Raises OSError."""
        for volume in self._pod.spec.volumes:
            if volume.name not in self._written:
                continue
            try:
                files = projected_files(volume, context, self._configs)
            except MountError:
                continue
            self._write(volume.name, files or {})

    def mounts(self, container: ContainerSpec, variables: Mapping[str, str]) -> tuple[Mount, ...]:
        """A container's mounts of these volumes. Raises MountError or OSError."""
        return tuple(self._mount(mount, variables) for mount in container.volume_mounts)

    def remove(self) -> None:
        """Remove the directories that only this pod uses."""
        for directory in (self._directory, memory_directory(self._pod.uid)):
            remove_directory(directory)

    def _volume_path(self, volume: Volume, context: DownwardContext) -> Path:
        if volume.empty_dir:
            return self._empty_dir(volume.name, volume.empty_dir)
        if volume.host_path:
            return _host_path(volume.host_path)
        if volume.persistent_volume_claim:
            return self._claims.claim_directory(self._pod.key.namespace, volume.persistent_volume_claim.claim_name)
        files = projected_files(volume, context, self._configs)
        if files is None:
            raise MountError(f"local mode does not support volumes of this type: it supports {SUPPORTED_TYPES}")
        return self._write(volume.name, files)

    def _empty_dir(self, name: str, source: EmptyDirVolumeSource) -> Path:
        in_memory = source.medium == "Memory" and SHARED_MEMORY.is_dir()
        directory = (memory_directory(self._pod.uid) if in_memory else self._directory) / name
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777)
        return directory

    def _write(self, name: str, files: Files) -> Path:
        directory = self._directory / name
        if self._written.get(name) != files:
            write_files(directory, files)
            self._written[name] = files
        return directory

    def _mount(self, mount: VolumeMount, variables: Mapping[str, str]) -> Mount:
        volume = next((each for each in self._pod.spec.volumes if each.name == mount.name), None)
        if volume is None or mount.name not in self._paths:
            raise MountError(f'volumeMounts names the volume "{mount.name}", which the pod does not have')
        path = self._paths[mount.name]
        claim = volume.persistent_volume_claim
        read_only = mount.read_only or mount.name in self._written or bool(claim and claim.read_only)
        sub_path = mount.sub_path or expand_references(mount.sub_path_expr, variables)
        if sub_path:
            path = _sub_path(path, sub_path, create=mount.name not in self._written)
        return Mount(path, mount.mount_path, read_only)


def _sub_path(directory: Path, sub_path: str, *, create: bool) -> Path:
    """A subPath's file or directory, created if it is missing. Raises MountError if it leads out of the volume."""
    root = directory.resolve()
    path = (root / sub_path).resolve()
    if not path.is_relative_to(root):
        raise MountError(f'subPath "{sub_path}" leads out of the volume: use a relative path without .. or links')
    if not path.exists():
        if not create:
            raise MountError(f'subPath "{sub_path}" is not in the volume: check the keys of its ConfigMap or Secret')
        path.mkdir(parents=True)
    return path


def _host_path(source: HostPathVolumeSource) -> Path:
    path = Path(source.path)
    if source.type == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif source.type == "FileOrCreate" and not path.exists():
        path.touch()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not source.type:  # kubelet does not check, and the container engine creates a directory
            path.mkdir(parents=True)
            return path
        raise MountError(f"hostPath type check failed: {path} does not exist") from None
    is_of_type, type_name = _HOST_PATH_TYPES.get(source.type, (lambda _: True, ""))
    if not is_of_type(mode):
        raise MountError(f"hostPath type check failed: {path} is not {type_name}")
    return path


def memory_directory(uid: str) -> Path:
    """The directory of a pod's emptyDir volumes with medium Memory."""
    return SHARED_MEMORY / f"paddle-operator-{uid}"


def remove_directory(directory: Path) -> None:
    """Remove a directory even if a program removed its write permission. What cannot be removed stays."""

    def retry_with_permission(function: Callable[..., object], path: str, _: object) -> None:
        try:
            os.chmod(os.path.dirname(path), 0o700)
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o700)
                shutil.rmtree(path, ignore_errors=True)
            else:
                function(path)
        except OSError:
            return

    if directory.is_dir():
        shutil.rmtree(directory, onerror=retry_with_permission)
