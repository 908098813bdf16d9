"""What has a container printed? Reads the files of log_writer.py for `kubectl logs`, a piece at a time."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.local.log_writer import LogWriter, rotated, rotated_path

PIECE = 64 * 1024
_INSTANT = "%Y-%m-%dT%H:%M:%S.%f"


class LogError(Exception):
    """There is no such log; str() is the sentence that an API server gives."""


@dataclass(frozen=True)
class _Wish:
    since: str  # an instant as it stands in the file, so that texts can be compared
    timestamps: bool


class LogFiles:
    """The logs of all containers under a state folder: `pods/<uid>/<container>/<restart>.log`."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._pods = folder / "pods"
        self._clock = clock or SystemClock()
        self._writers: dict[Path, LogWriter] = {}  # of the containers that run
        self._names: dict[str, tuple[str, ...]] = {}  # the containers of each pod that this process has met

    # For the node

    def expect(self, uid: str, names: tuple[str, ...]) -> None:
        """A pod has these containers, whether or not they have printed anything."""
        self._names[uid] = names

    def open(self, uid: str, container: str, restart: int) -> LogWriter:
        """The log of a run that begins; of the runs before it the last one is kept. Raises OSError."""
        folder = self._pods / uid / container
        for number in _restarts(folder):
            if number < restart - 1:
                _remove(folder / f"{number}.log")
        writer = LogWriter(folder / f"{restart}.log", self._clock)
        self._writers[writer.path] = writer
        return writer

    def close(self, writer: LogWriter) -> None:
        writer.close()
        self._writers.pop(writer.path, None)

    def last_lines(self, uid: str, container: str, restart: int, *, lines: int = 80, most_bytes: int = 2048) -> str:
        """The end of a log, as kubelet takes it for a message where a container left none."""
        path = self._pods / uid / container / f"{restart}.log"
        text = b"".join(_shown(_from(path, _start_of_tail(path, lines)), _Wish("", timestamps=False)))
        return text[-most_bytes:].decode(errors="replace")

    def forget(self, uid: str) -> None:
        self._names.pop(uid, None)
        shutil.rmtree(self._pods / uid, ignore_errors=True)

    # For the API server

    async def stream(
        self,
        namespace: str,  # noqa: ARG002  # the UID says more
        name: str,
        uid: str,
        *,
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        """What was printed, in pieces, and with `follow` what will be, until that run ends. Raises LogError."""
        path = self._path(name, uid, container, previous=previous)
        wish = _Wish(since.strftime(_INSTANT) if since else "", timestamps)
        left = limit_bytes
        async for piece in self._pieces(path, wish, tail_lines, follow=follow):
            if left is not None:
                piece, left = piece[:left], left - len(piece)
            if piece:
                yield piece
            if left is not None and left <= 0:
                return

    def _path(self, name: str, uid: str, container: str, *, previous: bool) -> Path:
        folder = self._pods / uid
        names = self._names.get(uid) or _containers(folder)
        if not container and len(names) > 1:
            raise LogError(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
        container = container or next(iter(names), "")
        if container not in names:
            raise LogError(f"container {container} is not valid for pod {name}: it has [{' '.join(names)}]")
        restarts = _restarts(folder / container)
        if previous and len(restarts) < 2:
            raise LogError(f'previous terminated container "{container}" in pod "{name}" not found')
        if not restarts:
            raise LogError(f'container "{container}" in pod "{name}" is waiting to start: it has not printed anything')
        return folder / container / f"{restarts[-2 if previous else -1]}.log"

    async def _pieces(self, path: Path, wish: _Wish, tail: int | None, *, follow: bool) -> AsyncIterator[bytes]:
        with _Reader(path, *_start_of_tail(path, tail)) as reader:
            while True:
                writer = self._writers.get(path)
                changed = writer.changed if writer else None  # before reading: what comes after it is told
                for piece in _shown(reader.records(), wish):
                    yield piece
                    await asyncio.sleep(0)
                if not follow or writer is None or changed is None or writer.closed:
                    return
                await changed.wait()


class _Reader:
    """Goes through a log's files from a place in one of them; the file being written has the number after the last."""

    def __init__(self, path: Path, number: int, offset: int) -> None:
        self._path = path
        self._number = number
        self._offset = offset
        self._file: BinaryIO | None = None
        self._rest = b""

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def records(self) -> Iterator[list[bytes]]:
        """Whole records that have not been given yet, some at a time, up to where the log ends now."""
        while True:
            newest = _newest(self._path)  # before reading: a file that is not the newest by now is complete
            if self._file is None:
                try:
                    self._file = _file(self._path, self._number, newest).open("rb")
                except FileNotFoundError:
                    self._number = max(self._number + 1, next(iter(rotated(self._path)), newest))
                    if self._number > newest:
                        return
                    continue
                self._file.seek(self._offset)
            while data := self._file.read(PIECE):
                *whole, self._rest = (self._rest + data).split(b"\n")
                yield whole
            if self._number >= newest:
                return
            self._file.close()
            self._file, self._offset, self._rest, self._number = None, 0, b"", self._number + 1


def _from(path: Path, start: tuple[int, int]) -> Iterator[list[bytes]]:
    with _Reader(path, *start) as reader:
        yield from reader.records()


def _shown(groups: Iterator[list[bytes]], wish: _Wish) -> Iterator[bytes]:
    since = wish.since.encode()
    for records in groups:
        shown = []
        for record in records:
            instant, _, rest = record.partition(b" ")
            if since and instant < since:
                continue
            tag, _, text = rest.partition(b" ")
            end = b"" if tag == b"P" else b"\n"
            shown.append((instant + b" " if wish.timestamps else b"") + text + end)
        if shown:
            yield b"".join(shown)


def _newest(path: Path) -> int:
    return next(reversed(rotated(path)), 0) + 1


def _file(path: Path, number: int, newest: int) -> Path:
    return path if number >= newest else rotated_path(path, number)


def _start_of_tail(path: Path, lines: int | None) -> tuple[int, int]:
    """Where the last so many lines begin: the number of the file, and the place in it."""
    newest = _newest(path)
    numbers = [*rotated(path), newest]
    if lines is None:
        return numbers[0], 0
    wanted = lines + 1  # the line end before the first of them
    for number in reversed(numbers):
        with _file(path, number, newest).open("rb") as file:
            place = file.seek(0, os.SEEK_END)
            if lines == 0:
                return number, place
            while place:
                place, end = max(place - PIECE, 0), place
                file.seek(place)
                piece = file.read(end - place)
                ends = piece.count(b"\n")
                if ends >= wanted:
                    return number, place + _nth_from_end(piece, wanted) + 1
                wanted -= ends
    return numbers[0], 0


def _nth_from_end(piece: bytes, count: int) -> int:
    at = len(piece)
    for _ in range(count):
        at = piece.rindex(b"\n", 0, at)
    return at


def _containers(folder: Path) -> tuple[str, ...]:
    """Of a pod that an earlier process ran; what is not a container's has a name that no container can have."""
    try:
        return tuple(sorted(name for name in os.listdir(folder) if not name.startswith("_")))
    except OSError:
        return ()


def _restarts(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    stems = (name.removesuffix(".log") for name in names if name.endswith(".log"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _remove(path: Path) -> None:
    for number in rotated(path):
        rotated_path(path, number).unlink(missing_ok=True)
    path.unlink(missing_ok=True)
