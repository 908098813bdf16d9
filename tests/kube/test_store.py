"""The store's promises: only what is newer counts, every difference is told once, indexes never lie."""

from collections import defaultdict

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paddle_operator.kube.objects import Key
from paddle_operator.kube.store import Store
from paddle_operator.kube.work_queue import Priority


class Thing(msgspec.Struct, frozen=True):
    key: Key
    uid: str
    version: int
    owner: str = ""


def thing(name: str, uid: str, version: int, owner: str = "") -> Thing:
    return Thing(Key("default", name), uid, version, owner)


class Heard:
    """What listeners were told, replayed into a copy that must equal the store."""

    def __init__(self, store: Store[Thing]) -> None:
        self.news: list[tuple[Thing | None, Thing | None, Priority]] = []
        self.copy: dict[Key, Thing] = {}
        store.listen(self.hear)

    def hear(self, old: Thing | None, new: Thing | None, lane: Priority) -> None:
        self.news.append((old, new, lane))
        key = (new or old).key  # type: ignore[union-attr]  # one of the two is always there
        assert self.copy.get(key) == old, "what was is what we were told last"
        assert old is None or new is None or old.uid == new.uid, "another object of the same name is two pieces of news"
        if new is None:
            del self.copy[key]
        else:
            self.copy[key] = new


def test_an_echo_of_what_is_known_is_told_to_nobody() -> None:
    store: Store[Thing] = Store()
    heard = Heard(store)
    assert store.put(thing("a", "1", 5))
    assert not store.put(thing("a", "1", 5))
    assert not store.put(thing("a", "1", 4))
    assert len(heard.news) == 1


def test_a_relist_tells_only_differences() -> None:
    store: Store[Thing] = Store()
    for name, version in (("same", 1), ("changed", 2), ("gone", 3)):
        store.put(thing(name, name, version))
    heard = Heard.__new__(Heard)
    heard.news, heard.copy = [], {each.key: each for each in store}
    store.listen(heard.hear)
    relist = store.relist(9)
    for name, version in (("same", 1), ("changed", 7), ("new", 8)):
        relist.add(thing(name, name, version))
    relist.finish()
    told = [((old or new).key.name, lane) for old, new, lane in heard.news]  # type: ignore[union-attr]
    assert told == [("changed", Priority.LOW), ("new", Priority.LOW), ("gone", Priority.LOW)]


def test_what_we_wrote_after_a_list_was_taken_outlives_that_list() -> None:
    store: Store[Thing] = Store()
    relist = store.relist(10)
    store.put_own_write(thing("ours", "1", 12))
    relist.finish()
    assert store.get(Key("default", "ours"))


def test_our_own_write_does_not_revive_what_the_watch_saw_die() -> None:
    store: Store[Thing] = Store()
    store.put(thing("a", "1", 5))
    store.remove(Key("default", "a"), "1")
    store.version = 7  # the deletion's
    store.put_own_write(thing("a", "1", 6))  # the answer to our patch comes late
    assert store.get(Key("default", "a")) is None


def test_what_we_deleted_is_not_revived_by_older_news() -> None:
    store: Store[Thing] = Store()
    store.put(thing("a", "1", 5))
    store.delete_with_tombstone(Key("default", "a"), "1")
    store.put(thing("a", "1", 6))
    assert store.get(Key("default", "a")) is None
    store.put(thing("a", "2", 8))
    assert store.get(Key("default", "a")) == thing("a", "2", 8)
    store.remove(Key("default", "a"), "1")  # the old one's deletion, told at last
    assert store.get(Key("default", "a")) == thing("a", "2", 8)


def test_relist_does_not_restore_what_we_deleted() -> None:
    store: Store[Thing] = Store()
    store.put(thing("a", "1", 5))
    store.delete_with_tombstone(
        Key("default", "a"), "1"
    )  # the list below was taken at 6; then somebody wrote at 7; then we deleted
    relist = store.relist(6)
    relist.add(thing("a", "1", 5))
    relist.finish()
    store.put(thing("a", "1", 7))
    assert store.get(Key("default", "a")) is None


def test_amended_object_holds_until_a_newer_version() -> None:
    store: Store[Thing] = Store()
    heard = Heard(store)
    store.put(thing("a", "1", 5))
    store.amend(thing("a", "1", 5, owner="ours"))
    store.put(thing("a", "1", 5))  # an echo of what it was
    assert store.get(Key("default", "a")) == thing("a", "1", 5, owner="ours")
    store.put(thing("a", "1", 6))
    for late in (thing("a", "1", 5, owner="ours"), thing("a", "2", 6, owner="ours"), thing("b", "3", 6)):
        store.amend(late)
    assert list(store) == [thing("a", "1", 6)]
    assert len(heard.news) == 3


def test_a_server_whose_data_went_back_in_time_is_believed() -> None:
    store: Store[Thing] = Store()
    store.put(thing("a", "1", 50))
    store.put(thing("b", "2", 60))
    store.version = 60
    relist = store.relist(20)
    relist.add(thing("a", "1", 10))
    relist.finish()
    assert list(store) == [thing("a", "1", 10)]
    assert store.version == 20


def test_an_index_follows_an_object_whose_value_changes() -> None:
    store: Store[Thing] = Store()
    by_owner = store.index(lambda each: (each.owner,) if each.owner else ())
    store.put(thing("a", "1", 1, owner="x"))
    store.put(thing("a", "1", 2, owner="y"))
    assert list(by_owner["x"]) == []
    assert [each.version for each in by_owner["y"]] == [2]


NAMES = st.sampled_from("abcd")
Deeds = list[tuple[bool, bool]]
DEEDS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=3)


class StoreLife(RuleBasedStateMachine):
    """A server, its change log, and a store that hears of it late, twice, by relist and through our own writes."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.server: dict[str, Thing] = {}
        self.log: list[tuple[str, Thing]] = []  # what a watch would send, in order
        self.read = 0  # how much of it the store has been sent
        self.store: Store[Thing] = Store()
        self.heard = Heard(self.store)
        self.ours_gone: set[str] = set()
        self.by_owner = self.store.index(lambda each: (each.owner,))

    def _next(self) -> int:
        self.version += 1
        return self.version

    @rule(name=NAMES, owner=st.sampled_from("xy"), ours=st.booleans())
    def write(self, name: str, owner: str, ours: bool) -> None:
        version = self._next()
        uid = self.server[name].uid if name in self.server else f"uid-{version}"
        written = self.server[name] = thing(name, uid, version, owner)
        self.log.append(("PUT", written))
        if ours:
            self.store.put_own_write(written)

    @rule(name=NAMES, ours=st.booleans())
    def delete(self, name: str, ours: bool) -> None:
        if gone := self.server.pop(name, None):
            self.log.append(("DELETED", msgspec.structs.replace(gone, version=self._next())))
            known = self.store.get(gone.key)
            if ours and known and known.uid == gone.uid:
                self.store.delete_with_tombstone(gone.key, gone.uid)
                self.ours_gone.add(gone.uid)

    @rule(most=st.integers(1, 5))
    def watch(self, most: int) -> None:
        for kind, item in self.log[self.read : self.read + most]:
            self.read += 1
            if item.version <= self.store.version:
                continue
            self.store.version = item.version
            if kind == "PUT":
                self.store.put(item)
            else:
                self.store.remove(item.key, item.uid)

    @rule(name=NAMES, early=DEEDS, late=DEEDS, later=st.integers(0, 3))
    def relist_with_deeds_in_the_middle(self, name: str, early: Deeds, late: Deeds, later: int) -> None:
        """`early` ones happen after the server took its list and before its first page is here."""
        taken, version = list(self.server.values()), self.version
        self.do(name, early)
        relist = self.store.relist(version)
        for item in taken[:later]:
            relist.add(item)
        self.do(name, late)
        for item in taken[later:]:
            relist.add(item)
        relist.finish()

    def do(self, name: str, deeds: Deeds) -> None:
        for is_write, ours in deeds:
            if is_write:
                self.write(name, "x", ours)
            else:
                self.delete(name, ours)

    @invariant()
    def listeners_and_indexes_agree_with_the_store(self) -> None:
        assert self.heard.copy == {each.key: each for each in self.store}
        indexed = defaultdict(set)
        for each in self.store:
            indexed[each.owner].add(each.key)
        for owner in "xy":
            assert {each.key for each in self.by_owner[owner]} == indexed[owner]

    @invariant()
    def what_we_deleted_stays_deleted(self) -> None:
        assert not {each.uid for each in self.store} & self.ours_gone

    def teardown(self) -> None:
        self.watch(len(self.log))
        assert {each.key.name: each for each in self.store} == self.server


TestStoreLife = StoreLife.TestCase
TestStoreLife.settings = settings(
    max_examples=400, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
