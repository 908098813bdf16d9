from datetime import UTC, datetime, timedelta

import pytest

from paddle_operator.local.apiserver.printers.ages import age, latest

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_the_age_of_an_object_is_told_from_its_instant() -> None:
    assert age((NOW - timedelta(seconds=7)).isoformat().replace("+00:00", "Z"), NOW) == "7s"


@pytest.mark.parametrize("since", [None, "", "soon", 5])
def test_what_is_no_instant_has_an_unknown_age(since: object) -> None:
    assert age(since, NOW) == "<unknown>"


def test_the_latest_of_none_is_none() -> None:
    assert latest([None]) is None
    assert latest(["2026-01-02T03:04:05Z", None, "2026-01-02T03:04:06Z"]) == "2026-01-02T03:04:06Z"
