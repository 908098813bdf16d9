"""From samples to what a person reads: a row for each figure, and a sentence about the budgets that were missed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, pstdev
from typing import Any

from bench.ranges import Range

HEAD = ("figure", "seen (median, min–max over N)", "budget", "share")


@dataclass(frozen=True)
class Row:
    """One figure over its runs; the median is what is judged, since one disturbed run says little."""

    name: str
    range: Range
    samples: Sequence[float]

    @property
    def seen(self) -> float:
        return median(self.samples)

    @property
    def missed(self) -> bool:
        return self.range.missed(self.seen)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        unit, samples = self.range.unit, self.samples
        share = self.range.share(self.seen)
        span = f"{number(min(samples))}–{number(max(samples))} over {len(samples)}"
        return (
            self.range.what,
            f"{number(self.seen)} {unit} ({span})",
            budget(self.range),
            "" if share is None else f"{share:.0%}{' MISSED' if self.missed else ''}",
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The row for a program."""
        return {
            "figure": self.name,
            "unit": self.range.unit,
            "median": self.seen,
            "mean": mean(self.samples),
            "spread": pstdev(self.samples),
            "samples": list(self.samples),
            "at_most": self.range.at_most,
            "at_least": self.range.at_least,
            "share": self.range.share(self.seen),
            "missed": self.missed,
        }


def rows(known: Mapping[str, Range], samples: Mapping[str, Sequence[float]]) -> list[Row]:
    """In the order of the range file. Raises KeyError for a figure that it does not have."""
    if unknown := samples.keys() - known.keys():
        raise KeyError(f"ranges.toml has no {', '.join(sorted(unknown))}")
    return [Row(name, known[name], samples[name]) for name in known if samples.get(name)]


def table(rows: Sequence[Row]) -> str:
    """A table that is Markdown and lines up on a terminal too."""
    cells = [HEAD, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]

    def lines() -> Iterator[str]:
        for line in cells:
            yield "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
            if line is HEAD:
                yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"

    return "\n".join(lines())


def verdict(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row.range.limit is not None]
    missed = [row for row in judged if row.missed]
    if not missed:
        return f"all {len(judged)} budgets were kept"
    named = "; ".join(f"{row.range.what}: {number(row.seen)} {row.range.unit}, {budget(row.range)}" for row in missed)
    return f"{len(missed)} of {len(judged)} budgets were missed: {named}"


def budget(range_: Range) -> str:
    if range_.limit is None:
        return ""
    return f"{'≤' if range_.at_most is not None else '≥'} {number(range_.limit)} {range_.unit}"


def number(value: float) -> str:
    """Three digits that count, and thousands marked."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
