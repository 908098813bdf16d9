"""Carries out a plan: events, the status, then waves of writes with bounded concurrency. It knows no kind.

Every write may be repeated safely: names are fixed, deletes and patches name a UID. What the API server refuses is
retried with exponential back-off, and the informer observes each write before its echo arrives.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol

import msgspec

from paddle_operator.kube.backoff import exponential
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from paddle_operator.kube.events import ObjectReference, Recorder
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Meta, Resource, T
from paddle_operator.kube.store import Stored
from paddle_operator.kube.writes import (
    NAME_CONFLICT,
    Create,
    Delete,
    DeleteAll,
    EventIntent,
    Patch,
    Plan,
    Refusal,
    St,
    Write,
)

FIRST_RETRY = timedelta(seconds=1)
MAX_RETRY = timedelta(minutes=1)


class Owner(Stored, Protocol):
    """The object whose status and children are written."""

    @property
    def metadata(self) -> Meta: ...


@dataclass(frozen=True)
class WriteLimits:
    """How many requests are in flight at once."""

    max_writes_per_owner: int = 24  # fewer than the client sends, so that a large owner does not delay a small one
    max_writes: int = 64  # of all owners; each is a task, and an owner has at least two
    max_patches_beside_creates: int = 4  # of one kind: a pod created early is scheduled early, a patch can wait
    max_large_responses: int = 2  # a delete of all pods returns every one of them, 6 KB each


class OwnerState:
    """What is known of an owner beyond the cache; lost with the process and collected again."""

    def __init__(self) -> None:
        self.generation = 0
        self.refusals: dict[tuple[str, Key], Refusal] = {}
        self.failures: dict[tuple[str, Key], int] = {}
        self.status_written_at: datetime | None = None

    def reset_on_new_generation(self, generation: int) -> None:
        """What was refused for an earlier spec says nothing about this one."""
        if generation != self.generation:
            self.generation = generation
            self.refusals.clear()
            self.failures.clear()

    def clear_refusal(self, child: tuple[str, Key]) -> None:
        self.refusals.pop(child, None)
        self.failures.pop(child, None)


Requeue = Callable[[Key], None]
"""Adds the key of an owner to the work queue."""


class Executor(Generic[St]):
    """Writes statuses of the primary informer's kind, and children of the kinds that the other informers cache."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        kind: str,
        informers: Sequence[Informer[Any, Any]],
        requeue: Requeue,
        *,
        clock: Clock | None = None,
        limits: WriteLimits | None = None,
    ) -> None:
        """The first informer caches the owners; `kind` is their kind as events name it."""
        self._client = client
        self._recorder = recorder
        self._primary = informers[0]
        self._informers = informers
        self._requeue = requeue
        self._clock = clock or SystemClock()
        self._limits = limits or WriteLimits()
        group, _, version = self._primary.kind.prefix.removeprefix("apis/").removeprefix("api/").rpartition("/")
        self._api_version, self._kind = f"{group}/{version}" if group else version, kind
        self._name_conflict_message = f"another object has this name: delete it, or rename the {kind}"
        self._states: dict[str, OwnerState] = {}
        self._applying = 0  # owners whose waves are being applied
        self._creating: Counter[Resource[Any]] = Counter()  # creates in flight
        self._patches_beside_creates = asyncio.Semaphore(self._limits.max_patches_beside_creates)
        self._large_responses = asyncio.Semaphore(self._limits.max_large_responses)

    def begin(self, owner: Owner) -> OwnerState:
        """The state of an owner at the beginning of a reconcile."""
        state = self._states.setdefault(owner.uid, OwnerState())
        state.reset_on_new_generation(owner.metadata.generation)
        return state

    def _state_of(self, owner: Owner) -> OwnerState:
        """Not stored again where the owner was deleted during its reconcile."""
        return self._states.get(owner.uid) or OwnerState()

    def forget(self, uid: str) -> None:
        """The owner is deleted."""
        self._states.pop(uid, None)

    async def emit(self, owner: Owner, events: Iterable[EventIntent]) -> None:
        """Emit events before the status that implies them, so that a crash in between loses no event."""
        regarding = ObjectReference(self._api_version, self._kind, owner.key, owner.uid)
        for event in events:
            await self._recorder.emit(regarding, event.reason, event.note, warning=event.warning)

    async def write_status(self, owner: Owner, before: St, after: St) -> bool:
        """Patch the status and say whether it differed. Raises Conflict where the owner changed since it was read."""
        change = merge_patch(msgspec.to_builtins(before), msgspec.to_builtins(after))
        if not change:
            return False
        metadata = {"uid": owner.uid, "resourceVersion": owner.metadata.resource_version}
        body = {"metadata": metadata, "status": change}
        written = await self._client.merge(self._primary.kind, owner.key, body, subresource="status")
        self._primary.observe_write(written)
        self._state_of(owner).status_written_at = self._clock.now()
        return True

    async def apply(self, owner: Owner, plan: Plan[St]) -> None:
        """Apply wave after wave; none where another owner has a required name."""
        state = self._state_of(owner)
        for kind, key in plan.required_names:
            if not await self._is_name_available(kind, key, owner, state):
                return
        refused_kinds: set[Resource[Any]] = set()  # kinds of which the API server accepts no more creates for now
        self._applying += 1
        try:
            for wave in plan.waves:
                share = max(2, self._limits.max_writes // self._applying)
                writes = iter(wave)
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._limits.max_writes_per_owner, share, len(wave))):
                        group.create_task(self._send(writes, owner, state, refused_kinds))
        except BaseExceptionGroup as group_error:
            raise _first_error(group_error) from None  # the controller handles a Conflict, but no group of them
        finally:
            self._applying -= 1

    async def _send(
        self, writes: Iterator[Write], owner: Owner, state: OwnerState, refused_kinds: set[Resource[Any]]
    ) -> None:
        """Send one write after the other; the tasks of a wave share the iterator."""
        for write in writes:
            match write:
                case Create() if write.kind in refused_kinds:
                    continue
                case Create():
                    if not await self._create(owner, write, state):
                        refused_kinds.add(write.kind)
                case Patch() if self._creating[write.kind]:
                    async with self._patches_beside_creates:
                        await self._patch(write)
                case Patch():
                    await self._patch(write)
                case Delete():
                    await self._delete(write)
                case DeleteAll():
                    await self._delete_all(write)

    async def _create(self, owner: Owner, write: Create, state: OwnerState) -> bool:
        """Create an object and say whether the API server may accept more of its kind."""
        child = (write.kind.plural, write.key)
        self._creating[write.kind] += 1
        try:
            created = await self._client.create(write.kind, write.manifest)
        except AlreadyExists:
            existing = await self._get(write.kind, write.key)
            if existing is None:  # deleted since: reconcile again
                self._requeue(owner.key)
                return True
            if existing.metadata.owner_uid != owner.uid:
                self._record_refusal(owner, state, child, NAME_CONFLICT, self._name_conflict_message)
                return True
            created = existing
        except (Forbidden, Invalid, NotFound) as error:
            # Not the status's own reason: a webhook may put sentences there, and this is a label of a metric.
            reason = "QuotaExceeded" if "exceeded quota" in error.status.message else type(error).__name__
            self._record_refusal(owner, state, child, reason, error.status.message)
            return False
        finally:
            self._creating[write.kind] -= 1
        state.clear_refusal(child)
        self._informer_of(write.kind).observe_write(created)
        return True

    async def _is_name_available(self, kind: Resource[Any], key: Key, owner: Owner, state: OwnerState) -> bool:
        """Whether the name is free, or taken by the owner itself."""
        child = (kind.plural, key)
        existing = await self._get(kind, key)
        if existing is None:
            state.clear_refusal(child)
            return True
        if existing.metadata.owner_uid == owner.uid:
            self._informer_of(kind).observe_write(existing)
            return True
        self._record_refusal(owner, state, child, NAME_CONFLICT, self._name_conflict_message)
        return False

    async def _get(self, kind: Resource[T], key: Key) -> T | None:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None

    def _record_refusal(
        self, owner: Owner, state: OwnerState, child: tuple[str, Key], reason: str, message: str
    ) -> None:
        failures = state.failures[child] = state.failures.get(child, 0) + 1
        wait = exponential(failures, FIRST_RETRY, MAX_RETRY)
        state.refusals[child] = Refusal(child[0], child[1], reason, message, self._clock.now() + wait)
        self._requeue(owner.key)  # the status must report it

    async def _patch(self, write: Patch) -> None:
        change = {**write.change, "metadata": {**write.change.get("metadata", {}), "uid": write.uid}}
        try:
            patched = await self._client.merge(write.kind, write.key, change)
        except (NotFound, Conflict):
            return  # deleted, or another object has its name: the watch reports it
        self._informer_of(write.kind).observe_write(patched)

    async def _delete(self, write: Delete) -> None:
        informer = self._informer_of(write.kind)
        try:
            grace = 0 if write.force else None
            left = await self._client.delete(
                write.kind, write.key, uid=write.uid, propagation="Background", grace_seconds=grace
            )
        except NotFound:
            left = None
        except Conflict:
            return  # another object has its name since
        informer.observe_delete(write.key, write.uid, left)

    async def _delete_all(self, write: DeleteAll) -> None:
        """Delete a collection and mark its objects in the cache as terminating.

        The response has each as it was before; only the watch reports whether a pod ended at once or has a grace
        period. If the cache dropped them, their names would be requested repeatedly.
        """
        store = self._informer_of(write.kind).store
        async with self._large_responses:
            for deleted in await self._client.delete_all(write.kind, Scope(write.namespace, labels=write.labels)):
                cached = store.get(deleted.key)
                if cached and cached.uid == deleted.uid and not cached.terminating:
                    store.amend(msgspec.structs.replace(cached, terminating=True))

    def _informer_of(self, kind: Resource[Any]) -> Informer[Any, Any]:
        return next(each for each in self._informers if each.kind is kind)


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first


def merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that turns `old` into `new`; lists are replaced as a whole."""
    change: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if before != value:
            nested = isinstance(value, dict) and isinstance(before, dict)
            change[name] = merge_patch(before or {}, value) if nested else value
    return change
