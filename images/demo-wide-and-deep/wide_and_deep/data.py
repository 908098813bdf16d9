"""Synthetic training data, generated from a seed, so that nothing has to be downloaded.

A row is like a line of an ad log: a few categories (site, device ...), a few measures, and whether the user clicked. A
hidden rule decides that, so a model that learns has an accuracy far above 0.5.
"""

from dataclasses import dataclass
from random import Random

CATEGORIES = 4  # columns that name a thing ...
VALUES = 50  # ... one of this many
MEASURES = 5  # columns that hold a number


@dataclass(frozen=True)
class Row:
    measures: tuple[float, ...]
    features: tuple[int, ...]  # one for each category; no two categories share a number
    clicked: int


def rows(count: int, seed: str) -> list[Row]:
    """The same rows for the same seed, on every machine and Python."""
    source = Random(seed)
    return [_row(source) for _ in range(count)]


def _row(source: Random) -> Row:
    measures = tuple(source.gauss(0, 1) for _ in range(MEASURES))
    features = tuple(column * VALUES + source.randrange(VALUES) for column in range(CATEGORIES))
    score = sum(measures) + sum(WEIGHTS[feature] for feature in features)
    return Row(measures, features, int(score > 0))


def shard_of(rows: list[Row], rank: int, workers: int) -> list[Row]:
    """The rows of one worker; together the workers see every row once."""
    return rows[rank::workers]


def rows_covering_all_features() -> list[Row]:
    """Rows that contain every feature once."""
    columns = range(CATEGORIES)
    return [
        Row((0.0,) * MEASURES, tuple(column * VALUES + value for column in columns), clicked=0)
        for value in range(VALUES)
    ]


def format_multislot(row: Row) -> str:
    """A line in fleet's "MultiSlot" format: for each input, the number of values and the values."""
    measures = [str(len(row.measures)), *(f"{measure:.5f}" for measure in row.measures)]
    features = [f"1 {feature}" for feature in row.features]
    return " ".join([*measures, *features, f"1 {row.clicked}"])


_hidden = Random("what makes people click")
WEIGHTS = [_hidden.gauss(0, 1) for _ in range(CATEGORIES * VALUES)]
