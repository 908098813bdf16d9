"""What changed recently in one kind? Watches read it, and lists at an earlier version are rebuilt from it.

All watches of a kind share one history and have a position each, so a watch needs no memory of its own. A watch whose
position has been discarded is closed.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from paddle_operator.kube.objects import Key

MAX_HISTORY_CHANGES = 10_000
MAX_HISTORY_BYTES = 8 * 1024 * 1024  # some 1,000 changes of pods; watches of this process lag by some dozens


class Record(msgspec.Struct, frozen=True):
    """One object at one version; immutable."""

    row: int
    key: Key
    uid: str
    version: int
    body: bytes  # the whole object as JSON
    labels: Mapping[str, str]
    fields: Mapping[str, str]  # for field selectors
    owners: tuple[str, ...]  # UIDs
    written_at: float


class ObjectChange(msgspec.Struct, frozen=True):
    """A write; on deletion `new` is the last state under the deletion's version."""

    old: Record | None
    new: Record
    deleted: bool = False

    @property
    def version(self) -> int:
        return self.new.version


class HistoryExpired(Exception):
    """The requested version is older than the history."""


class History:
    def __init__(self, floor: int, max_changes: int = MAX_HISTORY_CHANGES, max_bytes: int = MAX_HISTORY_BYTES) -> None:
        self.floor = floor  # all changes after this version are here
        self._changes: list[ObjectChange] = []
        self._first = 0  # the position of the oldest change
        self._bytes = 0
        self._max_changes = max_changes
        self._max_bytes = max_bytes

    def append(self, change: ObjectChange) -> None:
        self._changes.append(change)
        self._bytes += len(change.new.body)
        if len(self._changes) > self._max_changes or self._bytes > self._max_bytes:
            self._discard_oldest()

    def _discard_oldest(self) -> None:
        """Shrink to 3/4 of the limits, so that it is rarely needed."""
        dropped = 0
        while len(self._changes) - dropped > self._max_changes * 3 // 4 or self._bytes > self._max_bytes * 3 // 4:
            self._bytes -= len(self._changes[dropped].new.body)
            dropped += 1
        self.discard_until(self._changes[dropped - 1].version, recount=False)

    def discard_until(self, version: int, *, recount: bool = True) -> None:
        """Drop all changes up to a version, as a compaction of etcd does."""
        dropped = bisect_right(self._changes, version, key=_version)
        if recount:
            self._bytes -= sum(len(change.new.body) for change in self._changes[:dropped])
        del self._changes[:dropped]
        self._first += dropped
        self.floor = max(self.floor, version)

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self._first + len(self._changes)

    def position_after(self, version: int) -> int:
        """The position of the first change after a version. Raises HistoryExpired."""
        if version < self.floor:
            raise HistoryExpired
        return self._first + bisect_right(self._changes, version, key=_version)

    def read(self, position: int, limit: int) -> Sequence[ObjectChange]:
        """The next changes, at most `limit`. Raises HistoryExpired if the position was discarded."""
        if position < self._first:
            raise HistoryExpired
        start = position - self._first
        return self._changes[start : start + limit]

    def objects_at(self, version: int, current: Mapping[Key, Record]) -> dict[Key, Record]:
        """The objects at a version: the current ones with all later changes undone.

        Raises HistoryExpired.
        """
        if version < self.floor:
            raise HistoryExpired
        objects = dict(current)
        for change in reversed(self._changes[bisect_right(self._changes, version, key=_version) :]):
            if change.old is None:
                objects.pop(change.new.key, None)
            else:
                objects[change.new.key] = change.old
        return objects


def _version(change: ObjectChange) -> int:
    return change.new.version
