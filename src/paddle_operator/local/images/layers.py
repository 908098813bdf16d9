"""Builds the layer of an image: COPY and ADD are done once, into a cached directory that never changes again.

The directory is the image's root as far as the Dockerfile fills it. A container sees it as mounts: whole directories
that only the image has (/wide_and_deep), single entries where the host has the directory, too (/usr/local/bin).
"""

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from paddle_operator.local.cri import Mount
from paddle_operator.local.images.image_config import Copy, UnsupportedInstruction

# Directories that every base image has: an image adds entries to them and does not own them.
_SHARED_DIRECTORIES = frozenset(
    map(PurePosixPath, ("/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp"))  # noqa: S108
)
_SYSTEM_DIRECTORIES = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr", "var")


def build_layer(copies: Sequence[Copy], directories: Sequence[str], layers: Path) -> Path:
    """Return the layer's directory; copy the files if it is not cached. Raises UnsupportedInstruction, OSError."""
    found = [(copy, list(_matches(copy))) for copy in copies]
    path = layers / _digest(found, directories)
    if path.exists():
        return path
    layers.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=layers))
    try:
        building.chmod(0o755)
        for copy, matches in found:
            _copy(copy, matches, building)
        for directory in directories:
            (building / directory.lstrip("/")).mkdir(parents=True, exist_ok=True)
        try:
            building.rename(path)
        except OSError:
            if not path.exists():  # otherwise another process has built the same layer
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return path


def layer_mounts(layer: Path) -> Iterator[Mount]:
    """The mounts that show a layer in a container. Each must be copied per container, which may write there."""
    yield from _walk_mounts(layer, PurePosixPath("/"))


def _walk_mounts(directory: Path, target: PurePosixPath) -> Iterator[Mount]:
    for entry in sorted(directory.iterdir()):
        path = target / entry.name
        if entry.is_dir() and not entry.is_symlink() and _is_shared(path):
            yield from _walk_mounts(entry, path)
        else:
            yield Mount(entry, str(path))


def _is_shared(path: PurePosixPath) -> bool:
    return path in _SHARED_DIRECTORIES or (path.parts[1] in _SYSTEM_DIRECTORIES and os.path.isdir(path))


def _matches(copy: Copy) -> Iterator[Path]:
    for source in copy.sources:
        relative = os.path.normpath(source.lstrip("/")) if source.strip("/") else "."
        if relative.startswith(".."):
            raise UnsupportedInstruction(copy.origin, f"is not supported: {source} lies outside of {copy.context}")
        found = [copy.context] if relative == "." else sorted(copy.context.glob(relative))
        found = [path for path in found if path == copy.context or not _is_ignored(copy.context, path)]
        if not found:
            raise UnsupportedInstruction(copy.origin, f"is not supported: {source} is not in {copy.context}")
        yield from found


def _digest(found: Sequence[tuple[Copy, Sequence[Path]]], directories: Sequence[str]) -> str:
    """A digest of the files' names, sizes and times, not of their content: data in an image may be large."""
    digest = hashlib.sha256("\0".join(directories).encode())
    for copy, matches in found:
        digest.update(repr((copy.target, copy.mode, copy.unpacks_archives)).encode())
        for match in matches:
            for path in (match, *_walk(copy.context, match)):
                status = path.lstat()
                attributes = (str(path), status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                digest.update(repr(attributes if not path.is_dir() else attributes[:2]).encode())
    return digest.hexdigest()[:24]


def _walk(context: Path, directory: Path) -> Iterator[Path]:
    if not directory.is_dir() or (directory.is_symlink() and directory != context):
        return
    for path in sorted(directory.iterdir()):
        if not _is_ignored(context, path):
            yield path
        yield from _walk(context, path)  # also of an ignored directory: it may contain an exception


def _copy(copy: Copy, matches: Sequence[Path], root: Path) -> None:
    target = root / copy.target.strip("/")
    into_directory = copy.target.endswith("/") or len(matches) > 1
    for match in matches:
        if match.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            for path in _walk(copy.context, match):
                _copy_one(path, target / path.relative_to(match), copy.mode)
        elif copy.unpacks_archives and tarfile.is_tarfile(match):
            target.mkdir(parents=True, exist_ok=True)
            with tarfile.open(match) as archive:
                archive.extractall(target, filter="tar")
        else:
            _copy_one(match, target / match.name if into_directory or target.is_dir() else target, copy.mode)


def _copy_one(source: Path, target: Path, mode: int | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        target.mkdir(exist_ok=True)
    else:
        target.unlink(missing_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    if mode is not None and not target.is_symlink():
        target.chmod(mode)


def _is_ignored(context: Path, path: Path) -> bool:
    """Whether .dockerignore excludes the path; the last matching pattern decides."""
    name, ignored = path.relative_to(context).as_posix(), False
    for pattern, exception in _ignore_patterns(context / ".dockerignore"):
        if pattern.fullmatch(name):
            ignored = not exception
    return ignored


def _ignore_patterns(file: Path) -> Sequence[tuple[re.Pattern[str], bool]]:
    try:
        return _patterns(file.read_text())
    except FileNotFoundError:
        return ()


@cache
def _patterns(text: str) -> tuple[tuple[re.Pattern[str], bool], ...]:
    lines = [line.strip() for line in text.splitlines()]
    return tuple(
        (_pattern(line.removeprefix("!").strip().strip("/")), line.startswith("!"))
        for line in lines
        if line and not line.startswith("#")
    )


def _pattern(text: str) -> re.Pattern[str]:
    tokens = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    translation = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(translation.get(token, re.escape(token)) for token in tokens) + "(?:/.*)?")
