"""Status conditions as Kubernetes defines them: found by type, and with a transition time that changes with the status.

Generic over the Struct, since each API has its own Condition type with its own field descriptions.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar, cast

import msgspec

from paddle_operator.kube.writes import EventIntent

MAX_MESSAGE_BYTES = 1024
MAX_BYTES_PER_CHARACTER = 4  # of UTF-8


class ConditionFields(Protocol):
    """The fields of metav1.Condition that these functions read."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def last_transition_time(self) -> datetime: ...


C = TypeVar("C", bound=ConditionFields)


def find_condition(conditions: Iterable[C], type_: str) -> C | None:
    return next((each for each in conditions if each.type == type_), None)


def is_true(condition: ConditionFields | None) -> bool:
    return condition is not None and condition.status == "True"


def condition_status(holds: bool) -> str:
    return "True" if holds else "False"


def with_conditions(before: Iterable[C], *new: C) -> tuple[C, ...]:
    """The conditions by type, sorted. A condition whose status is unchanged retains its transition time."""
    by_type = {each.type: each for each in before}
    for each in new:
        by_type[each.type] = _set(by_type.get(each.type), each)
    return tuple(by_type[type_] for type_ in sorted(by_type))


def _set(before: C | None, new: C) -> C:
    unchanged = before is not None and before.status == new.status
    since = before.last_transition_time if before and unchanged else new.last_transition_time.replace(microsecond=0)
    message = truncate_message(new.message)
    if since == new.last_transition_time and message is new.message:
        return new
    changes = {"last_transition_time": since, "message": message}
    return cast("C", msgspec.structs.replace(cast("msgspec.Struct", new), **changes))


def truncate_message(message: str) -> str:
    if len(message) * MAX_BYTES_PER_CHARACTER <= MAX_MESSAGE_BYTES:
        return message
    return message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")


def event_on_transition(before: Iterable[C], condition: C, *, warning: bool) -> tuple[EventIntent, ...]:
    """An event where the status or the reason of a condition differs from before; none where both are equal."""
    old = find_condition(before, condition.type)
    if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
        return ()
    return (EventIntent(condition.reason, truncate_message(condition.message), warning=warning),)
