"""What has lately happened to the objects of one kind: the queue of every watch, and a way back to an earlier list.

All watches of a kind read the same history, each at its own place. A watcher that is so slow that its place has been
forgotten is cut, so that no watcher costs memory of its own.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from paddle_operator.kube.objects import Key

MOST_CHANGES = 10_000
MOST_BYTES = 8 * 1024 * 1024  # a thousand changes of pods; a watch of the same process is some dozens behind


class Record(msgspec.Struct, frozen=True):
    """One object at one version; never changed, so that whoever looks at it may keep it."""

    row: int
    key: Key
    uid: str
    version: int
    body: bytes  # the whole object as JSON
    labels: Mapping[str, str]
    fields: Mapping[str, str]  # what it can be selected by
    owners: tuple[str, ...]  # their UIDs
    written_at: float


class Change(msgspec.Struct, frozen=True):
    """`new` is what was written; of a deletion, the last state under the deletion's own version."""

    old: Record | None
    new: Record
    deleted: bool = False

    @property
    def version(self) -> int:
        return self.new.version


class Forgotten(Exception):
    """What was asked for is older than what is kept."""


class History:
    def __init__(self, floor: int, most_changes: int = MOST_CHANGES, most_bytes: int = MOST_BYTES) -> None:
        self.floor = floor  # everything after this version is here
        self._changes: list[Change] = []
        self._first = 0  # the number of the oldest change that is kept, counted from the beginning
        self._bytes = 0
        self._most_changes = most_changes
        self._most_bytes = most_bytes

    def append(self, change: Change) -> None:
        self._changes.append(change)
        self._bytes += len(change.new.body)
        if len(self._changes) > self._most_changes or self._bytes > self._most_bytes:
            self._forget()

    def _forget(self) -> None:
        """Down to three quarters, so that it is rarely done."""
        dropped = 0
        while len(self._changes) - dropped > self._most_changes * 3 // 4 or self._bytes > self._most_bytes * 3 // 4:
            self._bytes -= len(self._changes[dropped].new.body)
            dropped += 1
        self.forget_until(self._changes[dropped - 1].version, recount=False)

    def forget_until(self, version: int, *, recount: bool = True) -> None:
        """As a compaction does: nothing up to this version can be asked for any more."""
        dropped = bisect_right(self._changes, version, key=_version)
        if recount:
            self._bytes -= sum(len(change.new.body) for change in self._changes[:dropped])
        del self._changes[:dropped]
        self._first += dropped
        self.floor = max(self.floor, version)

    @property
    def end(self) -> int:
        """The place after the newest change."""
        return self._first + len(self._changes)

    def place_after(self, version: int) -> int:
        """Where to read on for whoever has seen everything up to this version. Raises Forgotten."""
        if version < self.floor:
            raise Forgotten
        return self._first + bisect_right(self._changes, version, key=_version)

    def read(self, place: int, most: int) -> Sequence[Change]:
        """Raises Forgotten where the reader was too slow."""
        if place < self._first:
            raise Forgotten
        start = place - self._first
        return self._changes[start : start + most]

    def as_of(self, version: int, now: Mapping[Key, Record]) -> dict[Key, Record]:
        """The objects as they were at a version, made of how they are now by undoing what came after.

        Raises Forgotten.
        """
        if version < self.floor:
            raise Forgotten
        then = dict(now)
        for change in reversed(self._changes[bisect_right(self._changes, version, key=_version) :]):
            if change.old is None:
                then.pop(change.new.key, None)
            else:
                then[change.new.key] = change.old
        return then


def _version(change: Change) -> int:
    return change.new.version
