from datetime import UTC, datetime, timedelta

import pytest

from paddle_operator.local.apiserver.printers.table import format_age, latest_time

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_age_is_formatted_as_by_kubectl() -> None:
    assert format_age((NOW - timedelta(seconds=7)).isoformat().replace("+00:00", "Z"), NOW) == "7s"


@pytest.mark.parametrize("since", [None, "", "soon", 5])
def test_age_of_no_time_is_unknown(since: object) -> None:
    assert format_age(since, NOW) == "<unknown>"


def test_latest_time_ignores_unset_times() -> None:
    assert latest_time([None]) is None
    assert latest_time(["2026-01-02T03:04:05Z", None, "2026-01-02T03:04:06Z"]) == "2026-01-02T03:04:06Z"
