"""The history of a kind is bounded, shared by readers, and restores earlier lists."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.storage.watch_cache import History, HistoryExpired, ObjectChange, Record

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def make_record(name: str, version: int, size: int = 10) -> Record:
    return Record(1, Key("n", name), name, version, b"x" * size, {}, {}, (), 0.0)


def make_changes(count: int, size: int = 10) -> list[ObjectChange]:
    return [ObjectChange(None, make_record(f"o{version}", version, size)) for version in range(1, count + 1)]


def history_of(changes: list[ObjectChange], *, max_changes: int = 1000, max_bytes: int = 1_000_000) -> History:
    history = History(0, max_changes, max_bytes)
    for change in changes:
        history.append(change)
    return history


def test_reader_continues_after_a_version() -> None:
    history = history_of(make_changes(5))
    position = history.position_after(3)
    assert [change.version for change in history.read(position, 10)] == [4, 5]
    assert [change.version for change in history.read(position, 1)] == [4]
    assert history.read(history.end, 10) == []
    assert history.position_after(99) == history.end


def test_number_of_changes_is_limited() -> None:
    history = history_of(make_changes(101), max_changes=100)
    with pytest.raises(HistoryExpired):
        history.position_after(25)
    assert [change.version for change in history.read(history.position_after(26), 2)] == [27, 28]
    with pytest.raises(HistoryExpired):
        history.read(0, 10)


def test_bytes_of_changes_are_limited() -> None:
    history = history_of(make_changes(11, size=100), max_bytes=1000)
    assert history.floor == 4
    history = history_of(make_changes(1000, size=100), max_bytes=1000)
    assert len(history.read(history.position_after(history.floor), 1000)) <= 10


def test_change_larger_than_the_limit_is_discarded() -> None:
    history = history_of([*make_changes(3), ObjectChange(None, make_record("big", 4, size=5000))], max_bytes=1000)
    assert history.floor == 4
    history.append(ObjectChange(None, make_record("next", 5)))
    assert [change.version for change in history.read(history.position_after(4), 10)] == [5]


def test_discarded_versions_have_expired() -> None:
    history = history_of(make_changes(5))
    history.discard_until(3)
    with pytest.raises(HistoryExpired):
        history.position_after(2)
    assert [change.version for change in history.read(history.position_after(3), 10)] == [4, 5]


@quick
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30), st.data())
def test_objects_at_an_earlier_version_are_restored(operations: list[tuple[str, bool]], data: st.DataObject) -> None:
    history, current, snapshots = History(0), dict[Key, Record](), [dict[Key, Record]()]
    for version, (name, removed) in enumerate(operations, start=1):
        key, record = Key("n", name), make_record(name, version)
        history.append(ObjectChange(current.get(key), record, deleted=removed and key in current))
        if removed and key in current:
            del current[key]
        else:
            current[key] = record
        snapshots.append(dict(current))
    at = data.draw(st.integers(0, len(operations)))
    assert history.objects_at(at, current) == snapshots[at]
