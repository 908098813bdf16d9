"""ConfigMaps, Secrets and the downward API as files: what a volume holds, and how it changes under a running program.

As with kubelet the files are links through `..data`, a link itself: one rename, and all files are the new ones at once.
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
    Contents,
    Facts,
    field_text,
    missing,
    missing_key,
    resource_text,
)
from paddle_operator.local.kubelet.pod_volumes import ConfigMapFiles, DownwardFiles, Item, SecretFiles, Source, Volume

DEFAULT_MODE = 0o644
_DATA = "..data"


class MountError(Exception):
    """A volume cannot be made, or not yet; str() is a sentence for the pod's events."""


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int


Files = dict[str, File]  # by the path within the volume


def files_of(volume: Volume, facts: Facts, contents: Contents) -> Files | None:
    """None for a volume of another kind. Raises MountError while something is missing."""
    sources: tuple[Source, ...]
    if volume.projected:
        sources, mode = volume.projected.sources, volume.projected.default_mode
    elif volume.config_map or volume.secret or volume.downward_api:
        sources, mode = (Source(volume.config_map, volume.secret, volume.downward_api),), None
    else:
        return None
    files: Files = {}
    for source in sources:
        files |= dict(_files(source, mode, facts, contents))
    return files


def _files(source: Source, mode: int | None, facts: Facts, contents: Contents) -> Iterator[tuple[str, File]]:
    if source.config_map:
        yield from _content(CONFIG_MAP, source.config_map.name, source.config_map, mode, facts, contents)
    if source.secret:
        name = source.secret.secret_name or source.secret.name
        yield from _content(SECRET, name, source.secret, mode, facts, contents)
    if source.downward_api:
        yield from _downward(source.downward_api, mode, facts)
    # A service account's token is nobody's here: there is one user and nothing to be forbidden.


def _content(
    kind: str, name: str, wanted: ConfigMapFiles | SecretFiles, mode: int | None, facts: Facts, contents: Contents
) -> Iterator[tuple[str, File]]:
    namespace = facts.pod.key.namespace
    content = contents.content(kind, namespace, name)
    if content is None:
        if wanted.optional:
            return
        raise MountError(missing(kind, name))
    for item in wanted.items or tuple(Item(key, key) for key in content):
        if item.key in content:
            yield _path(item.path), File(content[item.key], item.mode or wanted.default_mode or mode or DEFAULT_MODE)
        elif not wanted.optional:
            raise MountError(missing_key(kind, namespace, name, item.key))


def _downward(wanted: DownwardFiles, mode: int | None, facts: Facts) -> Iterator[tuple[str, File]]:
    for item in wanted.items:
        try:
            if item.field_ref:
                text = field_text(item.field_ref.field_path, facts)
            elif item.resource_field_ref:
                text = resource_text(item.resource_field_ref, facts, "")
            else:
                continue
        except ConfigError as error:
            raise MountError(str(error)) from None
        yield _path(item.path), File(text.encode(), item.mode or wanted.default_mode or mode or DEFAULT_MODE)


def _path(path: str) -> str:
    """Raises MountError for one that leads out of the volume."""
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts:
        raise MountError(f'the path "{path}" leads out of the volume: make it relative, without ..')
    return path


def write_files(folder: Path, files: Mapping[str, File]) -> None:
    """Make the folder hold exactly these, at once for whoever looks. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"..{secrets.token_hex(6)}"
    try:
        for path, file in files.items():
            target = data / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(file.mode)
        data.mkdir(exist_ok=True)
        new = folder / "..data_tmp"
        new.unlink(missing_ok=True)
        new.symlink_to(data.name)
        new.rename(folder / _DATA)
    except OSError:
        shutil.rmtree(data, ignore_errors=True)
        raise
    _link(folder, {PurePosixPath(path).parts[0] for path in files})
    for old in folder.iterdir():
        if old.name.startswith("..") and old.name not in (_DATA, data.name):
            shutil.rmtree(old, ignore_errors=True)


def _link(folder: Path, names: set[str]) -> None:
    for name in names:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(Path(_DATA) / name)
    for link in folder.iterdir():
        if link.is_symlink() and link.name != _DATA and link.name not in names:
            os.unlink(link)
