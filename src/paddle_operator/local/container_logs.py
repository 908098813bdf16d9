"""Container logs as files: `LogWriter` writes one run of a container, `LogFiles` reads runs for `kubectl logs`.

A record is a timestamp, F (or P, if the next record continues the line) and the text. `<restart>.log` is the active
file; at 10 MiB it becomes `<restart>.log.<number>`. Numbers go up, and the last four rotated files are retained.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.errors import describe_os_error
from paddle_operator.kube.objects import Key

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_ROTATED_FILES = 4  # beside the active one
MAX_LOG_LINE_BYTES = 16 * 1024  # a longer line is split, so that a program without line ends costs no memory
READ_BYTES = 64 * 1024
_TIMESTAMP_FORMAT = "%Y-%m-%dT%H:%M:%S.%f"


class LogError(Exception):
    """The log does not exist; str() is the message that an API server returns."""


@dataclass(frozen=True)
class PodLogOptions:
    """The fields of Kubernetes' PodLogOptions that local mode supports."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
    timestamps: bool = False


class LogWriter:
    """Appends what a program prints. A full disk loses lines and is logged once; it never blocks the program."""

    def __init__(self, path: Path, clock: Clock, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self.path = path
        self.closed = False
        self.error = ""  # why lines are being lost
        self.changed = asyncio.Event()  # replaced after each change
        self._clock = clock
        self._max_file_bytes = max_file_bytes
        self._partial_line = b""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()

    def write(self, data: bytes) -> None:
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        timestamp = self._timestamp()  # one for all of them: they came in one read
        prefix = timestamp + b" F "
        records = [
            prefix + line + b"\n" if len(line) <= MAX_LOG_LINE_BYTES else b"".join(_split_line(timestamp, line))
            for line in lines
        ]
        while len(self._partial_line) > MAX_LOG_LINE_BYTES:
            part, self._partial_line = self._partial_line[:MAX_LOG_LINE_BYTES], self._partial_line[MAX_LOG_LINE_BYTES:]
            records.append(b"%b P %b\n" % (timestamp, part))
        self._append(b"".join(records))

    def close(self) -> None:
        if self.closed:
            return
        if self._partial_line:
            self._append(b"%b F %b\n" % (self._timestamp(), self._partial_line))
            self._partial_line = b""
        self.closed = True
        self._file.close()
        self._notify_readers()

    def _timestamp(self) -> bytes:
        return self._clock.now().strftime(f"{_TIMESTAMP_FORMAT}000Z").encode()

    def _append(self, records: bytes) -> None:
        if not records or self.closed:
            return
        try:
            if self._size and self._size + len(records) > self._max_file_bytes:
                self._rotate()
            written = self._file.write(records)
            if written < len(records):  # the disk took a part: the line must still end
                written += self._file.write(b"\n")
            self._size += written
            self.error = ""
        except OSError as error:
            if not self.error:
                self.error = f"log lines are being lost: {self.path.name} cannot be written: {describe_os_error(error)}"
                log.warning(
                    "log lines are being lost", extra={"file": str(self.path), "error": describe_os_error(error)}
                )
        self._notify_readers()

    def _rotate(self) -> None:
        self._file.close()
        numbers = rotated_numbers(self.path)
        self.path.rename(rotated_path(self.path, (numbers[-1] if numbers else 0) + 1))
        for number in numbers[: max(len(numbers) + 1 - MAX_ROTATED_FILES, 0)]:
            rotated_path(self.path, number).unlink(missing_ok=True)
        self._file = self.path.open("ab", buffering=0)
        self._size = 0

    def _notify_readers(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class LogFiles:
    """The logs of all containers under a state directory: `pods/<uid>/<container>/<restart>.log`."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self._pods = directory / "pods"
        self._clock = clock or SystemClock()
        self._writers: dict[Path, LogWriter] = {}  # of the running containers
        self._container_names: dict[str, tuple[str, ...]] = {}  # by pod UID, for pods that this process runs

    def register(self, uid: str, container_names: tuple[str, ...]) -> None:
        """Make a pod's containers known before they print anything."""
        self._container_names[uid] = container_names

    def open(self, uid: str, container: str, restart: int) -> LogWriter:
        """Start the log of a run and remove all earlier ones but the last. Raises OSError."""
        directory = self._pods / uid / container
        for number in _restarts(directory):
            if number < restart - 1:
                _remove_run(directory / f"{number}.log")
        writer = LogWriter(directory / f"{restart}.log", self._clock)
        self._writers[writer.path] = writer
        return writer

    def close(self, writer: LogWriter) -> None:
        writer.close()
        self._writers.pop(writer.path, None)

    def last_lines(self, uid: str, container: str, restart: int, *, lines: int = 80, max_bytes: int = 2048) -> str:
        """The end of a log; kubelet uses it as the termination message if the container wrote none."""
        path = self._pods / uid / container / f"{restart}.log"
        text = b"".join(_format_records(_read_records(path, _tail_position(path, lines)), PodLogOptions()))
        return text[-max_bytes:].decode(errors="replace")

    def remove(self, uid: str) -> None:
        self._container_names.pop(uid, None)
        shutil.rmtree(self._pods / uid, ignore_errors=True)

    async def stream(self, pod: Key, uid: str, options: PodLogOptions) -> AsyncIterator[bytes]:
        """Yield what was printed, in chunks; with `follow`, until that run ends. Raises LogError."""
        path = self._path(pod.name, uid, options)
        remaining = options.limit_bytes
        async for chunk in self._chunks(path, options):
            if remaining is not None:
                chunk, remaining = chunk[:remaining], remaining - len(chunk)
            if chunk:
                yield chunk
            if remaining is not None and remaining <= 0:
                return

    def _path(self, name: str, uid: str, options: PodLogOptions) -> Path:
        directory = self._pods / uid
        names = self._container_names.get(uid) or _container_names_on_disk(directory)
        container, previous = options.container, options.previous
        if not container and len(names) > 1:
            raise LogError(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
        container = container or next(iter(names), "")
        if container not in names:
            raise LogError(f"container {container} is not valid for pod {name}: it has [{' '.join(names)}]")
        restarts = _restarts(directory / container)
        if previous and len(restarts) < 2:
            raise LogError(f'previous terminated container "{container}" in pod "{name}" not found')
        if not restarts:
            raise LogError(f'container "{container}" in pod "{name}" is waiting to start: it has not printed anything')
        return directory / container / f"{restarts[-2 if previous else -1]}.log"

    async def _chunks(self, path: Path, options: PodLogOptions) -> AsyncIterator[bytes]:
        with _Reader(path, *_tail_position(path, options.tail_lines)) as reader:
            while True:
                writer = self._writers.get(path)
                changed = writer.changed if writer else None  # before reading, so that no later change is missed
                for chunk in _format_records(reader.records(), options):
                    yield chunk
                    await asyncio.sleep(0)
                if not options.follow or writer is None or changed is None or writer.closed:
                    return
                await changed.wait()


class _Reader:
    """Reads a log's files from a position in one of them; the active file has the number after the last rotated one."""

    def __init__(self, path: Path, number: int, offset: int) -> None:
        self._path = path
        self._number = number
        self._offset = offset
        self._file: BinaryIO | None = None
        self._partial = b""

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def records(self) -> Iterator[list[bytes]]:
        """Complete records that were not read yet, up to where the log ends now."""
        while True:
            active = _active_number(self._path)  # before reading: a file that is not active by now is complete
            if self._file is None:
                try:
                    self._file = _file_path(self._path, self._number, active).open("rb")
                except FileNotFoundError:
                    self._number = max(self._number + 1, next(iter(rotated_numbers(self._path)), active))
                    if self._number > active:
                        return
                    continue
                self._file.seek(self._offset)
            while data := self._file.read(READ_BYTES):
                *complete, self._partial = (self._partial + data).split(b"\n")
                yield complete
            if self._number >= active:
                return
            self._file.close()
            self._file, self._offset, self._partial, self._number = None, 0, b"", self._number + 1


def _read_records(path: Path, start: tuple[int, int]) -> Iterator[list[bytes]]:
    with _Reader(path, *start) as reader:
        yield from reader.records()


def _format_records(groups: Iterator[list[bytes]], options: PodLogOptions) -> Iterator[bytes]:
    # Timestamps are compared as text: they all have the same form.
    since = options.since.strftime(_TIMESTAMP_FORMAT).encode() if options.since else b""
    for records in groups:
        lines = []
        for record in records:
            timestamp, _, tagged = record.partition(b" ")
            if since and timestamp < since:
                continue
            tag, _, text = tagged.partition(b" ")
            line_end = b"" if tag == b"P" else b"\n"
            lines.append((timestamp + b" " if options.timestamps else b"") + text + line_end)
        if lines:
            yield b"".join(lines)


def _split_line(timestamp: bytes, line: bytes) -> list[bytes]:
    """The records of a line that is too long for one."""
    parts = [line[start : start + MAX_LOG_LINE_BYTES] for start in range(0, len(line), MAX_LOG_LINE_BYTES)]
    return [*(b"%b P %b\n" % (timestamp, part) for part in parts[:-1]), b"%b F %b\n" % (timestamp, parts[-1])]


def rotated_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def rotated_numbers(path: Path) -> list[int]:
    """The numbers of a log's rotated files, the oldest first."""
    suffixes = (each.name.removeprefix(f"{path.name}.") for each in path.parent.glob(f"{path.name}.*"))
    return sorted(int(suffix) for suffix in suffixes if suffix.isdigit())


def _active_number(path: Path) -> int:
    return next(reversed(rotated_numbers(path)), 0) + 1


def _file_path(path: Path, number: int, active: int) -> Path:
    return path if number >= active else rotated_path(path, number)


def _tail_position(path: Path, lines: int | None) -> tuple[int, int]:
    """Where the last `lines` lines begin: the number of the file and the offset in it."""
    active = _active_number(path)
    numbers = [*rotated_numbers(path), active]
    if lines is None:
        return numbers[0], 0
    line_ends = lines + 1  # including the one before the first of these lines
    for number in reversed(numbers):
        with _file_path(path, number, active).open("rb") as file:
            offset = file.seek(0, os.SEEK_END)
            if lines == 0:
                return number, offset
            while offset:
                offset, end = max(offset - READ_BYTES, 0), offset
                file.seek(offset)
                chunk = file.read(end - offset)
                found = chunk.count(b"\n")
                if found >= line_ends:
                    return number, offset + _nth_line_end_from_end(chunk, line_ends) + 1
                line_ends -= found
    return numbers[0], 0


def _nth_line_end_from_end(chunk: bytes, count: int) -> int:
    at = len(chunk)
    for _ in range(count):
        at = chunk.rindex(b"\n", 0, at)
    return at


def _container_names_on_disk(directory: Path) -> tuple[str, ...]:
    """The containers of a pod that an earlier process ran; no container's name begins with an underscore."""
    try:
        return tuple(sorted(name for name in os.listdir(directory) if not name.startswith("_")))
    except OSError:
        return ()


def _restarts(directory: Path) -> list[int]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    stems = (name.removesuffix(".log") for name in names if name.endswith(".log"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _remove_run(path: Path) -> None:
    for number in rotated_numbers(path):
        rotated_path(path, number).unlink(missing_ok=True)
    path.unlink(missing_ok=True)
