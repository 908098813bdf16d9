"""How is a value normalized and validated by its schema? By a tree of schema nodes, compiled once a kind.

Go types and CustomResourceDefinitions are read differently. A Go struct drops nulls and most zero values and gets its
nested defaults. A custom resource keeps everything except unknown fields.
"""

import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme import canonical
from paddle_operator.local.apiserver.scheme.kind import Schema
from paddle_operator.local.apiserver.scheme.openapi_definitions import (
    DEFINITION,
    INT_OR_STRING,
    META,
    NULL_IF_UNSET,
    QUANTITY,
    STORES_ZERO,
)
from paddle_operator.local.apiserver.validation import field_errors
from paddle_operator.local.apiserver.validation.value_limits import Limit, limits_of

JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}}
SCALAR_TYPES = ("string", "integer", "number", "boolean")
JSON_TYPE_NAMES: dict[type, str] = {types[-1]: name for name, types in JSON_TYPES.items()} | {type(None): "null"}
GO_JSON_TYPE_NAMES = JSON_TYPE_NAMES | {int: "number", bool: "bool"}
GO_TYPES = {"integer": "int64", "boolean": "bool", "number": "float64"}
LIST_INDEX = re.compile(r"\[[^\]]*\]")
MAX_INT32 = 2**31 - 1

CANONICAL_FORMS: dict[str, Callable[[Any], Any]] = {
    QUANTITY: canonical.quantity,
    META + "Time": canonical.time,
    META + "MicroTime": canonical.micro_time,
}
NO_DEFAULT = object()


class ValueSchema:
    """The compiled schema of one value. This base class accepts any value and leaves it unchanged."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        self.custom = custom
        self.nullable: bool = not custom or schema.get("nullable", False)
        self.types = types_of(schema)
        self.type_name: str = schema.get("type", "integer,string")
        self.definition: str = schema.get(DEFINITION, "")
        self.go_type = go_type(schema)
        self.owner = ""  # the Go struct of this field, for error messages
        self.default: Any = schema.get("default", NO_DEFAULT)
        # Go stores an empty struct, but no empty list.
        self.stores_zero = custom or schema.get(STORES_ZERO, False) or "properties" in schema
        self.limits: tuple[Limit, ...] = (*limits_of(schema), *composite_limits(schema)) if custom else ()
        self.is_identity = True  # normalize() returns its argument
        self.zero: Any = ZEROS.get(schema.get("type", ""), "0")  # Go's zero value; a quantity has no type
        self.always_valid_types: tuple[type, ...] = ()  # values of these types need no validate()

    @property
    def has_default(self) -> bool:
        """In Go an embedded struct always exists. OpenAPI wrongly has the default {} for times and quantities, too."""
        return self.default is not NO_DEFAULT and (self.custom or self.default != {} or isinstance(self, ObjectSchema))

    def set_owner(self, owner: str) -> None:
        if not self.definition:  # a definition is shared by many owners
            self.owner = owner

    def normalize(self, value: Any) -> Any:
        return value

    def find_unknown(self, value: Any, path: str, unknown: list[str]) -> None:
        """Append the paths of fields that are not in the schema."""

    def validate(self, value: Any, path: str, errors: list[Cause]) -> None:
        if value is None:
            if not self.nullable and self.types:
                errors.append(self.type_error(value, path))
        elif self.types and type(value) not in self.types and not self.is_integral(value):
            errors.append(self.type_error(value, path))
        else:
            if self.limits:
                errors += [cause for limit in self.limits if (cause := limit(value, path))]
            self.validate_content(value, path, errors)

    def validate_content(self, value: Any, path: str, errors: list[Cause]) -> None:
        """Append the errors inside a value of the right type."""

    def is_integral(self, value: Any) -> bool:
        return self.custom and int in (self.types or ()) and isinstance(value, float) and value.is_integer()

    def type_error(self, value: Any, path: str) -> Cause:
        name = JSON_TYPE_NAMES[type(value)]
        if self.custom:
            return field_errors.type_invalid(path, name, f'{path} in body must be of type {self.type_name}: "{name}"')
        field = f"{self.owner}.{LIST_INDEX.sub('', path)}" if self.owner else LIST_INDEX.sub("", path)
        message = (
            f"cannot unmarshal {GO_JSON_TYPE_NAMES[type(value)]} into Go struct field {field} of type {self.go_type}"
        )
        return Cause(path, f"json: {message}", field_errors.TYPE_INVALID)


def types_of(schema: Schema) -> tuple[type, ...] | None:
    """The Python types of valid values; None if any."""
    if schema.get("x-kubernetes-int-or-string") or schema.get(DEFINITION) == INT_OR_STRING:
        return (int, str)
    if schema.get(DEFINITION) == QUANTITY:
        return (str, int, float)
    return JSON_TYPES.get(schema.get("type", ""))


def go_type(schema: Schema) -> str:
    if DEFINITION in schema:
        return ".".join(str(schema[DEFINITION]).split(".")[-2:])
    if isinstance(schema.get("items"), dict):
        return f"[]{go_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map[string]{go_type(schema['additionalProperties'])}"
    name = schema.get("type", "")
    return str(schema.get("format", GO_TYPES.get(name, name)) if name == "integer" else GO_TYPES.get(name, name))


def composite_limits(schema: Schema) -> Iterator[Limit]:
    """The limits that contain schemas: not, anyOf, oneOf, allOf."""
    parts = {
        key: [compile_schema(each, custom=True) for each in schema.get(key, ())] for key in ("allOf", "anyOf", "oneOf")
    }
    if "not" in schema:
        negated = compile_schema(schema["not"], custom=True)
        yield (
            lambda value, path: (
                None if errors_of(negated, value, path) else composite_error(path, "not validate the schema (not)")
            )
        )
    if alternatives := parts["anyOf"]:
        yield (
            lambda value, path: (
                None
                if any(not errors_of(each, value, path) for each in alternatives)
                else composite_error(path, "validate at least one schema (anyOf)")
            )
        )
    if choices := parts["oneOf"]:
        yield (
            lambda value, path: (
                None
                if sum(not errors_of(each, value, path) for each in choices) == 1
                else composite_error(path, "validate one and only one schema (oneOf)")
            )
        )
    for part in parts["allOf"]:
        yield lambda value, path, part=part: next(iter(errors_of(part, value, path)), None)  # type: ignore[misc]


def errors_of(schema: ValueSchema, value: Any, path: str) -> list[Cause]:
    errors: list[Cause] = []
    schema.validate(value, path, errors)
    return errors


def composite_error(path: str, requirement: str) -> Cause:
    """kube-apiserver reports these errors without a field: as `<nil>`."""
    return field_errors.invalid("<nil>", "", f'"{path}" must {requirement}')


class ScalarSchema(ValueSchema):
    """A string, a number or a boolean."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.canonical = CANONICAL_FORMS.get(self.definition)
        self.is_identity = self.canonical is None
        self.enum: tuple[str, ...] = () if custom else tuple(schema.get("enum", ()))
        self.is_int32 = schema.get("format") == "int32"
        self.is_base64 = schema.get("format") == "byte"
        if self.types and not (self.enum or self.limits or self.canonical or self.is_int32 or self.is_base64):
            self.always_valid_types = self.types

    def normalize(self, value: Any) -> Any:
        if self.canonical is None:
            return value
        try:
            return self.canonical(value)
        except (TypeError, ValueError):
            return value  # reported by validate()

    def validate_content(self, value: Any, path: str, errors: list[Cause]) -> None:
        if self.custom:
            return
        if self.is_int32 and abs(value) > MAX_INT32:
            field = f"{self.owner}.{LIST_INDEX.sub('', path)}"
            message = f"json: cannot unmarshal number {value} into Go struct field {field} of type int32"
            errors.append(Cause(path, message, field_errors.TYPE_INVALID))
        if self.enum and value and value not in self.enum and path.startswith("spec"):
            errors.append(field_errors.not_supported(path, value, self.enum))
        if self.canonical or self.is_base64:
            try:
                if self.canonical and not self.is_base64:
                    self.canonical(value)
                else:
                    binascii.a2b_base64(value, strict_mode=True)
            except ValueError as error:
                errors.append(field_errors.type_invalid(path, value, str(error)))


class ObjectSchema(ValueSchema):
    """A map with known fields."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.is_identity = False
        properties: Mapping[str, Schema] = schema.get("properties", {})
        self.fields: Mapping[str, ValueSchema] = {
            name: compile_schema(each, custom=custom) for name, each in properties.items()
        }
        for field in self.fields.values():
            field.set_owner(self.definition.rpartition(".")[2])
        self.preserves_unknown: bool = schema.get("x-kubernetes-preserve-unknown-fields", False)
        self.required: tuple[str, ...] = tuple(schema.get("required", ()))
        self.defaults = tuple((name, field) for name, field in self.fields.items() if field.has_default)

    def normalize(self, value: Any) -> Any:
        if type(value) is not dict:
            return value
        normalized = {}
        for name, each in value.items():
            field = self.fields.get(name)
            if field is None:
                if self.preserves_unknown:
                    normalized[name] = each
            elif each is not None:
                normalized[name] = each if field.is_identity else field.normalize(each)
            elif field.nullable:
                normalized[name] = None  # any other null is dropped
        for name, field in self.defaults:
            if name not in normalized:
                normalized[name] = field.normalize(deepcopy(field.default))
        return normalized

    def find_unknown(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is not dict:
            return
        for name, each in value.items():
            field = self.fields.get(name)
            if field is None:
                if not self.preserves_unknown:
                    unknown.append(below(path, name))
            elif each.__class__ is dict or each.__class__ is list:
                field.find_unknown(each, below(path, name), unknown)

    def validate_content(self, value: Any, path: str, errors: list[Cause]) -> None:
        for name, each in value.items():
            field = self.fields.get(name)
            if field is not None and type(each) not in field.always_valid_types and (each is not None or self.custom):
                field.validate(each, below(path, name), errors)
        if self.required:
            missing = (name for name in self.required if self.is_missing(name, value, path))
            errors += [field_errors.required(below(path, name)) for name in missing]

    def is_missing(self, name: str, value: Any, path: str) -> bool:  # noqa: ARG002  # StructSchema needs the path
        return name not in value


class StructSchema(ObjectSchema):
    """A Go struct: nulls and most zero values are dropped, nested structs always exist."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.nullable_times = tuple(name for name, each in schema["properties"].items() if each.get(NULL_IF_UNSET))

    def normalize(self, value: Any) -> Any:
        if type(value) is not dict:
            return value
        normalized = {}
        fields = self.fields
        for name, each in value.items():
            field = fields.get(name)
            if field is not None and (each or (field.stores_zero and each is not None)):
                normalized[name] = each if field.is_identity else field.normalize(each)
        for name, field in self.defaults:
            if name not in normalized:
                normalized[name] = field.normalize(field.default)
        for name in self.nullable_times:
            normalized.setdefault(name, None)
        return normalized

    def is_missing(self, name: str, value: Any, path: str) -> bool:
        """An empty string of a required field was not set; a zero number may be intended."""
        return name not in value or (value[name] == "" and path.startswith("spec"))


class MapSchema(ValueSchema):
    """A map with arbitrary keys and values of one schema."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.values = compile_schema(schema["additionalProperties"], custom=custom)
        if isinstance(self.values, ScalarSchema) and self.values.definition == QUANTITY:
            self.values = ScalarSchema(schema["additionalProperties"], custom=False)
            self.values.canonical = canonical.resource  # maps of quantities are resource lists
        self.is_identity = False

    def set_owner(self, owner: str) -> None:
        self.owner = owner
        self.values.set_owner(owner)

    def normalize(self, value: Any) -> Any:
        if type(value) is not dict:
            return value
        if None in value.values():
            value = self.replace_nulls(value)
        return value if self.values.is_identity else {key: self.values.normalize(each) for key, each in value.items()}

    def replace_nulls(self, value: dict[str, Any]) -> dict[str, Any]:
        """Go reads null as the zero value of the type; a custom resource drops it unless it is nullable."""
        if not self.custom:
            return {key: self.values.zero if each is None else each for key, each in value.items()}
        return value if self.values.nullable else {key: each for key, each in value.items() if each is not None}

    def find_unknown(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is dict:
            for key, each in value.items():
                self.values.find_unknown(each, below(path, key), unknown)

    def validate_content(self, value: Any, path: str, errors: list[Cause]) -> None:
        for key, each in value.items():
            self.values.validate(each, below(path, key) if self.custom else f"{path}[{key}]", errors)


class ListSchema(ValueSchema):
    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.items = compile_schema(schema["items"], custom=custom)
        self.is_identity = False
        if isinstance(self.items, ScalarSchema):
            self.items.enum = ()  # builtin.py validates these lists

    def set_owner(self, owner: str) -> None:
        self.owner = owner
        self.items.set_owner(owner)

    def normalize(self, value: Any) -> Any:
        if type(value) is not list:
            return value
        if not self.custom and None in value:
            value = [self.items.zero if each is None else each for each in value]
        return value if self.items.is_identity else [self.items.normalize(each) for each in value]

    def find_unknown(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is list:
            for index, each in enumerate(value):
                self.items.find_unknown(each, f"{path}[{index}]", unknown)

    def validate_content(self, value: Any, path: str, errors: list[Cause]) -> None:
        for index, each in enumerate(value):
            self.items.validate(each, f"{path}[{index}]", errors)


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def compile_schema(schema: Schema, *, custom: bool) -> ValueSchema:
    """The compiled schema. A Kubernetes definition is read as a Go type, also inside a custom resource."""
    if DEFINITION not in schema:
        return _build_value_schema(schema, custom=custom)
    variant = (schema.get("default"), schema.get(STORES_ZERO))
    key = f"{schema[DEFINITION]} {variant}"
    if key not in _compiled:
        _compiled[key] = _build_value_schema(schema, custom=False)
    return _compiled[key]


_compiled: dict[str, ValueSchema] = {}  # shared by all kinds; bounded by the number of definitions


def _build_value_schema(schema: Schema, *, custom: bool) -> ValueSchema:
    if isinstance(schema.get("additionalProperties"), dict):
        return MapSchema(schema, custom=custom)
    if isinstance(schema.get("items"), dict):
        return ListSchema(schema, custom=custom)
    if schema.get("type") in SCALAR_TYPES or schema.get(DEFINITION) in CANONICAL_FORMS:
        return ScalarSchema(schema, custom=custom)
    preserves_all = schema.get("x-kubernetes-preserve-unknown-fields") or not custom
    if "properties" in schema or (schema.get("type") == "object" and not preserves_all):
        return ObjectSchema(schema, custom=True) if custom else StructSchema(schema, custom=False)
    return ValueSchema(schema, custom=custom)
