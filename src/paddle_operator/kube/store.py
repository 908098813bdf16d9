"""The cache of one kind: objects by key and by index. Every reader gets the same immutable object.

Versions are compared as numbers, which Kubernetes allows within a kind: the echo of our own write, or anything older
than the stored version, changes nothing and calls no listener.
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
"""Called with (old, new, priority); `old` is None for a creation, `new` for a deletion."""


class Index(Generic[V]):
    """Objects by values that a function derives from them, such as the owner's UID."""

    def __init__(self, values_of: Callable[[V], Iterable[Hashable]]) -> None:
        self._values_of = values_of
        self._objects_by_value: dict[Hashable, dict[Key, V]] = {}

    def __getitem__(self, value: Hashable) -> Collection[V]:
        return self._objects_by_value.get(value, {}).values()

    def replace(self, key: Key, old: V | None, new: V | None) -> None:
        before = tuple(self._values_of(old)) if old is not None else ()
        after = tuple(self._values_of(new)) if new is not None else ()
        if old is not None and before != after:
            for value in before:
                objects = self._objects_by_value[value]
                del objects[key]
                if not objects:
                    del self._objects_by_value[value]
        if new is not None:
            for value in after:
                self._objects_by_value.setdefault(value, {})[key] = new


class Store(Generic[V]):
    def __init__(self) -> None:
        self.version = 0  # every change up to this version is in the store
        self._objects: dict[Key, V] = {}
        self._indexes: list[Index[V]] = []
        self._listeners: list[Listener[V]] = []
        # UID -> last version, of objects that we deleted and whose deletion the watch has not reported yet
        self._tombstones: dict[str, int] = {}

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

    def put(self, new: V, priority: Priority = Priority.LIVE) -> bool:
        """Store an object that is newer than the stored one; returns whether it was."""
        return self._put(new.key, new, priority)

    def put_own_write(self, new: V) -> None:
        """Store our own write, unless the watch is past it: it may have reported the object's deletion."""
        if new.version > self.version:
            self.put(new)

    def remove(self, key: Key, uid: str, priority: Priority = Priority.LIVE) -> bool:
        """Remove this object; not another one that has its name since."""
        self._tombstones.pop(uid, None)
        old = self._objects.get(key)
        if old is None or old.uid != uid:
            return False
        self._exchange(key, old, None, priority)
        return True

    def delete_with_tombstone(self, key: Key, uid: str) -> None:
        """Remove an object that we deleted before the watch reports it; older events do not restore it."""
        old = self._objects.get(key)
        if old is not None and self.remove(key, uid):
            self._tombstones[uid] = old.version

    def amend(self, new: V) -> None:
        """Replace an object by one of the same version that we know more about, until a newer version arrives."""
        old = self._objects.get(new.key)
        if old is not None and (old.uid, old.version) == (new.uid, new.version):
            self._exchange(new.key, old, new, Priority.LIVE)

    def relist(self, version: int) -> "Relist[V]":
        """Begin to store a full list of this version."""
        return Relist(self, version)

    def _put(self, key: Key, new: V, priority: Priority) -> bool:
        old = self._objects.get(key)
        if (old is not None and new.version <= old.version) or new.uid in self._tombstones:
            return False
        self._exchange(key, old, new, priority)
        return True

    def _exchange(self, key: Key, old: V | None, new: V | None, priority: Priority) -> None:
        # A view may build its key at each access. Passing it on stores one, not three: 14 MB less for 100,000 pods.
        if old is not None and new is not None and old.uid != new.uid:
            self._exchange(key, old, None, priority)  # deleted and recreated in between: two changes
            old = None
        if new is not None:
            self._objects[key] = new
        elif old is not None:
            del self._objects[key]
        for index in self._indexes:
            index.replace(key, old, new)
        for listener in self._listeners:
            listener(old, new, priority)


class Relist(Generic[V]):
    """A full list while it arrives; listeners are called only for differences from the store.

    A list older than the store means that the server's data was rolled back (etcd restored from a backup): then the
    list is right, and all stored versions are void.
    """

    def __init__(self, store: Store[V], version: int) -> None:
        self._store = store
        self._version = version
        self._is_rollback = version < store.version
        self._seen: set[Key] = set()
        self._tombstones_before = frozenset(store._tombstones)
        self._listed_tombstones: set[str] = set()  # deleted before the list began, yet part of it

    def add(self, item: V) -> None:
        store = self._store
        key = item.key
        self._seen.add(key)
        if item.uid in self._tombstones_before:
            self._listed_tombstones.add(item.uid)
        if not self._is_rollback:
            store._put(key, item, Priority.LOW)
            return
        old = store.get(key)
        if old is None or old.version != item.version:
            store._exchange(key, old, item, Priority.LOW)

    def finish(self) -> None:
        """Remove what is not in the list, except what we wrote after the list was taken."""
        store, version = self._store, self._version
        stale = [
            item for item in store if item.key not in self._seen and (item.version <= version or self._is_rollback)
        ]
        for item in stale:
            store.remove(item.key, item.uid, Priority.LOW)
        for uid in self._tombstones_before - self._listed_tombstones:
            # Older than the list and not in it: no event follows.
            if store._tombstones.get(uid, version + 1) <= version:
                del store._tombstones[uid]
        store.version = version
