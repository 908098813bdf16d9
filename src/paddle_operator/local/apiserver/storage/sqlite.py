"""Where are objects stored? In memory and in one SQLite file.

A write is committed before its response: kill -9 loses none. The write-ahead log is not flushed to the disk at each
commit (synchronous=NORMAL), so a power failure may lose the last writes, but never consistency.
"""

import sqlite3
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.storage.watch_cache import History, ObjectChange, Record

DATABASE_FILE = "cluster.db"
SCHEMA_VERSION = 1
CHECKPOINT_PAGES = 4000  # 16 MB of log between two checkpoints, each of which waits for the disk

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


class StorageError(Exception):
    """The directory cannot be used, or a write to the disk failed; str() is the message."""


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


_decode_head = msgspec.json.Decoder(_Head).decode

ExtractFields = Callable[[Manifest], dict[str, str]]
"""The selectable fields of an object."""


class ObjectTable:
    """All objects of one kind, in list order."""

    def __init__(self, name: str, extract_fields: ExtractFields, history: History) -> None:
        self.name = name
        self.history = history
        self.records: dict[Key, Record] = {}
        self.listeners: set[Callable[[], None]] = set()
        self.extract_fields = extract_fields
        self._order: list[Key] = []

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records.values())

    def get(self, key: Key) -> Record | None:
        return self.records.get(key)

    def in_order(self, after: Key | None = None) -> Iterator[Record]:
        records = self.records
        start = 0 if after is None else bisect_left(self._order, key_path(after) + "\0", key=key_path)
        return (records[key] for key in self._order[start:])

    def put(self, record: Record) -> None:
        if record.key not in self.records:
            insort(self._order, record.key, key=key_path)
        self.records[record.key] = record

    def delete(self, key: Key) -> None:
        del self.records[key]
        del self._order[bisect_left(self._order, key_path(key), key=key_path)]

    def publish(self, change: ObjectChange) -> None:
        self.history.append(change)
        for listener in tuple(self.listeners):
            listener()


def key_path(key: Key) -> str:
    """The sort key of etcd: the joined path, by which `a-b/x` is before `a/x`."""
    return f"{key.namespace}/{key.name}"


def sort_records(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: key_path(record.key))


class ObjectStore:
    """All tables, used by one thread. `listeners` are called with every change after its commit."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        """Raises StorageError if the directory is in use or cannot be used."""
        self.directory = directory
        self.version = 0
        self.tables: dict[str, ObjectTable] = {}
        self.listeners: list[Callable[[ObjectTable, ObjectChange], None]] = []
        self.by_uid: dict[str, tuple[ObjectTable, Key]] = {}
        self.dependents: dict[str, set[tuple[str, Key]]] = {}  # by UID of the owner: table name and key
        self._clock = clock or SystemClock()
        self._row = 0
        self._unclaimed: dict[str, list[tuple[int, int, float, bytes]]] = {}  # rows of tables not opened yet
        self._database = self._open(directory / DATABASE_FILE)

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError as error:
            raise StorageError(
                f"cannot use the directory {path.parent}: {error.strerror}; choose another one"
            ) from None
        database = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            self._prepare(database, path)
        except sqlite3.Error as error:
            database.close()
            if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
                raise StorageError(
                    f"another local cluster runs in {path.parent}: stop it first or choose another directory"
                ) from None
            raise StorageError(
                f"cannot open the database {path}: {error}; check that the directory is writable and the file undamaged"
            ) from None
        except StorageError:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection, path: Path) -> None:
        # The in-memory copy is only valid if no other process writes; the lock is released when this process ends.
        # Exclusive mode also needs no shared memory, which network file systems lack.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        (schema_version,) = database.execute("PRAGMA user_version").fetchone()
        if schema_version not in (0, SCHEMA_VERSION):
            raise StorageError(
                f"{path} was written by another version of this program (schema {schema_version}, this version has "
                f"{SCHEMA_VERSION}): use that version or delete the directory to start with an empty cluster"
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
            self._unclaimed.setdefault(kind, []).append((row, version, written_at, body))
            self.version = max(self.version, version)
            self._row = max(self._row, row)

    def close(self) -> None:
        self._database.close()  # also runs a checkpoint

    def open_table(self, name: str, extract_fields: ExtractFields) -> ObjectTable:
        """Open the table of a kind, with its objects in the file."""
        table = self.tables[name] = ObjectTable(name, extract_fields, History(self.version))
        for row, version, written_at, body in self._unclaimed.pop(name, ()):
            self._add(table, _record(row, version, written_at, body, extract_fields(decode(body))))
        return table

    def put(self, table: ObjectTable, key: Key, manifest: Manifest) -> Record:
        """Write an object and set the write's version in `manifest`. Raises StorageError."""
        old = table.get(key)
        version = self.version + 1
        manifest["metadata"]["resourceVersion"] = str(version)
        body = _encode(manifest)
        row = self._row + 1 if old is None else old.row
        written_at = self._clock.now().timestamp()
        record = _record(
            row, version, written_at, body, table.extract_fields(manifest)
        )  # before any change: it may raise
        values = (row, table.name, version, written_at, body)
        self._execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", values)
        self._row = max(self._row, row)
        self.version = version
        if old is not None and old.owners != record.owners:
            self._remove_owners(table, old)
        self._add(table, record)
        self._publish(table, ObjectChange(old, record))
        return record

    def delete(self, table: ObjectTable, old: Record, last: Manifest) -> Record:
        """Delete an object; returns its last state under the deletion's version. Raises StorageError."""
        version = self.version + 1
        last["metadata"]["resourceVersion"] = str(version)
        record = _record(old.row, version, old.written_at, _encode(last), table.extract_fields(last))
        self._execute("BEGIN")
        try:
            self._execute("DELETE FROM objects WHERE row = ?", (old.row,))
            self._execute("UPDATE newest SET version = ?", (version,))
            self._execute("COMMIT")
        except StorageError:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self.version = version
        table.delete(old.key)
        self._remove_owners(table, old)
        self.by_uid.pop(old.uid, None)
        self._publish(table, ObjectChange(old, record, deleted=True))
        return record

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        try:
            self._database.execute(statement, values)
        except sqlite3.Error as error:
            raise StorageError(
                f"the write to {self.directory} failed: {error}; check that the disk is not full"
            ) from None

    def _add(self, table: ObjectTable, record: Record) -> None:
        table.put(record)
        self.by_uid[record.uid] = (table, record.key)
        for owner in record.owners:
            self.dependents.setdefault(owner, set()).add((table.name, record.key))

    def _remove_owners(self, table: ObjectTable, record: Record) -> None:
        for owner in record.owners:
            dependents = self.dependents[owner]
            dependents.discard((table.name, record.key))
            if not dependents:
                del self.dependents[owner]

    def _publish(self, table: ObjectTable, change: ObjectChange) -> None:
        table.publish(change)
        for listener in self.listeners:
            listener(table, change)


def _record(row: int, version: int, written_at: float, body: bytes, fields: dict[str, str]) -> Record:
    metadata = _decode_head(body).metadata
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
