"""What goes when something else has gone: dependents of an owner, the content of a namespace, events after an hour.

It runs beside the requests, as the controllers of a real cluster do, and finds its work by listening to the store; at
the start it looks at everything once, since whoever ran before may have been killed half way.
"""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.api_errors import Refusal
from paddle_operator.local.apiserver.registry.create_update import Writer
from paddle_operator.local.apiserver.registry.delete import FOREGROUND, ORPHAN, Deleter
from paddle_operator.local.apiserver.registry.resource import Resource, Resources
from paddle_operator.local.apiserver.request_info import DeleteOptions
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.storage.sqlite import Store, StoreError, Table
from paddle_operator.local.apiserver.storage.watch_cache import Change, Record

log = logging.getLogger(__name__)

EVENTS_LIVE_SECONDS = 3600.0
EVENTS_LOOKED_AT_EVERY_SECONDS = 60.0
AFTER_FAILURE_SECONDS = 5.0
OBJECTS_A_TURN = 50

Place = tuple[str, Key]  # a table's name, and where in it

_MARKS = (FOREGROUND.encode(), b'"' + ORPHAN.encode() + b'"')


class GarbageCollector:
    def __init__(self, store: Store, resources: Resources, writer: Writer, deleter: Deleter, clock: Clock) -> None:
        self._store = store
        self._resources = resources
        self._writer = writer
        self._deleter = deleter
        self._clock = clock
        self._found: dict[Place, None] = {}  # in the order in which it was found, each once
        self._awake = asyncio.Event()
        self._waiting: set[str] = set()  # UIDs of owners that go after their dependents
        store.listeners.append(self._hear)
        for table in store.tables.values():
            for record in table:
                self._look_at(table, record)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._expire_events(), name="events expire")
            while True:
                await self._awake.wait()
                self._awake.clear()
                await self._collect()

    async def _collect(self) -> None:
        done = 0
        while self._found:
            place = next(iter(self._found))
            del self._found[place]
            try:
                self._examine(*place)
            except (Refusal, StoreError) as problem:
                log.warning("could not clean up an object", extra={"key": str(place[1]), "why": str(problem)})
                self._clock.call_later(AFTER_FAILURE_SECONDS, partial(self._find, *place))
            except Exception:  # a defect met by one object must not keep all others
                log.exception("could not clean up an object", extra={"key": str(place[1])})
            done += 1
            if done % OBJECTS_A_TURN == 0:
                await asyncio.sleep(0)

    # Finding

    def _find(self, table: str, key: Key) -> None:
        self._found[table, key] = None
        self._awake.set()

    def _hear(self, table: Table, change: Change) -> None:
        record = change.new
        for owner in record.owners:
            if owner in self._waiting and (found := self._store.by_uid.get(owner)):
                self._find(found[0].name, found[1])
        if not change.deleted:
            self._look_at(table, record)
            return
        for place in tuple(self._store.dependents.get(record.uid, ())):
            self._find(*place)
        self._waiting.discard(record.uid)
        if record.key.namespace and self._is_terminating(record.key.namespace):
            self._find("namespaces", Key("", record.key.namespace))

    def _look_at(self, table: Table, record: Record) -> None:
        """Cheap, since it is done at every write."""
        if (
            any(not self._is_there(owner, record) or owner in self._waiting for owner in record.owners)
            or any(mark in record.body for mark in _MARKS)
            or (table.name == "namespaces" and record.fields["status.phase"] == "Terminating")
        ):
            self._find(table.name, record.key)

    def _is_there(self, owner: str, record: Record) -> bool:
        """An owner is cluster-wide or in the namespace of what it owns."""
        found = self._store.by_uid.get(owner)
        return found is not None and found[1].namespace in ("", record.key.namespace)

    def _is_terminating(self, namespace: str) -> bool:
        namespaces = self._store.tables.get("namespaces")
        record = namespaces.get(Key("", namespace)) if namespaces else None
        return record is not None and record.fields["status.phase"] == "Terminating"

    # Deciding

    def _examine(self, table: str, key: Key) -> None:
        record = self._store.tables[table].get(key)
        if record is None:
            return
        resource = self._resources.of_table(table)
        manifest = resource.manifest(record)
        metadata = manifest["metadata"]
        if table == "namespaces" and record.fields["status.phase"] == "Terminating":
            self._empty(resource, record, manifest)
        elif metadata.get("deletionTimestamp"):
            finalizers = metadata.get("finalizers") or ()
            if ORPHAN in finalizers:
                self._orphan_dependents(resource, record, manifest)
            elif FOREGROUND in finalizers:
                self._delete_dependents(resource, record, manifest)
        else:
            self._examine_owners(resource, record, manifest)

    def _examine_owners(self, resource: Resource, record: Record, manifest: Manifest) -> None:
        """Without any owner left it goes; where one is left, it forgets the others."""
        references = manifest["metadata"].get("ownerReferences") or []
        states = [self._state_of(resource, record.key.namespace, reference) for reference in references]
        if "there" in states:
            kept = [reference for reference, state in zip(references, states, strict=True) if state == "there"]
            if kept != references:
                manifest["metadata"]["ownerReferences"] = kept
                self._writer.put(resource, record, manifest)
        elif "going" in states and (dependents := [each for _, each in self._dependents(record.uid)]):
            if any(each.uid in self._waiting for each in dependents):  # a circle: nobody would ever go first
                manifest["metadata"]["ownerReferences"] = [each | {"blockOwnerDeletion": False} for each in references]
                record = self._writer.put(resource, record, manifest)
            self._end(resource, record, "Foreground")
        elif references:
            self._end(resource, record, "")

    def _state_of(self, resource: Resource, namespace: str, reference: Manifest) -> str:
        """`there`, `gone`, or `going`, which is waiting for this very object; a kind that nobody knows is there."""
        owners = self._resources.of_owner(reference.get("apiVersion", ""), reference.get("kind", ""))
        if owners is None or (owners.kind.namespaced and not resource.kind.namespaced):
            return "there"
        owner = owners.table.get(owners.key(namespace, reference.get("name", "")))
        if owner is None or owner.uid != reference.get("uid"):
            return "gone"
        return "going" if owner.uid in self._waiting and reference.get("blockOwnerDeletion") else "there"

    def _dependents(self, uid: str) -> Iterator[tuple[Resource, Record]]:
        for table, key in tuple(self._store.dependents.get(uid, ())):
            record = self._store.tables[table].get(key)
            if record is not None:
                yield self._resources.of_table(table), record

    def _orphan_dependents(self, resource: Resource, owner: Record, manifest: Manifest) -> None:
        for dependents, record in self._dependents(owner.uid):
            dependent = dependents.manifest(record)
            metadata = dependent["metadata"]
            left = [each for each in metadata["ownerReferences"] if each.get("uid") != owner.uid]
            if left:
                metadata["ownerReferences"] = left
            else:
                del metadata["ownerReferences"]
            self._writer.put(dependents, record, dependent)
        self._release(resource, owner, manifest, ORPHAN)

    def _delete_dependents(self, resource: Resource, owner: Record, manifest: Manifest) -> None:
        self._waiting.add(owner.uid)
        blocked = False
        for dependents, record in self._dependents(owner.uid):
            metadata = dependents.manifest(record)["metadata"]
            references = [each for each in metadata.get("ownerReferences") or () if each.get("uid") == owner.uid]
            if record.uid != owner.uid and any(each.get("blockOwnerDeletion") for each in references):
                blocked = True
                if not metadata.get("deletionTimestamp"):
                    self._find(dependents.table.name, record.key)
        if not blocked:
            self._waiting.discard(owner.uid)
            self._release(resource, owner, manifest, FOREGROUND)

    def _release(self, resource: Resource, record: Record, manifest: Manifest, finalizer: str) -> None:
        metadata = manifest["metadata"]
        left = [name for name in metadata.get("finalizers") or () if name != finalizer]
        if left:
            metadata["finalizers"] = left
            self._writer.put(resource, record, manifest)
            return
        del metadata["finalizers"]
        if metadata.get("deletionGracePeriodSeconds"):
            self._writer.put(resource, record, manifest)
        else:
            self._writer.remove(resource, record, manifest)

    # Namespaces and events

    def _empty(self, resource: Resource, namespace: Record, manifest: Manifest) -> None:
        """End all that is in it; each end brings us back here, and with nothing left the namespace goes."""
        within = [
            (table, record)
            for table in self._store.tables.values()
            for record in tuple(table)
            if record.key.namespace == namespace.key.name
        ]
        for table, record in within:
            self._end(self._resources.of_table(table.name), record, "")
        if not within:
            self._writer.remove(resource, namespace, manifest)

    def _end(self, resource: Resource, record: Record, propagation: str) -> None:
        self._deleter.end(resource, record, DeleteOptions(uid=record.uid, propagation=propagation))

    async def _expire_events(self) -> None:
        while True:
            events = self._store.tables.get("events")
            if events is not None:
                self.expire(events)
            await self._clock.sleep(EVENTS_LOOKED_AT_EVERY_SECONDS)

    def expire(self, events: Table) -> None:
        oldest = self._clock.now().timestamp() - EVENTS_LIVE_SECONDS
        resource = self._resources.of_table(events.name)
        for record in [record for record in events if record.written_at < oldest]:
            try:
                self._writer.remove(resource, record, resource.manifest(record))
            except StoreError as problem:
                log.warning("could not remove old events", extra={"why": str(problem)})
                return
