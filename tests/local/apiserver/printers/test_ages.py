from datetime import UTC, datetime, timedelta

import pytest

from paddle_operator.local.apiserver.printers.ages import age, duration, latest

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (10 * MINUTE, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 3 * HOUR, "2d3h"),
        (8 * DAY, "8d"),
        (700 * DAY, "700d"),
        (800 * DAY, "2y70d"),
        (3000 * DAY, "8y"),
    ],
)
def test_an_age_is_told_as_kubectl_tells_it(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_the_age_of_an_object_is_told_from_its_instant() -> None:
    assert age((NOW - timedelta(seconds=7)).isoformat().replace("+00:00", "Z"), NOW) == "7s"


@pytest.mark.parametrize("since", [None, "", "soon", 5])
def test_what_is_no_instant_has_an_unknown_age(since: object) -> None:
    assert age(since, NOW) == "<unknown>"


def test_the_latest_of_none_is_none() -> None:
    assert latest([None]) is None
    assert latest(["2026-01-02T03:04:05Z", None, "2026-01-02T03:04:06Z"]) == "2026-01-02T03:04:06Z"
