"""The figures and their budgets. As in Kueue's range files, a limit stands beside the measurement it is based on."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("ranges.toml")


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measurement when the limit was set or last confirmed."""

    mean: float
    spread: float  # the standard deviation
    runs: int


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    what: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    measured: Measurement | None = None

    def __post_init__(self) -> None:
        if self.at_most is not None and self.at_least is not None:
            raise ValueError(f"{self.what}: set at_most or at_least, not both")
        if self.limit is not None and self.limit <= 0:
            raise ValueError(f"{self.what}: a budget must be positive, since shares of it are reported")

    @property
    def limit(self) -> float | None:
        return self.at_most if self.at_most is not None else self.at_least

    @property
    def without_limit(self) -> "Range":
        """The same figure without a budget."""
        return msgspec.structs.replace(self, at_most=None, at_least=None)

    def share(self, value: float) -> float | None:
        """The value as a share of the budget."""
        return None if self.limit is None else value / self.limit

    def is_missed(self, value: float) -> bool:
        return (self.at_most is not None and value > self.at_most) or (
            self.at_least is not None and value < self.at_least
        )


def ranges(file: Path = FILE) -> Mapping[str, Range]:
    """The ranges by the figure's name, in the order of the file. Raises ValueError for an invalid file."""
    with file.open("rb") as content:
        return msgspec.convert(tomllib.load(content), dict[str, Range])
