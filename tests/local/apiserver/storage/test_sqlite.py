"""What is written is kept: over a restart, in order, and by one server only."""

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.storage.sqlite import FILE_NAME, Store, StoreError, Table, decode


def nothing(_: Any) -> dict[str, str]:
    return {}


def put(store: Store, table: Table, name: str, *, owner: str = "", **content: Any) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": "n", "uid": f"uid-{name}", "labels": {"name": name}}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner}]
    return store.put(table, Key("n", name), {"metadata": metadata} | content)


def names(table: Table) -> list[str]:
    return [record.key.name for record in table.in_order()]


def test_objects_come_back_after_a_restart_with_all_that_they_can_be_found_by(tmp_path: Path) -> None:
    store = Store(tmp_path)
    table = store.table("things", nothing)
    for name in ("b", "a", "c"):
        put(store, table, name, owner="uid-a" if name == "c" else "")
    store.remove(table, table.records[Key("n", "b")], {"metadata": {"name": "b", "namespace": "n"}})
    version = store.version
    store.close()

    store = Store(tmp_path)
    table = store.table("things", lambda manifest: {"first": manifest["metadata"]["name"]})
    assert store.version == version, "a deletion counts as well"
    assert names(table) == ["a", "c"]
    found = table.records[Key("n", "c")]
    assert (found.uid, found.labels, found.owners) == ("uid-c", {"name": "c"}, ("uid-a",))
    assert found.fields["first"] == "c"
    assert store.dependents == {"uid-a": {("things", Key("n", "c"))}}
    put(store, table, "d")
    assert names(table) == ["a", "c", "d"]
    store.close()


def test_dependents_are_found_by_the_owners_that_they_have_now(tmp_path: Path) -> None:
    store = Store(tmp_path)
    table = store.table("things", nothing)
    put(store, table, "a", owner="one")
    put(store, table, "b", owner="one")
    put(store, table, "a", owner="two")
    assert store.dependents == {"one": {("things", Key("n", "b"))}, "two": {("things", Key("n", "a"))}}
    last = table.records[Key("n", "b")]
    store.remove(table, last, decode(last.body))
    put(store, table, "a")
    assert store.dependents == {}
    store.close()


def test_versions_go_on_after_a_restart_even_where_the_last_deed_was_a_deletion(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        store = Store(tmp_path)
        table = store.table("things", nothing)
        record = put(store, table, "a")
        seen.append(record.version)
        seen.append(store.remove(table, record, decode(record.body)).version)
        store.close()
    assert seen == [1, 2, 3, 4, 5, 6]


def test_history_does_not_outlive_its_process(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, store.table("things", nothing), "a")
    store.close()
    store = Store(tmp_path)
    assert store.table("things", nothing).history.floor == 1
    store.close()


def test_objects_are_listed_in_the_order_of_their_paths(tmp_path: Path) -> None:
    store = Store(tmp_path)
    table = store.table("things", nothing)
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


def test_a_folder_has_one_server(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="another local cluster runs in"):
        Store(tmp_path)
    put(store, store.table("things", nothing), "a")
    with pytest.raises(StoreError, match="another local cluster runs in"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_a_folder_has_one_server_of_all_processes(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from paddle_operator.local.apiserver.storage.sqlite import Store\n"
        "Store(pathlib.Path(sys.argv[1]))"
    )
    store = Store(tmp_path)
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "another local cluster runs in" in done.stderr
    store.close()


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    put(store, store.table("things", nothing), "a")
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "state").iterdir()} == {0}
    store.close()


def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"something else" * 1000)
    with pytest.raises(StoreError, match="cannot keep objects in"):
        Store(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes().startswith(b"something else")


def test_a_file_of_another_layout_is_told_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="another version of this program"):
        Store(tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use the folder"):
        Store(tmp_path / "file" / "state")


def test_a_write_that_the_disk_refuses_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    table = store.table("things", nothing)
    kept = put(store, table, "a")
    store._database.execute("PRAGMA max_page_count = 1")  # as good as a full disk
    with pytest.raises(StoreError, match="is the disk full"):
        put(store, table, "b", data="x" * 100_000)
    with pytest.raises(StoreError, match="is the disk full"):
        put(store, table, "a", data="x" * 100_000)
    assert names(table) == ["a"]
    assert store.version == kept.version
    store._database.execute("PRAGMA max_page_count = 1000000")
    assert put(store, table, "b").version == kept.version + 1
    store.close()
