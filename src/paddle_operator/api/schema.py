"""The structural schema of a Struct: what a CRD and the reference say of its fields, read off the types themselves.

The description of a field is the text below it in the source, where editors show it as well.
"""

import ast
import inspect
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from paddle_operator.api.pod_template import pod_template, quantity
from paddle_operator.api.reading import is_struct, without_none
from paddle_operator.api.spec import OLD_SPELLINGS

Schema = dict[str, Any]

PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
}


@dataclass(frozen=True)
class Field:
    """A field as a user meets it; where it may be left out, `default` is what then counts, if that can be said."""

    name: str
    type: Any
    required: bool
    default: object
    description: str


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """In the order of the source."""
    described = descriptions(kind)
    return tuple(
        Field(
            field.encode_name,
            without_none(field.type),
            field.required,
            None if field.default is msgspec.NODEFAULT else field.default,
            described.get(field.name, ""),
        )
        for field in msgspec.structs.fields(kind)
    )


def descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The text below each field, on one line."""
    (source,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(source, ast.ClassDef)
    found = {}
    for above, below in zip(source.body, source.body[1:], strict=False):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(below, ast.Expr):
            found[above.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def schema_of(kind: Any) -> Schema:
    """Raises KeyError for a type that no field of ours has."""
    if is_struct(kind):
        return struct_schema(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": accepted(kind)}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": schema_of(get_args(kind)[0])}
    if kind == dict[str, Any]:
        return pod_template()
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": quantity()}
    return dict(PLAIN[kind])


def struct_schema(kind: type[msgspec.Struct]) -> Schema:
    schema: Schema = {"type": "object", "description": inspect.getdoc(kind)}
    if required := [field.name for field in fields_of(kind) if field.required]:
        schema["required"] = required
    schema["properties"] = {field.name: field_schema(field) for field in fields_of(kind)}
    return schema


def field_schema(field: Field) -> Schema:
    schema = schema_of(field.type)
    if field.description:
        schema["description"] = field.description
    if isinstance(field.default, Enum):
        schema["default"] = field.default.value
    return schema


def accepted(kind: type[Enum]) -> list[str]:
    """Every value that can be written: those that we use, then old spellings of them."""
    values = [str(member.value) for member in kind]
    return values + [old for old, new in OLD_SPELLINGS.items() if new in values]
