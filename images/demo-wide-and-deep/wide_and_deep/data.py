"""The rows that the model learns from: made from a seed, so that nothing has to be downloaded.

A row is like a line in the log of an advertiser: a few categories (which site, which device ...), a few measures, and
whether the reader clicked. A hidden rule decides that, so a model that learns is right far more often than a coin.
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


def share_of(everything: list[Row], rank: int, workers: int) -> list[Row]:
    """What one worker trains on: together the workers see every row once."""
    return everything[rank::workers]


def one_row_for_each_value() -> list[Row]:
    """Rows that name every feature there is, each once."""
    columns = range(CATEGORIES)
    return [
        Row((0.0,) * MEASURES, tuple(column * VALUES + value for column in columns), clicked=0)
        for value in range(VALUES)
    ]


def slots(row: Row) -> str:
    """A line as fleet's datasets read it ("MultiSlot"): how many values, then the values, for each input in turn."""
    measures = [str(len(row.measures)), *(f"{measure:.5f}" for measure in row.measures)]
    features = [f"1 {feature}" for feature in row.features]
    return " ".join([*measures, *features, f"1 {row.clicked}"])


_hidden = Random("what makes people click")
WEIGHTS = [_hidden.gauss(0, 1) for _ in range(CATEGORIES * VALUES)]
