"""The table and verdict printed at the end of a benchmark."""

import pytest

from bench.ranges import Range
from bench.table import format_number, format_table, format_verdict, rows

KNOWN = {
    "cpu": Range("CPU", "µs", at_most=60),
    "rate": Range("rate", "/s"),
    "share": Range("share of the ceiling", "%", at_least=90),
}


def test_row_has_median_span_budget_and_share() -> None:
    assert format_table(rows(KNOWN, {"rate": [1200.0], "cpu": [30.0, 90.0, 45.0]})).splitlines() == [
        "| figure | measured (median, min–max over N) | budget  | share |",
        "|--------|-----------------------------------|---------|-------|",
        "| CPU    | 45 µs (30–90 over 3)              | ≤ 60 µs | 75%   |",
        "| rate   | 1,200 /s (1,200–1,200 over 1)     |         |       |",
    ]


def test_missed_budgets_are_named() -> None:
    table = rows(KNOWN, {"cpu": [61.2], "rate": [5.0], "share": [91.0]})
    assert format_verdict(table) == "1 of 2 budgets were missed: CPU: 61.2 µs, ≤ 60 µs"
    assert table[0].cells[3] == "102% MISSED"


def test_one_outlier_is_not_a_miss() -> None:
    assert format_verdict(rows(KNOWN, {"cpu": [50.0, 51.0, 200.0]})) == "all 1 budgets were met"


def test_figure_missing_in_the_range_file_is_an_error() -> None:
    with pytest.raises(KeyError, match="has no disk"):
        rows(KNOWN, {"disk": [1.0]})


@pytest.mark.parametrize(("value", "text"), [(0.1234, "0.123"), (45.67, "45.7"), (99.96, "100"), (123456.7, "123,457")])
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text
