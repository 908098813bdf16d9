"""Does a value satisfy its schema's limits, such as enum, pattern, minimum and maxItems?

Messages are those of kube-openapi, as on a cluster. CEL rules (x-kubernetes-validations) are not evaluated: a kind's
`validate` implements them.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme import canonical
from paddle_operator.local.apiserver.scheme.kind import Schema
from paddle_operator.local.apiserver.validation import field_errors
from paddle_operator.local.apiserver.validation.field_errors import to_json

Limit = Callable[[Any, str], Cause | None]
"""Takes a value and its path; returns the violation or None."""


def limits_of(schema: Schema) -> tuple[Limit, ...]:
    """All limits except those that contain schemas (not, anyOf, …), which structural.py adds."""
    return tuple(_limits(schema))


def _limits(schema: Schema) -> Iterator[Limit]:
    if "enum" in schema:
        yield enum_limit(schema["enum"])
    if "pattern" in schema:
        yield pattern_limit(schema["pattern"])
    if "minimum" in schema:
        yield minimum_limit(schema["minimum"], exclusive=schema.get("exclusiveMinimum", False))
    if "maximum" in schema:
        yield maximum_limit(schema["maximum"], exclusive=schema.get("exclusiveMaximum", False))
    if schema.get("type") == "integer" and schema.get("format") == "int32":
        yield int32_limit
    for key, kind, unit in SIZES:
        if key in schema:
            yield (
                min_size_limit(schema[key], kind, unit) if key.startswith("min") else max_size_limit(schema[key], kind)
            )
    if schema.get("format") == "date-time":
        yield date_time_limit
    if "items" in schema and schema.get("x-kubernetes-list-type") in ("map", "set"):
        yield unique_limit(schema)


SIZES: tuple[tuple[str, type, str], ...] = (
    ("minLength", str, "chars long"),
    ("maxLength", str, "chars long"),
    ("minItems", list, "items"),
    ("maxItems", list, "items"),
    ("minProperties", dict, "properties"),
    ("maxProperties", dict, "properties"),
)


def enum_limit(values: list[Any]) -> Limit:
    allowed = {to_json(value) for value in values}  # as JSON, since 1 == True in Python

    def limit(value: Any, path: str) -> Cause | None:
        return None if to_json(value) in allowed else field_errors.not_supported(path, value, values)

    return limit


def pattern_limit(pattern: str) -> Limit:
    # Go's $ matches only at the end of the text, Python's also before a final line break.
    regex = re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern))

    def limit(value: Any, path: str) -> Cause | None:
        if not isinstance(value, str) or regex.search(value):
            return None
        return field_errors.invalid(path, value, f"{path} in body should match '{pattern}'")

    return limit


def minimum_limit(minimum: float, *, exclusive: bool) -> Limit:
    comparison = "greater than" if exclusive else "greater than or equal to"

    def limit(value: Any, path: str) -> Cause | None:
        if not is_number(value) or value > minimum or (value == minimum and not exclusive):
            return None
        return field_errors.invalid(path, value, f"{path} in body should be {comparison} {minimum}")

    return limit


def maximum_limit(maximum: float, *, exclusive: bool) -> Limit:
    comparison = "less than" if exclusive else "less than or equal to"

    def limit(value: Any, path: str) -> Cause | None:
        if not is_number(value) or value < maximum or (value == maximum and not exclusive):
            return None
        return field_errors.invalid(path, value, f"{path} in body should be {comparison} {maximum}")

    return limit


def int32_limit(value: Any, path: str) -> Cause | None:
    if not is_number(value) or -(2**31) <= value < 2**31:
        return None
    return field_errors.invalid(path, value, f"{path} in body must be of type int32")


def min_size_limit(minimum: int, kind: type, unit: str) -> Limit:
    def limit(value: Any, path: str) -> Cause | None:
        if not isinstance(value, kind) or len(value) >= minimum:  # type: ignore[arg-type]  # each of SIZES has a length
            return None
        verb, reported = ("be", value) if kind is str else ("have", len(value))  # type: ignore[arg-type]
        return field_errors.invalid(path, reported, f"{path} in body should {verb} at least {minimum} {unit}")

    return limit


def max_size_limit(maximum: int, kind: type) -> Limit:
    def limit(value: Any, path: str) -> Cause | None:
        if not isinstance(value, kind) or len(value) <= maximum:  # type: ignore[arg-type]  # each of SIZES has a length
            return None
        if kind is str:
            return field_errors.too_long(path, maximum)
        return field_errors.too_many(path, len(value), maximum)  # type: ignore[arg-type]

    return limit


def date_time_limit(value: Any, path: str) -> Cause | None:
    try:
        canonical.parse_time(value)
    except ValueError:
        return field_errors.invalid(path, value, f'{path} in body must be of type date-time: "{value}"')
    return None


def unique_limit(schema: Schema) -> Limit:
    """No two items of a set are equal; no two items of a map list have the same keys."""
    keys = schema.get("x-kubernetes-list-map-keys", ())

    def limit(value: list[Any], path: str) -> Cause | None:
        seen = set()
        for index, item in enumerate(value):
            identity = {key: item[key] for key in keys if key in item} if keys and isinstance(item, dict) else item
            if (text := to_json(identity)) in seen:
                return field_errors.duplicate(f"{path}[{index}]", identity)
            seen.add(text)
        return None

    return limit


def is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float
