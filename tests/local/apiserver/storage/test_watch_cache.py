"""The history of a kind: bounded, read by many, and a way back to an earlier list."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.storage.watch_cache import Change, Forgotten, History, Record

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def a_record(name: str, version: int, size: int = 10) -> Record:
    return Record(1, Key("n", name), name, version, b"x" * size, {}, {}, (), 0.0)


def changes(count: int, size: int = 10) -> list[Change]:
    return [Change(None, a_record(f"o{version}", version, size)) for version in range(1, count + 1)]


def history_of(told: list[Change], *, most_changes: int = 1000, most_bytes: int = 1_000_000) -> History:
    history = History(0, most_changes, most_bytes)
    for change in told:
        history.append(change)
    return history


def test_whoever_has_seen_a_version_reads_on_after_it() -> None:
    history = history_of(changes(5))
    place = history.place_after(3)
    assert [change.version for change in history.read(place, 10)] == [4, 5]
    assert [change.version for change in history.read(place, 1)] == [4]
    assert history.read(history.end, 10) == []
    assert history.place_after(99) == history.end


def test_it_keeps_no_more_changes_than_it_may() -> None:
    history = history_of(changes(101), most_changes=100)
    with pytest.raises(Forgotten):
        history.place_after(25)
    assert [change.version for change in history.read(history.place_after(26), 2)] == [27, 28]
    with pytest.raises(Forgotten):
        history.read(0, 10)


def test_it_keeps_no_more_bytes_than_it_may() -> None:
    history = history_of(changes(11, size=100), most_bytes=1000)
    assert history.floor == 4
    history = history_of(changes(1000, size=100), most_bytes=1000)
    assert len(history.read(history.place_after(history.floor), 1000)) <= 10


def test_one_change_that_is_larger_than_all_that_is_kept_does_no_harm() -> None:
    history = history_of([*changes(3), Change(None, a_record("big", 4, size=5000))], most_bytes=1000)
    assert history.floor == 4
    history.append(Change(None, a_record("next", 5)))
    assert [change.version for change in history.read(history.place_after(4), 10)] == [5]


def test_what_is_forgotten_by_order_is_forgotten() -> None:
    history = history_of(changes(5))
    history.forget_until(3)
    with pytest.raises(Forgotten):
        history.place_after(2)
    assert [change.version for change in history.read(history.place_after(3), 10)] == [4, 5]


@quick
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30), st.data())
def test_an_earlier_list_is_what_it_was(deeds: list[tuple[str, bool]], data: st.DataObject) -> None:
    history, now, then = History(0), dict[Key, Record](), [dict[Key, Record]()]
    for version, (name, removed) in enumerate(deeds, start=1):
        key, record = Key("n", name), a_record(name, version)
        history.append(Change(now.get(key), record, deleted=removed and key in now))
        if removed and key in now:
            del now[key]
        else:
            now[key] = record
        then.append(dict(now))
    at = data.draw(st.integers(0, len(deeds)))
    assert history.as_of(at, now) == then[at]
