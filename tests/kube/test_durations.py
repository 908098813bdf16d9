"""Durations for people: as kubectl, and as Go, prints them."""

import pytest

from paddle_operator.kube.durations import go_duration, human_duration

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
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
def test_human_duration_is_kubectls(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (80, "1m20s"), (300.9, "5m0s")])
def test_go_duration_keeps_zero_seconds(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text
