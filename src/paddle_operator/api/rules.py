"""What one rule is: a sentence about a field, for the API server (cel), for us (holds) and for people."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Rule(Generic[T]):
    """One sentence about a field. `cel` has as `self` what stands at `place`: the field itself where it is about no
    other, so that an API server asks it only of who has that field. For each look at a field CEL makes a map of all
    that could stand beside it, and each status that is written asks every rule: all at the spec, it took 1.3 ms more.

    A refusal reads `<field> is <value>, but <fix>`; where the value is more than the field's number, `says`
    and what it is to be filled with, from both sides, stand beside it.
    """

    field: str
    cel: str
    holds: Callable[[T], bool]
    fix: str
    says: str = "%d"
    values: Callable[[T], tuple[object, ...]] | None = None
    cel_values: str | None = None
    bounds: tuple[int, int | None] | None = None  # the same rule as a minimum and a maximum, for schemas without CEL
    place: str = "spec"  # empty: the whole object

    @property
    def sentence(self) -> str:
        return f"{self.field} is {self.says}, but {self.fix}"

    @property
    def cel_message(self) -> str:
        """The sentence as CEL. With `+ string(…)` an API server takes it for endlessly long and refuses the CRD."""
        values = f"self{self.field.removeprefix(self.place)}" if self.cel_values is None else self.cel_values
        return f"{json.dumps(self.sentence)}.format([{values}])"


def problem(written: T, rule: Rule[T]) -> str | None:
    """The sentence that the rule has about it, if it does not hold."""
    if rule.holds(written):
        return None
    return rule.sentence % (rule.values(written) if rule.values else at(written, rule.field))


def at(spec: object, field: str) -> Any:
    """The value of a field, by its path as a user writes it; None where a part of the path is not there."""
    value: Any = spec
    for part in field.removeprefix("spec.").split("."):
        value = None if value is None else getattr(value, re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", part))
    return value


def absent(field: str) -> str:
    """CEL that is true where a part of the path is not there."""
    parts = field.removeprefix("spec.").split(".")
    return " || ".join(f"!has(self.{'.'.join(parts[: depth + 1])})" for depth in range(len(parts)))


def between(field: str, low: int, high: int, fix: str) -> Rule[Any]:
    def holds(spec: object) -> bool:
        number = at(spec, field)
        return number is None or low <= number <= high

    return Rule(field, f"self >= {low} && self <= {high}", holds, fix, bounds=(low, high), place=field)


def at_least(field: str, low: int, fix: str) -> Rule[Any]:
    def holds(spec: object) -> bool:
        number = at(spec, field)
        return number is None or number >= low

    return Rule(field, f"self >= {low}", holds, fix, bounds=(low, None), place=field)


@dataclass(frozen=True)
class ImmutableField:
    """A text that stays as it was when the job was made, except perhaps while the job is suspended."""

    field: str
    fix: str
    changes_while_suspended: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.field} {self.fix}"

    @property
    def cel(self) -> str:
        """Of a field that was left out, or whose parent was, the empty text is compared. One side has a known length,
        as orValue has not: with two of those an API server takes the rule for endlessly long and refuses the CRD.
        """
        path = self.field.removeprefix("spec.")
        free = "(has(self.suspend) && self.suspend) || " if self.changes_while_suspended else ""
        before = f"oldSelf.?{path.replace('.', '.?')}.orValue('')"
        return f"{free}({absent(self.field)} ? {before} == '' : self.{path} == {before})"

    def problem(self, new: object, old: object) -> str | None:
        free = self.changes_while_suspended and at(new, "spec.suspend")
        same = (at(new, self.field) or "") == (at(old, self.field) or "")
        return None if free or same else self.sentence
