"""Conditions: found by type, a transition time that changes with the status only, an event for each transition."""

from datetime import UTC, datetime, timedelta

import pytest

from paddle_operator.api.meta import Condition
from paddle_operator.kube.conditions import (
    MAX_MESSAGE_BYTES,
    condition_status,
    event_on_transition,
    find_condition,
    is_true,
    with_conditions,
)
from paddle_operator.kube.writes import EventIntent

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = T0 + timedelta(minutes=1)


def make_condition(holds: bool = True, reason: str = "Ran", now: datetime = T0, type_: str = "Ready") -> Condition:
    return Condition(type_, condition_status(holds), reason, "a message", 1, now)


def test_find_condition_by_type() -> None:
    ready = make_condition()
    assert find_condition((make_condition(type_="Other"), ready), "Ready") is ready
    assert find_condition((ready,), "Missing") is None
    assert is_true(ready)
    assert not is_true(make_condition(holds=False))
    assert not is_true(None)


def test_unchanged_status_retains_the_transition_time() -> None:
    (ready,) = with_conditions((make_condition(),), make_condition(reason="Other", now=LATER))
    assert (ready.reason, ready.last_transition_time) == ("Other", T0)


def test_changed_status_has_a_new_transition_time_in_seconds() -> None:
    (ready,) = with_conditions((make_condition(),), make_condition(holds=False, now=LATER.replace(microsecond=7)))
    assert ready.last_transition_time == LATER


def test_conditions_are_sorted_by_type() -> None:
    after = with_conditions((make_condition(type_="B"),), make_condition(type_="C"), make_condition(type_="A"))
    assert [each.type for each in after] == ["A", "B", "C"]


def test_long_message_is_truncated_between_characters() -> None:
    long = Condition("Ready", "True", "Ran", "é" * MAX_MESSAGE_BYTES, 1, T0)
    (ready,) = with_conditions((), long)
    assert ready.message == "é" * (MAX_MESSAGE_BYTES // 2)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (make_condition(now=LATER), ()),
        (make_condition(reason="Other"), (EventIntent("Other", "a message", warning=True),)),
        (make_condition(holds=False), (EventIntent("Ran", "a message", warning=True),)),
    ],
    ids=["same", "other reason", "other status"],
)
def test_event_on_transition(after: Condition, expected: tuple[EventIntent, ...]) -> None:
    assert event_on_transition((make_condition(),), after, warning=True) == expected
