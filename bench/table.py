"""Formats samples: a table row for each figure, and a verdict that names the missed budgets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, pstdev
from typing import Any

from bench.ranges import Range

HEADER = ("figure", "measured (median, min–max over N)", "budget", "share")


@dataclass(frozen=True)
class Row:
    """One figure over its runs; the median is judged, so that one disturbed run does not count."""

    name: str
    range: Range
    samples: Sequence[float]

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def is_missed(self) -> bool:
        return self.range.is_missed(self.median)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        unit, samples = self.range.unit, self.samples
        share = self.range.share(self.median)
        span = f"{format_number(min(samples))}–{format_number(max(samples))} over {len(samples)}"
        return (
            self.range.what,
            f"{format_number(self.median)} {unit} ({span})",
            format_budget(self.range),
            "" if share is None else f"{share:.0%}{' MISSED' if self.is_missed else ''}",
        )

    @property
    def json_fields(self) -> dict[str, Any]:
        """The row as JSON, for programs."""
        return {
            "figure": self.name,
            "unit": self.range.unit,
            "median": self.median,
            "mean": mean(self.samples),
            "spread": pstdev(self.samples),
            "samples": list(self.samples),
            "at_most": self.range.at_most,
            "at_least": self.range.at_least,
            "share": self.range.share(self.median),
            "missed": self.is_missed,
        }


def rows(known: Mapping[str, Range], samples: Mapping[str, Sequence[float]]) -> list[Row]:
    """Rows in the order of the range file. Raises KeyError for a figure that is not in it."""
    if unknown := samples.keys() - known.keys():
        raise KeyError(f"ranges.toml has no {', '.join(sorted(unknown))}")
    return [Row(name, known[name], samples[name]) for name in known if samples.get(name)]


def format_table(rows: Sequence[Row]) -> str:
    """A Markdown table whose columns are aligned on a terminal."""
    cells = [HEADER, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]

    def lines() -> Iterator[str]:
        for line in cells:
            yield "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
            if line is HEADER:
                yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"

    return "\n".join(lines())


def format_verdict(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row.range.limit is not None]
    missed = [row for row in judged if row.is_missed]
    if not missed:
        return f"all {len(judged)} budgets were met"
    details = "; ".join(
        f"{row.range.what}: {format_number(row.median)} {row.range.unit}, {format_budget(row.range)}" for row in missed
    )
    return f"{len(missed)} of {len(judged)} budgets were missed: {details}"


def format_budget(range_: Range) -> str:
    if range_.limit is None:
        return ""
    return f"{'≤' if range_.at_most is not None else '≥'} {format_number(range_.limit)} {range_.unit}"


def format_number(value: float) -> str:
    """Three significant digits, with thousands separators."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
