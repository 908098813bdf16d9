"""The structural schema of a Struct, for the CRD and the reference, derived from its types.

The description of a field is the text below it in the source, where editors show it, too.
"""

import ast
import inspect
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from paddle_operator.api.decoding import is_struct, without_none
from paddle_operator.api.definition import KindDefinition, Schema

PRIMITIVE_SCHEMAS: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
}


@dataclass(frozen=True)
class Field:
    """A field as a user sees it. `default` is what counts where an optional field is absent, if it is a constant."""

    name: str
    type: Any
    required: bool
    default: object
    description: str


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields in the order of the source."""
    described = field_descriptions(kind)
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


def field_descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The text below each field, as one line."""
    (source,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(source, ast.ClassDef)
    found = {}
    for above, below in zip(source.body, source.body[1:], strict=False):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(below, ast.Expr):
            found[above.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def schema_of(type_: Any, definition: KindDefinition[Any, Any]) -> Schema:
    """Raises KeyError for a type without a schema: the definition's `type_schemas` can name it."""
    if type_ in definition.type_schemas:
        return definition.type_schemas[type_]()
    if is_struct(type_):
        return struct_schema(type_, definition)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return {"type": "string", "enum": accepted_values(type_, definition)}
    if get_origin(type_) is tuple:
        return {"type": "array", "items": schema_of(get_args(type_)[0], definition)}
    return dict(PRIMITIVE_SCHEMAS[type_])


def struct_schema(type_: type[msgspec.Struct], definition: KindDefinition[Any, Any]) -> Schema:
    schema: Schema = {"type": "object", "description": inspect.getdoc(type_)}
    fields = fields_of(type_)
    if required := [field.name for field in fields if field.required]:
        schema["required"] = required
    schema["properties"] = {field.name: field_schema(field, definition) for field in fields}
    return schema


def field_schema(field: Field, definition: KindDefinition[Any, Any]) -> Schema:
    schema = schema_of(field.type, definition)
    if field.description:
        schema["description"] = field.description
    if isinstance(field.default, Enum):
        schema["default"] = field.default.value
    return schema


def accepted_values(type_: type[Enum], definition: KindDefinition[Any, Any]) -> list[str]:
    """Every value that can be written: the present ones, then their old spellings."""
    values = [str(member.value) for member in type_]
    return values + [old for old, new in definition.old_spellings.items() if new in values]
