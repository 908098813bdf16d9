"""Writes survive a restart and are listed in order; a directory has one server."""

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.storage.sqlite import DATABASE_FILE, ObjectStore, ObjectTable, StorageError, decode


def no_fields(_: Any) -> dict[str, str]:
    return {}


def put(store: ObjectStore, table: ObjectTable, name: str, *, owner: str = "", **content: Any) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": "n", "uid": f"uid-{name}", "labels": {"name": name}}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner}]
    return store.put(table, Key("n", name), {"metadata": metadata} | content)


def names(table: ObjectTable) -> list[str]:
    return [record.key.name for record in table.in_order()]


def test_objects_and_indexes_survive_a_restart(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    table = store.open_table("things", no_fields)
    for name in ("b", "a", "c"):
        put(store, table, name, owner="uid-a" if name == "c" else "")
    store.delete(table, table.records[Key("n", "b")], {"metadata": {"name": "b", "namespace": "n"}})
    version = store.version
    store.close()

    store = ObjectStore(tmp_path)
    table = store.open_table("things", lambda manifest: {"first": manifest["metadata"]["name"]})
    assert store.version == version, "a deletion has a version, too"
    assert names(table) == ["a", "c"]
    record = table.records[Key("n", "c")]
    assert (record.uid, record.labels, record.owners) == ("uid-c", {"name": "c"}, ("uid-a",))
    assert record.fields["first"] == "c"
    assert store.dependents == {"uid-a": {("things", Key("n", "c"))}}
    put(store, table, "d")
    assert names(table) == ["a", "c", "d"]
    store.close()


def test_dependents_follow_changed_owners(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    table = store.open_table("things", no_fields)
    put(store, table, "a", owner="one")
    put(store, table, "b", owner="one")
    put(store, table, "a", owner="two")
    assert store.dependents == {"one": {("things", Key("n", "b"))}, "two": {("things", Key("n", "a"))}}
    last = table.records[Key("n", "b")]
    store.delete(table, last, decode(last.body))
    put(store, table, "a")
    assert store.dependents == {}
    store.close()


def test_versions_increase_across_restarts_after_a_deletion(tmp_path: Path) -> None:
    versions = []
    for _ in range(3):
        store = ObjectStore(tmp_path)
        table = store.open_table("things", no_fields)
        record = put(store, table, "a")
        versions.append(record.version)
        versions.append(store.delete(table, record, decode(record.body)).version)
        store.close()
    assert versions == [1, 2, 3, 4, 5, 6]


def test_history_starts_empty_after_a_restart(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    put(store, store.open_table("things", no_fields), "a")
    store.close()
    store = ObjectStore(tmp_path)
    assert store.open_table("things", no_fields).history.floor == 1
    store.close()


def test_objects_are_listed_in_path_order(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    table = store.open_table("things", no_fields)
    for namespace, name in (("a", "x"), ("a-b", "x"), ("a", "b"), ("a.b", "x"), ("b", "a")):
        store.put(table, Key(namespace, name), {"metadata": {"name": name, "namespace": namespace}})
    keys = [record.key for record in table.in_order()]
    assert keys == sorted(keys, key=lambda key: f"{key.namespace}/{key.name}")
    assert [record.key for record in table.in_order(after=Key("a-b", "x"))] == keys[1:]
    assert [record.key for record in table.in_order(after=Key("a", "aa"))] == [
        Key("a", "b"),
        Key("a", "x"),
        Key("b", "a"),
    ]
    store.close()


def test_directory_in_use_is_rejected(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    with pytest.raises(StorageError, match="another local cluster runs in"):
        ObjectStore(tmp_path)
    put(store, store.open_table("things", no_fields), "a")
    with pytest.raises(StorageError, match="another local cluster runs in"):
        ObjectStore(tmp_path)
    store.close()
    ObjectStore(tmp_path).close()


def test_directory_in_use_by_another_process_is_rejected(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from paddle_operator.local.apiserver.storage.sqlite import ObjectStore\n"
        "ObjectStore(pathlib.Path(sys.argv[1]))"
    )
    store = ObjectStore(tmp_path)
    process = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    assert process.returncode != 0
    assert "another local cluster runs in" in process.stderr
    store.close()


def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "state")
    put(store, store.open_table("things", no_fields), "a")
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "state").iterdir()} == {0}
    store.close()


def test_file_that_is_no_database_is_rejected_unchanged(tmp_path: Path) -> None:
    (tmp_path / DATABASE_FILE).write_bytes(b"something else" * 1000)
    with pytest.raises(StorageError, match="cannot open the database"):
        ObjectStore(tmp_path)
    assert (tmp_path / DATABASE_FILE).read_bytes().startswith(b"something else")


def test_file_of_another_schema_version_is_rejected(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / DATABASE_FILE) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StorageError, match="another version of this program"):
        ObjectStore(tmp_path)


def test_directory_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use the directory"):
        ObjectStore(tmp_path / "file" / "state")


def test_failed_write_changes_nothing(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    table = store.open_table("things", no_fields)
    written = put(store, table, "a")
    store._database.execute("PRAGMA max_page_count = 1")  # simulates a full disk
    with pytest.raises(StorageError, match="the disk is not full"):
        put(store, table, "b", data="x" * 100_000)
    with pytest.raises(StorageError, match="the disk is not full"):
        put(store, table, "a", data="x" * 100_000)
    assert names(table) == ["a"]
    assert store.version == written.version
    store._database.execute("PRAGMA max_page_count = 1000000")
    assert put(store, table, "b").version == written.version + 1
    store.close()
