"""One run of a container as a file: a line is an instant, F (or P where the rest of it follows) and the text.

`<restart>.log` is written; at 10 MiB it becomes `<restart>.log.<number>`, numbers go up, and the last four are kept.
"""

import asyncio
import logging
from pathlib import Path

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import in_words

log = logging.getLogger(__name__)

LARGEST_FILE = 10 * 1024 * 1024
MOST_ROTATED = 4  # and the one that is written
LONGEST_LINE = 16 * 1024  # a longer one is cut into parts, so that a program without line ends costs no memory


class LogWriter:
    """Takes bytes as the program writes them. A full disk costs lines and is said once; it never holds up a program."""

    def __init__(self, path: Path, clock: Clock, *, largest: int = LARGEST_FILE) -> None:
        self.path = path
        self.closed = False
        self.problem = ""  # why lines are being lost
        self.changed = asyncio.Event()  # another one after each change
        self._clock = clock
        self._largest = largest
        self._rest = b""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()

    def write(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        instant = self._instant()  # of all of it: it came in one read
        last = instant + b" F "
        records = [
            last + line + b"\n" if len(line) <= LONGEST_LINE else b"".join(_parts(instant, line)) for line in whole
        ]
        while len(self._rest) > LONGEST_LINE:
            part, self._rest = self._rest[:LONGEST_LINE], self._rest[LONGEST_LINE:]
            records.append(b"%b P %b\n" % (instant, part))
        self._append(b"".join(records))

    def close(self) -> None:
        if self.closed:
            return
        if self._rest:
            self._append(b"%b F %b\n" % (self._instant(), self._rest))
            self._rest = b""
        self.closed = True
        self._file.close()
        self._tell()

    def _instant(self) -> bytes:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()

    def _append(self, records: bytes) -> None:
        if not records or self.closed:
            return
        try:
            if self._size and self._size + len(records) > self._largest:
                self._rotate()
            written = self._file.write(records)
            if written < len(records):  # the disk took a part: the line must still end
                written += self._file.write(b"\n")
            self._size += written
            self.problem = ""
        except OSError as error:
            if not self.problem:
                self.problem = f"log lines are being lost: {self.path.name} cannot be written: {in_words(error)}"
                log.warning("log lines are being lost", extra={"file": str(self.path), "why": in_words(error)})
        self._tell()

    def _rotate(self) -> None:
        self._file.close()
        numbers = rotated(self.path)
        self.path.rename(rotated_path(self.path, (numbers[-1] if numbers else 0) + 1))
        for number in numbers[: max(len(numbers) + 1 - MOST_ROTATED, 0)]:
            rotated_path(self.path, number).unlink(missing_ok=True)
        self._file = self.path.open("ab", buffering=0)
        self._size = 0

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _parts(instant: bytes, line: bytes) -> list[bytes]:
    """A line that is too long for one record."""
    parts = [line[start : start + LONGEST_LINE] for start in range(0, len(line), LONGEST_LINE)]
    return [*(b"%b P %b\n" % (instant, part) for part in parts[:-1]), b"%b F %b\n" % (instant, parts[-1])]


def rotated_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def rotated(path: Path) -> list[int]:
    """The numbers of the files that were written before this one, the oldest first."""
    tails = (each.name.removeprefix(f"{path.name}.") for each in path.parent.glob(f"{path.name}.*"))
    return sorted(int(tail) for tail in tails if tail.isdigit())
