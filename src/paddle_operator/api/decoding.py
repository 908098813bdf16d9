"""Decodes what users write into Structs, field by field, with a message for each wrong field.

msgspec itself stops at the first error; a user who made three needs all three.
"""

from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from paddle_operator.api.definition import KindDefinition, Sp, St

S = TypeVar("S", bound=msgspec.Struct)

MAX_VALUE_CHARACTERS = 80
TYPE_DESCRIPTIONS = {
    bool: "true or false",
    int: "a whole number",
    str: "a text",
    dict: "a map of fields",
    tuple: "a list",
    float: "a number",
}


class InvalidSpec(ValueError):
    """An object that breaks our rules; `problems` has a message for each: field, value and fix."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_struct(kind: type[S], written: object, path: str) -> tuple[S | None, list[str]]:
    """The Struct with every field that can be read, and a message for each that cannot; None without a required field.

    A null counts as absent, as for the API server.
    """
    if not isinstance(written, dict):
        return None, [f"{path} is {format_value(written)}, but must be a map of fields"]
    values: dict[str, object] = {}
    problems: list[str] = []
    complete = True
    for field in msgspec.structs.fields(kind):
        within = f"{path}.{field.encode_name}"
        value = written.get(field.encode_name)
        if value is None:
            found, wrong = None, [f"{within} is not set, but is needed: add it"] if field.required else []
        else:
            found, wrong = _read_value(field.type, value, within)
        problems += wrong
        if found is not None:
            values[field.name] = found
        elif field.required:
            complete = False
    return kind(**values) if complete else None, problems


def read_spec(definition: KindDefinition[Sp, St], raw: bytes, name: str | None = None) -> Sp:
    """The spec, checked together with the name if there is one. Raises InvalidSpec with a message for each problem.

    An object that the API server accepted under the present CRD is always valid; one stored before may not be.
    """
    try:
        spec = _decode(definition.spec, raw)
    except msgspec.ValidationError:
        spec = _read_all_fields(definition.spec, raw)
    if problems := definition.problems(spec, name):
        raise InvalidSpec(problems)
    return spec


@cache
def _cached_decoder(kind: type[msgspec.Struct]) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind)


def _decode(kind: type[S], raw: bytes) -> S:
    decoded: S = _cached_decoder(kind).decode(raw)
    return decoded


def _read_all_fields(kind: type[S], raw: bytes) -> S:
    """Slower, and finds every wrong type; a null counts as absent."""
    spec, problems = read_struct(kind, msgspec.json.decode(raw) or {}, "spec")
    if problems or spec is None:
        raise InvalidSpec(problems)
    return spec


def read_status(definition: KindDefinition[Sp, St], raw: bytes) -> St:
    """The status as far as it can be read; anything else counts as absent."""
    try:
        return _decode(definition.status, raw)
    except msgspec.ValidationError:
        return read_struct(definition.status, msgspec.json.decode(raw) or {}, "status")[0] or definition.status()


def format_value(value: object) -> str:
    """A value as the user wrote it, truncated."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"


def _read_value(kind: Any, value: object, path: str) -> tuple[Any, list[str]]:
    kind = without_none(kind)
    if is_struct(kind):
        return read_struct(kind, value, path)
    if get_origin(kind) is tuple and is_struct(get_args(kind)[0]) and isinstance(value, list):
        return _read_items(get_args(kind)[0], value, path)
    try:
        return msgspec.convert(value, kind), []
    except msgspec.ValidationError:
        return None, [f"{path} is {format_value(value)}, but must be {_describe_type(kind)}"]


def _read_items(kind: type[S], values: list[object], path: str) -> tuple[tuple[S, ...], list[str]]:
    both = [read_struct(kind, value, f"{path}[{index}]") for index, value in enumerate(values)]
    problems = [problem for _, wrong in both for problem in wrong]
    return tuple(item for item, _ in both if item is not None), problems


def without_none(kind: Any) -> Any:
    """`int` of `int | None`; any other union is returned unchanged."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    others = tuple(member for member in get_args(kind) if member is not type(None))
    return Union[others]  # noqa: UP007  # the members are known only here


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _describe_type(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        *others, last = [str(member.value) for member in kind]
        return f"{', '.join(others)} or {last}"
    return TYPE_DESCRIPTIONS.get(get_origin(kind) or kind, "something else")
