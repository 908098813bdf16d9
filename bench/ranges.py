"""Which figures are there, and what may they be? As in Kueue's range files, a limit stands beside what it came from."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("ranges.toml")


class From(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was seen when the limit was set or last confirmed."""

    mean: float
    spread: float  # the standard deviation
    runs: int


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    what: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    seen: From | None = None

    def __post_init__(self) -> None:
        if self.at_most is not None and self.at_least is not None:
            raise ValueError(f"{self.what}: a budget is at_most or at_least, not both")
        if self.limit is not None and self.limit <= 0:
            raise ValueError(f"{self.what}: a budget is more than nothing, since shares of it are told")

    @property
    def limit(self) -> float | None:
        return self.at_most if self.at_most is not None else self.at_least

    @property
    def unlimited(self) -> "Range":
        """The same figure, not to be judged."""
        return msgspec.structs.replace(self, at_most=None, at_least=None)

    def share(self, value: float) -> float | None:
        """Of the budget: what is used of an upper one, what is reached of a lower one."""
        return None if self.limit is None else value / self.limit

    def missed(self, value: float) -> bool:
        return (self.at_most is not None and value > self.at_most) or (
            self.at_least is not None and value < self.at_least
        )


def ranges(file: Path = FILE) -> Mapping[str, Range]:
    """The ranges by the figure's name, in the order of the file. Raises ValueError for a file that makes no sense."""
    with file.open("rb") as content:
        return msgspec.convert(tomllib.load(content), dict[str, Range])
