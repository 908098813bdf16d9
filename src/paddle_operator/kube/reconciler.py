"""The shared part of controllers of different kinds: caches, owner indexes, work queue, debounce, status before writes.

A kind subclasses Reconciler, passes its informers and implements `plan`. `build_manager` runs reconcilers.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.controller import Controller
from paddle_operator.kube.errors import Invalid
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.executor import Executor, Owner, OwnerState, WriteLimits
from paddle_operator.kube.health_server import MetricsAuth
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.leader_election import Elector
from paddle_operator.kube.manager import Manager
from paddle_operator.kube.objects import Key, Object
from paddle_operator.kube.store import Index, Stored
from paddle_operator.kube.work_queue import Priority, Queue
from paddle_operator.kube.writes import Plan, Refusal, St, StatusOrder

log = logging.getLogger(__name__)


class Primary(Owner, Protocol):
    """An object that has a plan. Its spec is None where the stored one is invalid."""

    @property
    def spec(self) -> Any: ...
    @property
    def status(self) -> Any: ...


class Child(Stored, Protocol):
    """A cached object that a primary owns, as a Struct; `terminating` is set when all of a kind are deleted."""

    @property
    def owner_uid(self) -> str: ...
    @property
    def terminating(self) -> bool: ...


class OwnedView(msgspec.Struct, frozen=True, gc=False):
    """A child of which only the existence counts."""

    key: Key
    uid: str
    version: int
    owner_uid: str
    terminating: bool

    @classmethod
    def of(cls, child: Object) -> "OwnedView":
        meta = child.metadata
        return cls(child.key, child.uid, child.version, meta.owner_uid, meta.deletion_timestamp is not None)


V = TypeVar("V", bound=Primary)
W = TypeVar("W", bound=Child)


@dataclass(frozen=True)
class Debounce:
    """How long events of children are collected before a reconcile, which costs 3 to 8 µs a pod.

    Pods change one by one: an owner waits longer the more children it has, and the more other owners have changes.
    """

    per_child_seconds: float = 0.0001
    crowd_factor: int = 4  # for each other owner with changes, that many times longer
    min_seconds: float = 0.005
    max_seconds: float = 4.0


@dataclass(frozen=True)
class ReconcilerSettings:
    """How a reconciler works; the name is that of its controller in metrics and logs."""

    name: str
    workers: int = 64  # they wait for responses most of the time
    low_priority_worker_share: int = 4  # at most 1/4 of the workers process child events: the rest serve spec changes
    status_interval: timedelta = timedelta(seconds=1)  # of all owners together, about one counter update each interval
    max_status_interval: timedelta = timedelta(minutes=1)
    debounce: Debounce = field(default_factory=Debounce)
    limits: WriteLimits = field(default_factory=WriteLimits)


class OwnedObjects:
    """The cached children of one owner, and what the API server refused to create for it."""

    def __init__(self, indexes: dict[Informer[Any, Any], Index[Any]], uid: str, refusals: tuple[Refusal, ...]) -> None:
        self._indexes = indexes
        self._uid = uid
        self.refusals = refusals

    def of(self, informer: Informer[Any, W]) -> tuple[W, ...]:
        return tuple(self._indexes[informer][self._uid])


class Reconciler(ABC, Generic[V, St]):
    """The controller of one kind. Events of `owned` kinds requeue the owner, those of `same_name` kinds the key."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        kind: str,
        primary: Informer[Any, V],
        owned: Sequence[Informer[Any, Any]],
        settings: ReconcilerSettings,
        *,
        same_name: Sequence[Informer[Any, Any]] = (),
        clock: Clock | None = None,
    ) -> None:
        """The first of `owned` is the most numerous kind: its number of objects scales the debounce."""
        self.informers: Sequence[Informer[Any, Any]] = (primary, *owned, *same_name)
        self.clock = clock or SystemClock()
        self._primary = primary
        self._min_status_interval, self._max_status_interval = settings.status_interval, settings.max_status_interval
        self._debounce = settings.debounce
        self._owner_by_uid = primary.store.index(lambda owner: (owner.uid,))
        self._owned = {each: each.store.index(lambda child: (child.owner_uid,)) for each in owned}
        self._most_numerous = self._owned[owned[0]]
        self._dirty: set[str] = set()  # UIDs of owners whose children changed since their last reconcile
        self._throttled: set[str] = set()  # UIDs of owners whose status is not up to date yet
        max_low_priority = max(1, settings.workers // settings.low_priority_worker_share)
        self.queue: Queue[Key] = Queue(settings.name, self.clock, max_low_priority=max_low_priority)
        self.controller = Controller(
            settings.name, self.queue, self.reconcile, workers=settings.workers, clock=self.clock
        )
        self.executor: Executor[St] = Executor(
            client, recorder, kind, self.informers, self.queue.add, clock=self.clock, limits=settings.limits
        )
        primary.store.listen(self._primary_changed)
        for informer in owned:
            informer.store.listen(self._child_changed)
        for informer in same_name:
            informer.store.listen(self._same_name_changed)
            informer.on_presence(self.enqueue_all)

    @abstractmethod
    def plan(self, owner: V, children: OwnedObjects, state: OwnerState) -> Plan[St]:
        """What to do about this owner now."""

    def observe(self, owner: V, plan: Plan[St]) -> None:
        """Called when the plan's status is written: the place to count metrics."""

    def on_change(self, old: V | None, new: V | None) -> None:
        """Called for each change of an owner in the cache."""

    @property
    def status_interval(self) -> timedelta:
        """How often counters of one status may be written: less often while many owners change."""
        crowd = max(1, len(self._throttled), len(self._dirty))
        return min(self._min_status_interval * crowd, self._max_status_interval)

    async def reconcile(self, key: Key) -> datetime | None:
        """Bring one owner closer to its plan. Returns when to requeue if no event arrives first.

        The status goes out before the writes, so that a crash in between loses no attempt and repeats no finished work.
        """
        owner = self._primary.store.get(key)
        if owner is None:
            return None  # owner references delete the children
        self._dirty.discard(owner.uid)
        state = self.executor.begin(owner)
        children = OwnedObjects(self._owned, owner.uid, tuple(state.refusals.values()))
        plan = self.plan(owner, children, state)
        if plan.status_order is StatusOrder.THROTTLED:
            self._throttled.add(owner.uid)
        else:
            self._throttled.discard(owner.uid)
        if plan.status_order is not StatusOrder.DEFERRED:
            await self.executor.emit(owner, plan.events)
            try:
                await self.executor.write_status(owner, owner.status, plan.status)
            except Invalid as error:
                if owner.spec is not None:
                    raise
                # An invalid spec that CEL cannot evaluate makes every status invalid: the event has to suffice.
                log.warning("API server rejected the status of an invalid object", extra={"error": str(error)})
                return None
            self.observe(owner, plan)
        await self.executor.apply(owner, plan)
        return plan.requeue_at

    def is_cached(self, uid: str) -> bool:
        """False once the owner is deleted, also if another one of its name was created since."""
        return bool(self._owner_by_uid[uid])

    def enqueue(self, uid: str) -> None:
        for owner in self._owner_by_uid[uid]:
            self.queue.add(owner.key, Priority.LOW)

    def enqueue_all(self) -> None:
        for owner in self._primary.store:
            self.queue.add(owner.key, Priority.LOW)

    def _primary_changed(self, old: V | None, new: V | None, priority: Priority) -> None:
        changed = new or old
        assert changed
        if new is None:
            self.executor.forget(changed.uid)
            self._throttled.discard(changed.uid)
            self._dirty.discard(changed.uid)
        self.on_change(old, new)
        requested = old is None or new is None or _request(old) != _request(new)  # otherwise our own status write
        self.queue.add(changed.key, priority if requested else Priority.LOW)

    def _child_changed(self, old: Child | None, new: Child | None, _: Priority) -> None:
        """Child events have low priority: in a storm, owners without children come first."""
        child = new or old
        assert child
        self._enqueue_debounced(child.owner_uid)
        if old and old.owner_uid != child.owner_uid:  # adopted by another owner
            self._enqueue_debounced(old.owner_uid)

    def _enqueue_debounced(self, uid: str) -> None:
        if uid in self._dirty:  # most events: those of a large owner's pods come one by one
            return
        for owner in self._owner_by_uid[uid]:
            debounce = self._debounce
            crowd = 1 + debounce.crowd_factor * len(self._dirty)
            self._dirty.add(uid)
            seconds = min(len(self._most_numerous[uid]) * crowd * debounce.per_child_seconds, debounce.max_seconds)
            if seconds < debounce.min_seconds:
                self.queue.add(owner.key, Priority.LOW)
            else:
                self.queue.add_after(owner.key, seconds, Priority.LOW)

    def _same_name_changed(self, old: Stored | None, new: Stored | None, _: Priority) -> None:
        """Found by name and not by owner: a user may have created it."""
        for each in (old, new):
            if each:
                self.queue.add(each.key, Priority.LOW)


def _request(owner: Primary) -> tuple[object, ...]:
    """Differs where a user changed the spec or deleted the object."""
    return owner.metadata.generation, owner.metadata.deletion_timestamp


@dataclass(frozen=True)
class ServingOptions:
    """Where health and metrics are served; "0" is nowhere."""

    health_address: str = "0"
    metrics_address: str = "0"
    metrics_auth: MetricsAuth | None = None


def build_manager(
    recorder: Recorder,
    reconcilers: Sequence[Reconciler[Any, Any]],
    serving: ServingOptions | None = None,
    elector: Elector | None = None,
    *,
    on_synced: Callable[[], None] = lambda: None,
) -> Manager:
    """The process that runs these reconcilers, their informers and the event recorder."""
    serving = serving or ServingOptions()
    return Manager(
        informers=[informer for each in reconcilers for informer in each.informers],
        controllers=[each.controller for each in reconcilers],
        elector=elector,
        recorder=recorder,
        health_address=serving.health_address,
        metrics_address=serving.metrics_address,
        metrics_auth=serving.metrics_auth,
        on_synced=on_synced,
    )
