"""What a plan wants done: Create, Patch, Delete, each so that doing it twice does no harm."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from paddle_operator.kube.objects import Key, Manifest, Resource


@dataclass(frozen=True)
class Create:
    """The manifest is made when it is sent: those of thousands of pods are never there at once."""

    kind: Resource[Any]
    key: Key
    make: Callable[[], Manifest] = field(compare=False, repr=False)

    @property
    def manifest(self) -> Manifest:
        return self.make()


@dataclass(frozen=True)
class Patch:
    """A JSON merge; the uid is a precondition."""

    kind: Resource[Any]
    key: Key
    uid: str
    change: Manifest


@dataclass(frozen=True)
class Delete:
    """Only the object that has this uid; with `at_once` nobody waits for the kubelet to confirm it."""

    kind: Resource[Any]
    key: Key
    uid: str
    at_once: bool = False


@dataclass(frozen=True)
class DeleteAll:
    """Everything of a kind that a label selects, in one request."""

    kind: Resource[Any]
    namespace: str
    labels: str


St = TypeVar("St")
Write = Create | Patch | Delete | DeleteAll


@dataclass(frozen=True)
class EventIntent:
    """Something a person would want to hear of."""

    reason: str
    note: str
    warning: bool = False


@dataclass(frozen=True)
class Plan(Generic[St]):
    """The status goes out first; then wave after wave, each concurrently; the news with the status.

    The names in `claims` must be free or the job's own: where somebody else has one, no wave goes out.
    With `children_first` only the waves go out: nothing can be lost yet, and the pass that follows them knows more.
    """

    status: St
    waves: tuple[tuple[Write, ...], ...] = ()
    news: tuple[EventIntent, ...] = ()
    requeue_at: datetime | None = None
    defer_status: bool = False
    status_throttled: bool = False  # the status is that of before, since only counters have changed
    required_names: tuple[tuple[Resource[Any], Key], ...] = ()
    restart_cause: str = ""  # one of few words, where pods are replaced
