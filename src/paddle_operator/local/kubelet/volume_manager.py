"""A pod's volumes as folders of this machine, and what each container sees of them where.

An emptyDir in memory is a folder of /dev/shm. A claim is the folder `volumes/<namespace>/<claim>` of the state folder,
or what a link of that name leads to, whatever kind of storage its PersistentVolume names.
"""

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from paddle_operator.kube.errors import in_words
from paddle_operator.local.cri import Mount
from paddle_operator.local.kubelet.container_env import Contents, Facts, expanded
from paddle_operator.local.kubelet.pod import ContainerSpec, LocalPod, VolumeMount
from paddle_operator.local.kubelet.pod_volumes import EmptyDir, HostPath, Volume
from paddle_operator.local.kubelet.projected_volume import Files, MountError, files_of, write_files

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
KINDS = "emptyDir, hostPath, configMap, secret, projected, downwardAPI and persistentVolumeClaim"

_IS_OF_TYPE: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


class Claims(Protocol):
    def folder_of(self, namespace: str, claim: str) -> Path:
        """Where a claim's files are. Raises MountError while the claim is missing or not bound."""


class Volumes:
    """The volumes of one pod; `folder` is theirs alone."""

    def __init__(self, pod: LocalPod, folder: Path, contents: Contents, claims: Claims) -> None:
        self._pod = pod
        self._folder = folder
        self._contents = contents
        self._claims = claims
        self._written: dict[str, Files] = {}
        self._places: dict[str, Path] = {}

    def set_up(self, facts: Facts) -> None:
        """Make what is not there yet. Raises MountError with the volume in its sentence."""
        for volume in self._pod.spec.volumes:
            try:
                self._places[volume.name] = self._place(volume, facts)
            except MountError as error:
                raise MountError(f'MountVolume.SetUp failed for volume "{volume.name}" : {error}') from None
            except OSError as error:
                about = f": {error.filename}" if error.filename else ""
                raise MountError(
                    f'MountVolume.SetUp failed for volume "{volume.name}" : {in_words(error)}{about}'
                ) from None

    def refresh(self, facts: Facts) -> None:
        """Write anew what has changed; what is missing by now stays as it was. Raises OSError."""
        for volume in self._pod.spec.volumes:
            if volume.name not in self._written:
                continue
            try:
                files = files_of(volume, facts, self._contents)
            except MountError:
                continue
            self._write(volume.name, files or {})

    def mounts(self, container: ContainerSpec, variables: Mapping[str, str]) -> tuple[Mount, ...]:
        """What a container sees of them. Raises MountError or OSError."""
        return tuple(self._mount(mount, variables) for mount in container.volume_mounts)

    def remove(self) -> None:
        """The pod is over: what is nobody else's goes."""
        for folder in (self._folder, memory_folder(self._pod.uid)):
            remove_folder(folder)

    def _place(self, volume: Volume, facts: Facts) -> Path:
        if volume.empty_dir:
            return self._empty(volume.name, volume.empty_dir)
        if volume.host_path:
            return _on_host(volume.host_path)
        if volume.persistent_volume_claim:
            return self._claims.folder_of(self._pod.key.namespace, volume.persistent_volume_claim.claim_name)
        files = files_of(volume, facts, self._contents)
        if files is None:
            raise MountError(f"local mode does not have volumes of this kind: it has {KINDS}")
        return self._write(volume.name, files)

    def _empty(self, name: str, wanted: EmptyDir) -> Path:
        in_memory = wanted.medium == "Memory" and SHARED_MEMORY.is_dir()
        folder = (memory_folder(self._pod.uid) if in_memory else self._folder) / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        return folder

    def _write(self, name: str, files: Files) -> Path:
        folder = self._folder / name
        if self._written.get(name) != files:
            write_files(folder, files)
            self._written[name] = files
        return folder

    def _mount(self, mount: VolumeMount, variables: Mapping[str, str]) -> Mount:
        volume = next((each for each in self._pod.spec.volumes if each.name == mount.name), None)
        if volume is None or mount.name not in self._places:
            raise MountError(f'volumeMounts names the volume "{mount.name}", which the pod does not have')
        place = self._places[mount.name]
        claim = volume.persistent_volume_claim
        read_only = mount.read_only or mount.name in self._written or bool(claim and claim.read_only)
        inner = mount.sub_path or expanded(mount.sub_path_expr, variables)
        if inner:
            place = _within(place, inner, make=mount.name not in self._written)
        return Mount(place, mount.mount_path, read_only)


def _within(folder: Path, inner: str, *, make: bool) -> Path:
    """A subPath's file or folder, made where it is missing. Raises MountError for one outside of the volume."""
    root = folder.resolve()
    place = (root / inner).resolve()
    if not place.is_relative_to(root):
        raise MountError(f'subPath "{inner}" leads out of the volume: make it relative, without .. and outward links')
    if not place.exists():
        if not make:
            raise MountError(f'subPath "{inner}" is not in the volume: check the keys of its ConfigMap or Secret')
        place.mkdir(parents=True)
    return place


def _on_host(wanted: HostPath) -> Path:
    path = Path(wanted.path)
    if wanted.type == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif wanted.type == "FileOrCreate" and not path.exists():
        path.touch()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not wanted.type:  # kubelet does not look, and the container engine makes a folder
            path.mkdir(parents=True)
            return path
        raise MountError(f"hostPath type check failed: {path} does not exist") from None
    is_so, title = _IS_OF_TYPE.get(wanted.type, (lambda _: True, ""))
    if not is_so(mode):
        raise MountError(f"hostPath type check failed: {path} is not {title}")
    return path


def memory_folder(uid: str) -> Path:
    """Where a pod's volumes in memory are."""
    return SHARED_MEMORY / f"paddle-operator-{uid}"


def remove_folder(folder: Path) -> None:
    """Also where a program took away its own right to write there. What cannot be removed stays."""

    def once_more(function: Callable[..., object], path: str, _: object) -> None:
        try:
            os.chmod(os.path.dirname(path), 0o700)
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o700)
                shutil.rmtree(path, ignore_errors=True)
            else:
                function(path)
        except OSError:
            return

    if folder.is_dir():
        shutil.rmtree(folder, onerror=once_more)
