"""Keeps every object: all of them in memory, all of them in one SQLite file, in the same order of versions.

A write is committed before it is answered: kill -9 loses none. The log is not flushed to the disk at each commit
(synchronous=NORMAL), so that a power cut may cost the last moments, but never consistency.
"""

import sqlite3
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.storage.watch_cache import Change, History, Record

FILE_NAME = "cluster.db"
SCHEMA_VERSION = 1
CHECKPOINT_PAGES = 4000  # 16 MB of log between two copies into the file, each of which waits for the disk

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    row INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    written_at REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS newest (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO newest VALUES (1, 0);
"""

_encode = msgspec.json.Encoder().encode
decode: Callable[[bytes], Manifest] = msgspec.json.Decoder(type=dict).decode


class StoreError(Exception):
    """The folder cannot be used, or the disk has refused a write; str() is a sentence."""


class _Owner(msgspec.Struct, frozen=True):
    uid: str = ""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] | None = None


class _Head(msgspec.Struct, frozen=True):
    metadata: _Meta


_head = msgspec.json.Decoder(_Head).decode

Texts = Callable[[Manifest], dict[str, str]]


class Table:
    """All objects of one kind, in the order in which they are listed."""

    def __init__(self, name: str, texts: Texts, history: History) -> None:
        self.name = name
        self.history = history
        self.records: dict[Key, Record] = {}
        self.listeners: set[Callable[[], None]] = set()
        self.texts = texts
        self._order: list[Key] = []

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records.values())

    def get(self, key: Key) -> Record | None:
        return self.records.get(key)

    def in_order(self, after: Key | None = None) -> Iterator[Record]:
        records = self.records
        start = 0 if after is None else bisect_left(self._order, _path(after) + "\0", key=_path)
        return (records[key] for key in self._order[start:])

    def put(self, record: Record) -> None:
        if record.key not in self.records:
            insort(self._order, record.key, key=_path)
        self.records[record.key] = record

    def drop(self, key: Key) -> None:
        del self.records[key]
        del self._order[bisect_left(self._order, _path(key), key=_path)]

    def tell(self, change: Change) -> None:
        self.history.append(change)
        for listener in tuple(self.listeners):
            listener()


def _path(key: Key) -> str:
    """etcd's order: that of the joined path, where `a-b/x` comes before `a/x`."""
    return f"{key.namespace}/{key.name}"


def in_order(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: _path(record.key))


class Store:
    """One writer, one thread. `listeners` hear of every change once it is kept."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        """Raises StoreError where the folder is in use, or is not ours to use."""
        self.directory = directory
        self.version = 0
        self.tables: dict[str, Table] = {}
        self.listeners: list[Callable[[Table, Change], None]] = []
        self.by_uid: dict[str, tuple[Table, Key]] = {}
        self.dependents: dict[str, set[tuple[str, Key]]] = {}  # by the UID of an owner: table and key
        self._clock = clock or SystemClock()
        self._row = 0
        self._unknown: dict[str, list[tuple[int, int, float, bytes]]] = {}  # kinds that nobody has asked for yet
        self._database = self._opened(directory / FILE_NAME)

    def _opened(self, path: Path) -> sqlite3.Connection:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError as problem:
            raise StoreError(f"cannot use the folder {path.parent}: {problem.strerror}; choose another one") from None
        database = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            self._prepare(database, path)
        except sqlite3.Error as problem:
            database.close()
            if getattr(problem, "sqlite_errorname", "") == "SQLITE_BUSY":
                raise StoreError(
                    f"another local cluster runs in {path.parent}: stop it first, or choose another folder"
                ) from None
            raise StoreError(f"cannot keep objects in {path}: {problem}; is the folder writable and whole?") from None
        except StoreError:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection, path: Path) -> None:
        # Nobody else may write, since we would not know; the lock ends with this process, whatever ends it. Without
        # company there is no need for shared memory either, which network file systems lack.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        (written_by,) = database.execute("PRAGMA user_version").fetchone()
        if written_by not in (0, SCHEMA_VERSION):
            raise StoreError(
                f"{path} was written by another version of this program (layout {written_by}, here "
                f"{SCHEMA_VERSION}): use that version, or remove the folder to begin anew"
            )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        database.executescript(_SCHEMA)
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._load(database)

    def _load(self, database: sqlite3.Connection) -> None:
        (self.version,) = database.execute("SELECT version FROM newest").fetchone()
        for row, kind, version, written_at, body in database.execute("SELECT * FROM objects ORDER BY row"):
            self._unknown.setdefault(kind, []).append((row, version, written_at, body))
            self.version = max(self.version, version)
            self._row = max(self._row, row)

    def close(self) -> None:
        self._database.close()  # copies the log into the file

    def table(self, name: str, texts: Texts) -> Table:
        """The table of a kind, with what the file has of it."""
        table = self.tables[name] = Table(name, texts, History(self.version))
        for row, version, written_at, body in self._unknown.pop(name, ()):
            self._take_in(table, _record(row, version, written_at, body, texts(decode(body))))
        return table

    def put(self, table: Table, key: Key, manifest: Manifest) -> Record:
        """Keep an object, new or changed, under a version of its own, which `manifest` then has. Raises StoreError."""
        old = table.get(key)
        version = self.version + 1
        manifest["metadata"]["resourceVersion"] = str(version)
        body = _encode(manifest)
        row = self._row + 1 if old is None else old.row
        written_at = self._clock.now().timestamp()
        record = _record(row, version, written_at, body, table.texts(manifest))  # before anything is kept: it may raise
        values = (row, table.name, version, written_at, body)
        self._execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", values)
        self._row = max(self._row, row)
        self.version = version
        if old is not None and old.owners != record.owners:
            self._forget_owners(table, old)
        self._take_in(table, record)
        self._tell(table, Change(old, record))
        return record

    def remove(self, table: Table, old: Record, last: Manifest) -> Record:
        """Its last state, under the deletion's version. Raises StoreError."""
        version = self.version + 1
        last["metadata"]["resourceVersion"] = str(version)
        record = _record(old.row, version, old.written_at, _encode(last), table.texts(last))
        self._execute("BEGIN")
        try:
            self._execute("DELETE FROM objects WHERE row = ?", (old.row,))
            self._execute("UPDATE newest SET version = ?", (version,))
            self._execute("COMMIT")
        except StoreError:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self.version = version
        table.drop(old.key)
        self._forget_owners(table, old)
        self.by_uid.pop(old.uid, None)
        self._tell(table, Change(old, record, deleted=True))
        return record

    def compact(self) -> None:
        """Forget all history: every version that anybody has seen before the next write gets 410."""
        for table in self.tables.values():
            table.history.forget_until(self.version)

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        try:
            self._database.execute(statement, values)
        except sqlite3.Error as problem:
            raise StoreError(f"the write could not be kept in {self.directory}: {problem}; is the disk full?") from None

    def _take_in(self, table: Table, record: Record) -> None:
        table.put(record)
        self.by_uid[record.uid] = (table, record.key)
        for owner in record.owners:
            self.dependents.setdefault(owner, set()).add((table.name, record.key))

    def _forget_owners(self, table: Table, record: Record) -> None:
        for owner in record.owners:
            found = self.dependents[owner]
            found.discard((table.name, record.key))
            if not found:
                del self.dependents[owner]

    def _tell(self, table: Table, change: Change) -> None:
        table.tell(change)
        for listener in self.listeners:
            listener(table, change)


def _record(row: int, version: int, written_at: float, body: bytes, fields: dict[str, str]) -> Record:
    metadata = _head(body).metadata
    return Record(
        row=row,
        key=Key(metadata.namespace, metadata.name),
        uid=metadata.uid,
        version=version,
        body=body,
        labels=metadata.labels or {},
        fields=fields | {"metadata.name": metadata.name, "metadata.namespace": metadata.namespace},
        owners=tuple(dict.fromkeys(owner.uid for owner in metadata.owner_references or ())),
        written_at=written_at,
    )
