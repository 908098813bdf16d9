"""What do we know of the cluster right now? Objects by key and by index; whoever asks gets the same immutable object.

Versions are compared as numbers, which Kubernetes allows within a kind: an echo of our own write, or of anything older
than what is here, changes nothing and is told to nobody.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from paddle_operator.kube.objects import Key
from paddle_operator.kube.work_queue import Priority


class Stored(Protocol):
    @property
    def key(self) -> Key: ...
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=Stored)

Listener = Callable[[V | None, V | None, Priority], None]
"""Told of (what was, what is, how we know); a creation has no first, a deletion no second."""


class Index(Generic[V]):
    """Objects by values that a function reads off them, such as the UID of the owner."""

    def __init__(self, values_of: Callable[[V], Iterable[Hashable]]) -> None:
        self._values_of = values_of
        self._found: dict[Hashable, dict[Key, V]] = {}

    def __getitem__(self, value: Hashable) -> Collection[V]:
        return self._found.get(value, {}).values()

    def replace(self, key: Key, old: V | None, new: V | None) -> None:
        before = tuple(self._values_of(old)) if old is not None else ()
        after = tuple(self._values_of(new)) if new is not None else ()
        if old is not None and before != after:
            for value in before:
                found = self._found[value]
                del found[key]
                if not found:
                    del self._found[value]
        if new is not None:
            for value in after:
                self._found.setdefault(value, {})[key] = new


class Store(Generic[V]):
    def __init__(self) -> None:
        self.version = 0  # everything up to here has been seen
        self._objects: dict[Key, V] = {}
        self._indexes: list[Index[V]] = []
        self._listeners: list[Listener[V]] = []
        # UIDs that we deleted and whose end the server has not told yet, with the version that we knew.
        self._buried: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[V]:
        return iter(self._objects.values())

    def get(self, key: Key) -> V | None:
        return self._objects.get(key)

    def index(self, values_of: Callable[[V], Iterable[Hashable]]) -> Index[V]:
        index = Index(values_of)
        for key, stored in self._objects.items():
            index.replace(key, None, stored)
        self._indexes.append(index)
        return index

    def listen(self, listener: Listener[V]) -> None:
        self._listeners.append(listener)

    def put(self, new: V, lane: Priority = Priority.LIVE) -> bool:
        """Take over what is newer than what we have; says whether it was."""
        return self._put(new.key, new, lane)

    def put_own_write(self, new: V) -> None:
        """Take over our own write, unless the watch is past it already: it may have told of the object's end by now."""
        if new.version > self.version:
            self.put(new)

    def remove(self, key: Key, uid: str, lane: Priority = Priority.LIVE) -> bool:
        """The server has said that this very object is gone; one that has its name since is another."""
        self._buried.pop(uid, None)
        old = self._objects.get(key)
        if old is None or old.uid != uid:
            return False
        self._exchange(key, old, None, lane)
        return True

    def delete_with_tombstone(self, key: Key, uid: str) -> None:
        """We have deleted it ourselves: gone before the server's word of it comes, and older news do not revive it."""
        old = self._objects.get(key)
        if old is not None and self.remove(key, uid):
            self._buried[uid] = old.version

    def amend(self, new: V) -> None:
        """We know more of an object than its last version says: so it is until the server tells of a newer one."""
        old = self._objects.get(new.key)
        if old is not None and (old.uid, old.version) == (new.uid, new.version):
            self._exchange(new.key, old, new, Priority.LIVE)

    def relist(self, version: int | None = None) -> "Relist[V]":
        """Begin to take in a full list; its version is known now or only when it ends."""
        return Relist(self, version)

    def _put(self, key: Key, new: V, lane: Priority) -> bool:
        old = self._objects.get(key)
        if (old is not None and new.version <= old.version) or new.uid in self._buried:
            return False
        self._exchange(key, old, new, lane)
        return True

    def _exchange(self, key: Key, old: V | None, new: V | None, lane: Priority) -> None:
        # A view may make its key anew whenever it is asked: passed on, one is made and kept instead of three, which is
        # 14 MB less for 100,000 pods.
        if old is not None and new is not None and old.uid != new.uid:
            self._exchange(key, old, None, lane)  # deleted and created again while we did not look: both are news
            old = None
        if new is not None:
            self._objects[key] = new
        elif old is not None:
            del self._objects[key]
        for index in self._indexes:
            index.replace(key, old, new)
        for listener in self._listeners:
            listener(old, new, lane)


class Relist(Generic[V]):
    """A full list while it comes in; only what differs from the store is told to anyone.

    A list older than what we saw means that the server's data went back (etcd restored from a backup): then the list is
    right and all our versions are void.
    """

    def __init__(self, store: Store[V], version: int | None) -> None:
        self._store = store
        self._went_back = version is not None and version < store.version
        self._seen: set[Key] = set()
        self._buried_before = frozenset(store._buried)
        self._still_there: set[str] = set()  # buried before the list began, and yet in it

    def saw(self, item: V) -> None:
        store = self._store
        key = item.key
        self._seen.add(key)
        if item.uid in self._buried_before:
            self._still_there.add(item.uid)
        if not self._went_back:
            store._put(key, item, Priority.LOW)
            return
        old = store.get(key)
        if old is None or old.version != item.version:
            store._exchange(key, old, item, Priority.LOW)

    def finish(self, version: int) -> None:
        """Drop what the list does not have, except what we wrote after it was taken."""
        store = self._store
        gone = [had for had in store if had.key not in self._seen and (had.version <= version or self._went_back)]
        for had in gone:
            store.remove(had.key, had.uid, Priority.LOW)
        for uid in self._buried_before - self._still_there:
            if store._buried.get(uid, version + 1) <= version:  # older than the list and not in it: nothing more comes
                del store._buried[uid]
        store.version = version
