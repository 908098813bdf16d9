"""What a reconcile wants to change: a status, then waves of Create, Patch and Delete. Each may be repeated safely."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from paddle_operator.kube.objects import Key, Manifest, Resource

CROWD_INTERVAL = timedelta(seconds=10)
"""A status interval this long means the operator is under load."""

NAME_CONFLICT = "NameConflict"
"""Another owner's object has the name of a child. Every other refusal carries the API server's own reason."""


@dataclass(frozen=True)
class Create:
    """The manifest is built when it is sent, so that those of thousands of pods never exist together."""

    kind: Resource[Any]
    key: Key
    build: Callable[[], Manifest] = field(compare=False, repr=False)

    @property
    def manifest(self) -> Manifest:
        return self.build()


@dataclass(frozen=True)
class Patch:
    """A JSON merge patch; the uid is a precondition."""

    kind: Resource[Any]
    key: Key
    uid: str
    change: Manifest


@dataclass(frozen=True)
class Delete:
    """Deletes the object with this uid only; `force` sets the grace period to 0, so no kubelet confirms it."""

    kind: Resource[Any]
    key: Key
    uid: str
    force: bool = False


@dataclass(frozen=True)
class DeleteAll:
    """Every object of a kind that a label selects, in one request."""

    kind: Resource[Any]
    namespace: str
    labels: str


Write = Create | Patch | Delete | DeleteAll


@dataclass(frozen=True)
class EventIntent:
    """An event to emit about the owner."""

    reason: str
    note: str
    warning: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """The API server's answer to a create that failed; it is not repeated before `retry_at`."""

    kind: str
    key: Key
    reason: str
    message: str
    retry_at: datetime


class StatusOrder(Enum):
    """When the status is written, relative to the waves."""

    FIRST = "first"
    """Before the waves: a crash in between loses no attempt."""
    DEFERRED = "deferred"
    """By the next reconcile, which knows more. Only for plans whose status may be lost."""
    THROTTLED = "throttled"
    """The plan carries the previous status, since only counters changed."""


St = TypeVar("St")


@dataclass(frozen=True)
class Plan(Generic[St]):
    """Events, then the status, then the waves one after the other; the writes of a wave run concurrently.

    The `required_names` must be free or the owner's own; if another owner has one, no wave is applied.
    """

    status: St
    waves: tuple[tuple[Write, ...], ...] = ()
    events: tuple[EventIntent, ...] = ()
    requeue_at: datetime | None = None
    required_names: tuple[tuple[Resource[Any], Key], ...] = ()
    status_order: StatusOrder = StatusOrder.FIRST
    restart_cause: str = ""  # why objects are recreated, as a metric label; one of few values


def earliest(*times: datetime | None) -> datetime | None:
    return min((each for each in times if each), default=None)


def with_requeue(plan: Plan[St], at: datetime | None) -> Plan[St]:
    """The same plan, requeued at this time at the latest."""
    return replace(plan, requeue_at=earliest(plan.requeue_at, at))


@dataclass(frozen=True)
class StatusThrottle(Generic[St]):
    """Which changes of a status must be written without delay, and which can wait for the next interval."""

    phase: Callable[[St], object]
    significant_fields: Callable[[St], object]  # without counters, messages and progress reasons
    progress_reasons: Collection[str]  # events of these need no attention
    step_reasons: Collection[str]  # the progress reasons that a new phase makes redundant

    def apply(
        self, plan: Plan[St], before: St, now: datetime, *, written_at: datetime | None, interval: timedelta
    ) -> Plan[St]:
        """Significant changes are written at once, counters and progress at most once an interval.

        A step that is shorter than the interval emits no event. Under load steps emit none at all.
        """
        after = plan.status
        if before == after or written_at is None:
            return plan
        is_due = now - written_at >= interval
        if is_due and self.phase(before) == self.phase(after) and interval < CROWD_INTERVAL:
            return plan
        if is_due or self.significant_fields(before) != self.significant_fields(after):
            return replace(plan, events=_without(plan.events, self.step_reasons))
        return replace(
            plan,
            status=before,
            requeue_at=earliest(plan.requeue_at, written_at + interval),
            events=_without(plan.events, self.progress_reasons),  # emitted with the status if it still applies
            status_order=StatusOrder.THROTTLED,
        )


def _without(events: tuple[EventIntent, ...], reasons: Collection[str]) -> tuple[EventIntent, ...]:
    return tuple(each for each in events if each.reason not in reasons)
