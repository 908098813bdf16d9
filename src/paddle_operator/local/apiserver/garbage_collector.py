"""Which objects are deleted after others? Dependents of an owner, the content of a namespace, events after an hour.

It runs concurrently with requests, as the controllers of a real cluster do. Changes in the store decide which objects
it checks; on start it checks all objects, since the previous process may have been killed.
"""

import asyncio
import logging
from collections.abc import Iterator
from enum import Enum, auto
from functools import partial

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.api_errors import StatusError
from paddle_operator.local.apiserver.registry.create_update import ObjectWriter
from paddle_operator.local.apiserver.registry.delete import FOREGROUND, ORPHAN, ObjectDeleter
from paddle_operator.local.apiserver.registry.resource import APIResource, ResourceRegistry
from paddle_operator.local.apiserver.request_info import DeleteOptions
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.storage.sqlite import ObjectStore, ObjectTable, StorageError
from paddle_operator.local.apiserver.storage.watch_cache import ObjectChange, Record

log = logging.getLogger(__name__)

EVENT_TTL_SECONDS = 3600.0
EVENT_SCAN_SECONDS = 60.0
RETRY_SECONDS = 5.0
MAX_OBJECTS_PER_TURN = 50  # between two yields to the event loop

ObjectRef = tuple[str, Key]  # table name and key

_FINALIZER_BYTES = (FOREGROUND.encode(), b'"' + ORPHAN.encode() + b'"')


class ReferenceState(Enum):
    EXISTS = auto()
    MISSING = auto()
    FOREGROUND_DELETION = auto()


class GarbageCollector:
    def __init__(
        self,
        store: ObjectStore,
        resources: ResourceRegistry,
        writer: ObjectWriter,
        deleter: ObjectDeleter,
        clock: Clock,
    ) -> None:
        self._store = store
        self._resources = resources
        self._writer = writer
        self._deleter = deleter
        self._clock = clock
        self._pending: dict[ObjectRef, None] = {}  # an ordered set
        self._wakeup = asyncio.Event()
        self._foreground: set[str] = set()  # UIDs of owners that are deleted after their dependents
        store.listeners.append(self._observe)
        for table in store.tables.values():
            for record in table:
                self._check(table, record)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._expire_events_periodically(), name="event expiry")
            while True:
                await self._wakeup.wait()
                self._wakeup.clear()
                await self._collect()

    async def _collect(self) -> None:
        processed = 0
        while self._pending:
            reference = next(iter(self._pending))
            del self._pending[reference]
            try:
                self._process(*reference)
            except (StatusError, StorageError) as error:
                log.warning("garbage collection failed", extra={"key": str(reference[1]), "error": str(error)})
                self._clock.call_later(RETRY_SECONDS, partial(self._enqueue, *reference))
            except Exception:  # a bug with one object must not stop the others
                log.exception("unexpected error in garbage collection", extra={"key": str(reference[1])})
            processed += 1
            if processed % MAX_OBJECTS_PER_TURN == 0:
                await asyncio.sleep(0)

    # Queue

    def _enqueue(self, table: str, key: Key) -> None:
        self._pending[table, key] = None
        self._wakeup.set()

    def _observe(self, table: ObjectTable, change: ObjectChange) -> None:
        record = change.new
        for owner in record.owners:
            if owner in self._foreground and (entry := self._store.by_uid.get(owner)):
                self._enqueue(entry[0].name, entry[1])
        if not change.deleted:
            self._check(table, record)
            return
        for reference in tuple(self._store.dependents.get(record.uid, ())):
            self._enqueue(*reference)
        self._foreground.discard(record.uid)
        if record.key.namespace and self._is_terminating(record.key.namespace):
            self._enqueue("namespaces", Key("", record.key.namespace))

    def _check(self, table: ObjectTable, record: Record) -> None:
        """Enqueue the object if it may need work; cheap, since it runs on every write."""
        if (
            any(not self._owner_exists(owner, record) or owner in self._foreground for owner in record.owners)
            or any(finalizer in record.body for finalizer in _FINALIZER_BYTES)
            or (table.name == "namespaces" and record.fields["status.phase"] == "Terminating")
        ):
            self._enqueue(table.name, record.key)

    def _owner_exists(self, owner: str, record: Record) -> bool:
        """An owner is cluster-scoped or in the namespace of its dependent."""
        entry = self._store.by_uid.get(owner)
        return entry is not None and entry[1].namespace in ("", record.key.namespace)

    def _is_terminating(self, namespace: str) -> bool:
        namespaces = self._store.tables.get("namespaces")
        record = namespaces.get(Key("", namespace)) if namespaces else None
        return record is not None and record.fields["status.phase"] == "Terminating"

    # Decisions

    def _process(self, table: str, key: Key) -> None:
        record = self._store.tables[table].get(key)
        if record is None:
            return
        resource = self._resources.of_table(table)
        manifest = resource.manifest(record)
        metadata = manifest["metadata"]
        if table == "namespaces" and record.fields["status.phase"] == "Terminating":
            self._empty_namespace(resource, record, manifest)
        elif metadata.get("deletionTimestamp"):
            finalizers = metadata.get("finalizers") or ()
            if ORPHAN in finalizers:
                self._orphan_dependents(resource, record, manifest)
            elif FOREGROUND in finalizers:
                self._delete_dependents(resource, record, manifest)
        else:
            self._process_owners(resource, record, manifest)

    def _process_owners(self, resource: APIResource, record: Record, manifest: Manifest) -> None:
        """Delete the object if no owner exists; otherwise remove the references to missing owners."""
        references = manifest["metadata"].get("ownerReferences") or []
        states = [self._reference_state(resource, record.key.namespace, reference) for reference in references]
        if ReferenceState.EXISTS in states:
            existing = [
                reference for reference, state in zip(references, states, strict=True) if state == ReferenceState.EXISTS
            ]
            if existing != references:
                manifest["metadata"]["ownerReferences"] = existing
                self._writer.put(resource, record, manifest)
        elif ReferenceState.FOREGROUND_DELETION in states and (
            dependents := [dependent for _, dependent in self._dependents(record.uid)]
        ):
            if any(dependent.uid in self._foreground for dependent in dependents):  # a cycle of owners
                manifest["metadata"]["ownerReferences"] = [
                    reference | {"blockOwnerDeletion": False} for reference in references
                ]
                record = self._writer.put(resource, record, manifest)
            self._delete(resource, record, "Foreground")
        elif references:
            self._delete(resource, record, "")

    def _reference_state(self, resource: APIResource, namespace: str, reference: Manifest) -> ReferenceState:
        """FOREGROUND_DELETION if the owner waits for this object. An owner of an unknown kind exists."""
        owners = self._resources.of_owner(reference.get("apiVersion", ""), reference.get("kind", ""))
        if owners is None or (owners.kind.namespaced and not resource.kind.namespaced):
            return ReferenceState.EXISTS
        owner = owners.table.get(owners.key(namespace, reference.get("name", "")))
        if owner is None or owner.uid != reference.get("uid"):
            return ReferenceState.MISSING
        return (
            ReferenceState.FOREGROUND_DELETION
            if owner.uid in self._foreground and reference.get("blockOwnerDeletion")
            else ReferenceState.EXISTS
        )

    def _dependents(self, uid: str) -> Iterator[tuple[APIResource, Record]]:
        for table, key in tuple(self._store.dependents.get(uid, ())):
            record = self._store.tables[table].get(key)
            if record is not None:
                yield self._resources.of_table(table), record

    def _orphan_dependents(self, resource: APIResource, owner: Record, manifest: Manifest) -> None:
        for dependents, record in self._dependents(owner.uid):
            dependent = dependents.manifest(record)
            metadata = dependent["metadata"]
            others = [reference for reference in metadata["ownerReferences"] if reference.get("uid") != owner.uid]
            if others:
                metadata["ownerReferences"] = others
            else:
                del metadata["ownerReferences"]
            self._writer.put(dependents, record, dependent)
        self._remove_finalizer(resource, owner, manifest, ORPHAN)

    def _delete_dependents(self, resource: APIResource, owner: Record, manifest: Manifest) -> None:
        self._foreground.add(owner.uid)
        blocked = False
        for dependents, record in self._dependents(owner.uid):
            metadata = dependents.manifest(record)["metadata"]
            owners = metadata.get("ownerReferences") or ()
            blocks = any(each.get("blockOwnerDeletion") for each in owners if each.get("uid") == owner.uid)
            if record.uid != owner.uid and blocks:
                blocked = True
                if not metadata.get("deletionTimestamp"):
                    self._enqueue(dependents.table.name, record.key)
        if not blocked:
            self._foreground.discard(owner.uid)
            self._remove_finalizer(resource, owner, manifest, FOREGROUND)

    def _remove_finalizer(self, resource: APIResource, record: Record, manifest: Manifest, finalizer: str) -> None:
        metadata = manifest["metadata"]
        others = [name for name in metadata.get("finalizers") or () if name != finalizer]
        if others:
            metadata["finalizers"] = others
            self._writer.put(resource, record, manifest)
            return
        del metadata["finalizers"]
        if metadata.get("deletionGracePeriodSeconds"):
            self._writer.put(resource, record, manifest)
        else:
            self._writer.delete(resource, record, manifest)

    # Namespaces and events

    def _empty_namespace(self, resource: APIResource, namespace: Record, manifest: Manifest) -> None:
        """Delete the content of a namespace; each deletion enqueues it again, and when empty it is deleted."""
        content = [
            (table, record)
            for table in self._store.tables.values()
            for record in tuple(table)
            if record.key.namespace == namespace.key.name
        ]
        for table, record in content:
            self._delete(self._resources.of_table(table.name), record, "")
        if not content:
            self._writer.delete(resource, namespace, manifest)

    def _delete(self, resource: APIResource, record: Record, propagation: str) -> None:
        self._deleter.start_deletion(resource, record, DeleteOptions(uid=record.uid, propagation=propagation))

    async def _expire_events_periodically(self) -> None:
        while True:
            events = self._store.tables.get("events")
            if events is not None:
                self.expire_events(events)
            await self._clock.sleep(EVENT_SCAN_SECONDS)

    def expire_events(self, events: ObjectTable) -> None:
        oldest = self._clock.now().timestamp() - EVENT_TTL_SECONDS
        resource = self._resources.of_table(events.name)
        for record in [record for record in events if record.written_at < oldest]:
            try:
                self._writer.delete(resource, record, resource.manifest(record))
            except StorageError as error:
                log.warning("expiry of events failed", extra={"error": str(error)})
                return
