"""A validation rule of one field, declared once: for the API server (cel), for Python (holds) and for users (fix)."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A rule of one field. A violation reads `<field> is <value>, but <fix>`.

    In `cel`, `self` is the value at `cel_path`: the field itself if the rule reads no other. The API server then skips
    the rule where the field is absent. For each field access CEL builds a map of the object, and every status write
    evaluates all rules: with all of them at the spec, a write took 1.3 ms more.

    If the value is not just the field's number, `value_format` formats it, from `values` in Python and `cel_values` in
    CEL.
    """

    field: str
    cel: str
    holds: Callable[[T], bool]
    fix: str
    value_format: str = "%d"
    values: Callable[[T], tuple[object, ...]] | None = None
    cel_values: str | None = None
    bounds: tuple[int, int | None] | None = None  # the same rule as a minimum and a maximum, for schemas without CEL
    cel_path: str = "spec"  # empty: the whole object

    @property
    def message(self) -> str:
        return f"{self.field} is {self.value_format}, but {self.fix}"

    @property
    def cel_message(self) -> str:
        """The message as CEL. With `+ string(…)` the API server estimates an unbounded length and refuses the CRD."""
        values = f"self{self.field.removeprefix(self.cel_path)}" if self.cel_values is None else self.cel_values
        return f"{json.dumps(self.message)}.format([{values}])"


def describe_violation(written: T, rule: Rule[T]) -> str | None:
    """The message of the rule if the value violates it, else None."""
    if rule.holds(written):
        return None
    return rule.message % (rule.values(written) if rule.values else value_at(written, rule.field))


def value_at(spec: object, field: str) -> Any:
    """The value of a field, by its path as a user writes it; None if a part of the path is absent."""
    value: Any = spec
    for part in field.removeprefix("spec.").split("."):
        value = None if value is None else getattr(value, re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", part))
    return value


def cel_absent(field: str) -> str:
    """CEL that is true if a part of the path is absent."""
    parts = field.removeprefix("spec.").split(".")
    return " || ".join(f"!has(self.{'.'.join(parts[: depth + 1])})" for depth in range(len(parts)))


def between(field: str, low: int, high: int, fix: str) -> Rule[Any]:
    def holds(spec: object) -> bool:
        number = value_at(spec, field)
        return number is None or low <= number <= high

    return Rule(field, f"self >= {low} && self <= {high}", holds, fix, bounds=(low, high), cel_path=field)


def at_least(field: str, low: int, fix: str) -> Rule[Any]:
    def holds(spec: object) -> bool:
        number = value_at(spec, field)
        return number is None or number >= low

    return Rule(field, f"self >= {low}", holds, fix, bounds=(low, None), cel_path=field)


@dataclass(frozen=True)
class ImmutableField:
    """A text field that cannot change after creation, except perhaps while the job is suspended."""

    field: str
    fix: str
    changes_while_suspended: bool = False

    @property
    def message(self) -> str:
        return f"{self.field} {self.fix}"

    @property
    def cel(self) -> str:
        """An absent field or parent compares as the empty text.

        Only one side uses orValue, whose length is unknown: with two the API server estimates an unbounded cost and
        refuses the CRD.
        """
        path = self.field.removeprefix("spec.")
        free = "(has(self.suspend) && self.suspend) || " if self.changes_while_suspended else ""
        before = f"oldSelf.?{path.replace('.', '.?')}.orValue('')"
        return f"{free}({cel_absent(self.field)} ? {before} == '' : self.{path} == {before})"

    def describe_violation(self, new: object, old: object) -> str | None:
        may_change = self.changes_while_suspended and value_at(new, "spec.suspend")
        is_unchanged = (value_at(new, self.field) or "") == (value_at(old, self.field) or "")
        return None if may_change or is_unchanged else self.message
