"""Writes ConfigMaps, Secrets and the downward API as files, and updates them under a running program.

As with kubelet the files are links through `..data`, itself a link: one rename replaces all files at once.
"""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from paddle_operator.local.kubelet.container_env import (
    CONFIG_MAP,
    SECRET,
    ConfigError,
    ConfigReader,
    DownwardContext,
    field_text,
    key_not_found_message,
    not_found_message,
    resource_text,
)
from paddle_operator.local.kubelet.pod import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeSource,
    KeyToPath,
    SecretVolumeSource,
    Volume,
    VolumeProjection,
)

DEFAULT_FILE_MODE = 0o644
_DATA_LINK = "..data"


class MountError(Exception):
    """A volume cannot be mounted, or not yet; str() is the message of the pod's event."""


@dataclass(frozen=True)
class ProjectedFile:
    content: bytes
    mode: int


Files = dict[str, ProjectedFile]  # by path in the volume


def projected_files(volume: Volume, context: DownwardContext, configs: ConfigReader) -> Files | None:
    """The files of a volume; None for a volume of another type. Raises MountError while a source is missing."""
    sources: tuple[VolumeProjection, ...]
    if volume.projected:
        sources, mode = volume.projected.sources, volume.projected.default_mode
    elif volume.config_map or volume.secret or volume.downward_api:
        sources, mode = (VolumeProjection(volume.config_map, volume.secret, volume.downward_api),), None
    else:
        return None
    files: Files = {}
    for source in sources:
        files |= dict(_source_files(source, mode, context, configs))
    return files


def _source_files(
    source: VolumeProjection, mode: int | None, context: DownwardContext, configs: ConfigReader
) -> Iterator[tuple[str, ProjectedFile]]:
    if source.config_map:
        yield from _config_files(CONFIG_MAP, source.config_map.name, source.config_map, mode, context, configs)
    if source.secret:
        name = source.secret.secret_name or source.secret.name
        yield from _config_files(SECRET, name, source.secret, mode, context, configs)
    if source.downward_api:
        yield from _downward_files(source.downward_api, mode, context)
    # There is no service account token: the local cluster has one user and no RBAC.


def _config_files(
    kind: str,
    name: str,
    source: ConfigMapVolumeSource | SecretVolumeSource,
    mode: int | None,
    context: DownwardContext,
    configs: ConfigReader,
) -> Iterator[tuple[str, ProjectedFile]]:
    namespace = context.pod.key.namespace
    data = configs.data(kind, namespace, name)
    if data is None:
        if source.optional:
            return
        raise MountError(not_found_message(kind, name))
    for item in source.items or tuple(KeyToPath(key, key) for key in data):
        if item.key in data:
            file_mode = item.mode or source.default_mode or mode or DEFAULT_FILE_MODE
            yield _check_path(item.path), ProjectedFile(data[item.key], file_mode)
        elif not source.optional:
            raise MountError(key_not_found_message(kind, namespace, name, item.key))


def _downward_files(
    source: DownwardAPIVolumeSource, mode: int | None, context: DownwardContext
) -> Iterator[tuple[str, ProjectedFile]]:
    for item in source.items:
        try:
            if item.field_ref:
                text = field_text(item.field_ref.field_path, context)
            elif item.resource_field_ref:
                text = resource_text(item.resource_field_ref, context, "")
            else:
                continue
        except ConfigError as error:
            raise MountError(str(error)) from None
        file_mode = item.mode or source.default_mode or mode or DEFAULT_FILE_MODE
        yield _check_path(item.path), ProjectedFile(text.encode(), file_mode)


def _check_path(path: str) -> str:
    """Return the path. Raises MountError if it leads out of the volume."""
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts:
        raise MountError(f'the path "{path}" leads out of the volume: make it relative, without ..')
    return path


def write_files(directory: Path, files: Mapping[str, ProjectedFile]) -> None:
    """Replace the directory's content by these files, atomically for readers. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / f"..{secrets.token_hex(6)}"
    try:
        for path, file in files.items():
            target = data / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(file.mode)
        data.mkdir(exist_ok=True)
        new = directory / "..data_tmp"
        new.unlink(missing_ok=True)
        new.symlink_to(data.name)
        new.rename(directory / _DATA_LINK)
    except OSError:
        shutil.rmtree(data, ignore_errors=True)
        raise
    _update_links(directory, {PurePosixPath(path).parts[0] for path in files})
    for old in directory.iterdir():
        if old.name.startswith("..") and old.name not in (_DATA_LINK, data.name):
            shutil.rmtree(old, ignore_errors=True)


def _update_links(directory: Path, names: set[str]) -> None:
    for name in names:
        link = directory / name
        if not link.is_symlink():
            link.symlink_to(Path(_DATA_LINK) / name)
    for link in directory.iterdir():
        if link.is_symlink() and link.name != _DATA_LINK and link.name not in names:
            os.unlink(link)
