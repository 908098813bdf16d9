"""What a CustomResourceDefinition's schema asks of a value beyond its type, each as a function that finds fault or not.

The words are those of kube-openapi's validation, so that a refusal reads the same here and on a cluster. CEL rules
(x-kubernetes-validations) are not evaluated: a kind's `check` says the same.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme import canonical
from paddle_operator.local.apiserver.scheme.kind import Schema
from paddle_operator.local.apiserver.validation import causes
from paddle_operator.local.apiserver.validation.causes import told

Limit = Callable[[Any, str], Cause | None]


def limits_of(schema: Schema) -> tuple[Limit, ...]:
    """All but those that hold other schemas (not, anyOf, …), which shapes.py adds."""
    return tuple(limits(schema))


def limits(schema: Schema) -> Iterator[Limit]:
    if "enum" in schema:
        yield one_of(schema["enum"])
    if "pattern" in schema:
        yield matching(schema["pattern"])
    if "minimum" in schema:
        yield at_least(schema["minimum"], exclusive=schema.get("exclusiveMinimum", False))
    if "maximum" in schema:
        yield at_most(schema["maximum"], exclusive=schema.get("exclusiveMaximum", False))
    if schema.get("type") == "integer" and schema.get("format") == "int32":
        yield int32
    for key, kind, words in SIZES:
        if key in schema:
            yield sized(schema[key], kind, words, fewest=key.startswith("min"))
    if schema.get("format") == "date-time":
        yield date_time
    if "items" in schema and schema.get("x-kubernetes-list-type") in ("map", "set"):
        yield unique(schema)


SIZES: tuple[tuple[str, type, str], ...] = (
    ("minLength", str, "chars long"),
    ("maxLength", str, "chars long"),
    ("minItems", list, "items"),
    ("maxItems", list, "items"),
    ("minProperties", dict, "properties"),
    ("maxProperties", dict, "properties"),
)


def one_of(values: list[Any]) -> Limit:
    known = {told(value) for value in values}  # as JSON, since to Python 1 is True

    def limit(value: Any, path: str) -> Cause | None:
        return None if told(value) in known else causes.unsupported(path, value, values)

    return limit


def matching(pattern: str) -> Limit:
    # Go's $ is the end of the text, Python's also stands before a last line break.
    form = re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern))

    def limit(value: Any, path: str) -> Cause | None:
        if not isinstance(value, str) or form.search(value):
            return None
        return causes.invalid(path, value, f"{path} in body should match '{pattern}'")

    return limit


def at_least(lowest: float, *, exclusive: bool) -> Limit:
    words = "greater than" if exclusive else "greater than or equal to"

    def limit(value: Any, path: str) -> Cause | None:
        if not is_number(value) or value > lowest or (value == lowest and not exclusive):
            return None
        return causes.invalid(path, value, f"{path} in body should be {words} {lowest}")

    return limit


def at_most(highest: float, *, exclusive: bool) -> Limit:
    words = "less than" if exclusive else "less than or equal to"

    def limit(value: Any, path: str) -> Cause | None:
        if not is_number(value) or value < highest or (value == highest and not exclusive):
            return None
        return causes.invalid(path, value, f"{path} in body should be {words} {highest}")

    return limit


def int32(value: Any, path: str) -> Cause | None:
    if not is_number(value) or -(2**31) <= value < 2**31:
        return None
    return causes.invalid(path, value, f"{path} in body must be of type int32")


def sized(size: int, kind: type, words: str, *, fewest: bool) -> Limit:
    def limit(value: Any, path: str) -> Cause | None:
        if not isinstance(value, kind):
            return None
        count = len(value)  # type: ignore[arg-type]  # each of SIZES has a length
        if count >= size if fewest else count <= size:
            return None
        if fewest:
            at = "be at least" if kind is str else "have at least"
            return causes.invalid(path, value if kind is str else count, f"{path} in body should {at} {size} {words}")
        return causes.too_long(path, size) if kind is str else causes.too_many(path, count, size)

    return limit


def date_time(value: Any, path: str) -> Cause | None:
    try:
        canonical.instant(value)
    except ValueError:
        return causes.invalid(path, value, f'{path} in body must be of type date-time: "{value}"')
    return None


def unique(schema: Schema) -> Limit:
    """No two items of a set are equal, and no two of a map have the same keys."""
    keys = schema.get("x-kubernetes-list-map-keys", ())

    def limit(value: list[Any], path: str) -> Cause | None:
        seen = set()
        for index, each in enumerate(value):
            mark = {key: each[key] for key in keys if key in each} if keys and isinstance(each, dict) else each
            if (words := told(mark)) in seen:
                return causes.duplicate(f"{path}[{index}]", mark)
            seen.add(words)
        return None

    return limit


def is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float
