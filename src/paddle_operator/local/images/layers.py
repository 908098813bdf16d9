"""Which files does an image bring, and where do they stand in a container? COPY and ADD, done once into a folder of the
cache that is never changed again.

The folder is the image's root as far as the Dockerfile fills it. What it has is told as mounts: whole folders where the
image is alone (/wide_and_deep), single entries where it shares a folder with the machine (/usr/local/bin).
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
from paddle_operator.local.images.image_config import CannotObey, Copy

# Folders that every base image has: an image adds to them and does not own them.
_SHARED = frozenset(map(PurePosixPath, ("/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp")))  # noqa: S108
_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr", "var")


def layer(copies: Sequence[Copy], folders: Sequence[str], layers: Path) -> Path:
    """The folder with everything copied, made first where it is not there. Raises CannotObey and OSError."""
    found = [(copy, list(_matches(copy))) for copy in copies]
    path = layers / _digest(found, folders)
    if path.exists():
        return path
    layers.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".making-", dir=layers))
    try:
        made.chmod(0o755)
        for copy, matches in found:
            _copy(copy, matches, made)
        for folder in folders:
            (made / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        try:
            made.rename(path)
        except OSError:
            if not path.exists():  # else somebody else was faster, with the same files
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return path


def mounts(layer: Path) -> Iterator[Mount]:
    """What a container has to see of a layer. Each is to be copied for a container, which may write there."""
    yield from _mounts_below(layer, PurePosixPath("/"))


def _mounts_below(folder: Path, target: PurePosixPath) -> Iterator[Mount]:
    for entry in sorted(folder.iterdir()):
        path = target / entry.name
        if entry.is_dir() and not entry.is_symlink() and _is_shared(path):
            yield from _mounts_below(entry, path)
        else:
            yield Mount(entry, str(path))


def _is_shared(path: PurePosixPath) -> bool:
    return path in _SHARED or (path.parts[1] in _SYSTEM and os.path.isdir(path))


def _matches(copy: Copy) -> Iterator[Path]:
    for source in copy.sources:
        relative = os.path.normpath(source.lstrip("/")) if source.strip("/") else "."
        if relative.startswith(".."):
            raise CannotObey(copy.origin, f"cannot be obeyed: {source} lies outside of {copy.context}")
        found = [copy.context] if relative == "." else sorted(copy.context.glob(relative))
        found = [path for path in found if path == copy.context or not _ignored(copy.context, path)]
        if not found:
            raise CannotObey(copy.origin, f"cannot be obeyed: {source} is not in {copy.context}")
        yield from found


def _digest(found: Sequence[tuple[Copy, Sequence[Path]]], folders: Sequence[str]) -> str:
    """By the files' names, sizes and times, as make does it: data in an image may be large."""
    digest = hashlib.sha256("\0".join(folders).encode())
    for copy, matches in found:
        digest.update(repr((copy.target, copy.mode, copy.unpacks)).encode())
        for match in matches:
            for path in (match, *_below(copy.context, match)):
                status = path.lstat()
                told = (str(path), status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                digest.update(repr(told if not path.is_dir() else told[:2]).encode())
    return digest.hexdigest()[:24]


def _below(context: Path, folder: Path) -> Iterator[Path]:
    if not folder.is_dir() or (folder.is_symlink() and folder != context):
        return
    for path in sorted(folder.iterdir()):
        if not _ignored(context, path):
            yield path
        yield from _below(context, path)  # also of an ignored folder: an exception may stand in it


def _copy(copy: Copy, matches: Sequence[Path], root: Path) -> None:
    target = root / copy.target.strip("/")
    into_folder = copy.target.endswith("/") or len(matches) > 1
    for match in matches:
        if match.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            for path in _below(copy.context, match):
                _copy_one(path, target / path.relative_to(match), copy.mode)
        elif copy.unpacks and tarfile.is_tarfile(match):
            target.mkdir(parents=True, exist_ok=True)
            with tarfile.open(match) as archive:
                archive.extractall(target, filter="tar")
        else:
            _copy_one(match, target / match.name if into_folder or target.is_dir() else target, copy.mode)


def _copy_one(source: Path, target: Path, mode: int | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        target.mkdir(exist_ok=True)
    else:
        target.unlink(missing_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    if mode is not None and not target.is_symlink():
        target.chmod(mode)


def _ignored(context: Path, path: Path) -> bool:
    """Whether .dockerignore leaves it out; the last pattern that fits decides."""
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
    signs = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meaning.get(sign, re.escape(sign)) for sign in signs) + "(?:/.*)?")
