"""How is a value read, given its schema? A tree of shapes, made once a kind, since every write goes through it.

There are two ways to read. What Kubernetes has in Go types loses its nulls and most of its zeros, and gets the defaults
of its structs; what a CustomResourceDefinition describes keeps what was written, but for unknown fields.
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
    QUANTITY,
    SHOWN_AS_NULL,
    ZERO_COUNTS,
)
from paddle_operator.local.apiserver.validation import causes
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
LEAVES = ("string", "integer", "number", "boolean")
NAMES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}
GO_NAMES = NAMES | {int: "number", bool: "bool"}
GO_TYPES = {"integer": "int64", "boolean": "bool", "number": "float64"}
INDEX = re.compile(r"\[[^\]]*\]")
LARGEST_INT32 = 2**31 - 1

Canonical = Callable[[Any], Any]
CANONICAL: dict[str, Canonical] = {
    QUANTITY: canonical.quantity,
    META + "Time": canonical.time,
    META + "MicroTime": canonical.micro_time,
}
NO_DEFAULT = object()


class Shape:
    """What is known of one value, whatever it is; the base of all is a value that is left as it is."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        self.custom = custom
        self.nullable: bool = not custom or schema.get("nullable", False)
        self.types = types_of(schema)
        self.type_name: str = schema.get("type", "integer,string")
        self.definition: str = schema.get(DEFINITION, "")
        self.go_type = go_type(schema)
        self.owner = ""  # the Go struct that it is a field of, for the words of a refusal
        self.default: Any = schema.get("default", NO_DEFAULT)
        # An empty struct stands for itself, an empty list for none.
        self.zero_counts = custom or schema.get(ZERO_COUNTS, False) or "properties" in schema
        self.limits: tuple[Limit, ...] = (*limits_of(schema), *composed(schema)) if custom else ()
        self.plain = True  # completed() gives back what it gets
        self.zero: Any = ZEROS.get(schema.get("type", ""), "0")  # what Go has where nothing is; without a type, amounts
        self.suffices: tuple[type, ...] = ()  # the types of values of which problems() has nothing to say

    @property
    def has_default(self) -> bool:
        """In Go a struct that is no pointer is always there; OpenAPI says the same of times and amounts, wrongly."""
        return self.default is not NO_DEFAULT and (self.custom or self.default != {} or isinstance(self, Object))

    def belongs_to(self, owner: str) -> None:
        if not self.definition:  # what has one is shared by many owners
            self.owner = owner

    def completed(self, value: Any) -> Any:
        return value

    def unknown(self, value: Any, path: str, found: list[str]) -> None:
        """Add the paths of the fields that are not in the schema."""

    def problems(self, value: Any, path: str, found: list[Cause]) -> None:
        if value is None:
            if not self.nullable and self.types:
                found.append(self.mistyped(value, path))
        elif self.types and type(value) not in self.types and not self.is_whole(value):
            found.append(self.mistyped(value, path))
        else:
            if self.limits:
                found += [cause for limit in self.limits if (cause := limit(value, path))]
            self.problems_within(value, path, found)

    def problems_within(self, value: Any, path: str, found: list[Cause]) -> None:
        """Add what is wrong with the parts of a value of the right type."""

    def is_whole(self, value: Any) -> bool:
        return self.custom and int in (self.types or ()) and isinstance(value, float) and value.is_integer()

    def mistyped(self, value: Any, path: str) -> Cause:
        name = NAMES[type(value)]
        if self.custom:
            return causes.mistyped(path, name, f'{path} in body must be of type {self.type_name}: "{name}"')
        field = f"{self.owner}.{INDEX.sub('', path)}" if self.owner else INDEX.sub("", path)
        words = f"cannot unmarshal {GO_NAMES[type(value)]} into Go struct field {field} of type {self.go_type}"
        return Cause(path, f"json: {words}", causes.MISTYPED)


def types_of(schema: Schema) -> tuple[type, ...] | None:
    """The Python types that a value may have; None for any."""
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


def composed(schema: Schema) -> Iterator[Limit]:
    """The limits that are schemas themselves: what must not hold, and of which one or all must."""
    parts = {key: [shape_of(each, custom=True) for each in schema.get(key, ())] for key in ("allOf", "anyOf", "oneOf")}
    if "not" in schema:
        unwanted = shape_of(schema["not"], custom=True)
        yield (
            lambda value, path: (
                None if faults(unwanted, value, path) else nowhere(path, "not validate the schema (not)")
            )
        )
    if alternatives := parts["anyOf"]:
        yield (
            lambda value, path: (
                None
                if any(not faults(each, value, path) for each in alternatives)
                else nowhere(path, "validate at least one schema (anyOf)")
            )
        )
    if choices := parts["oneOf"]:
        yield (
            lambda value, path: (
                None
                if sum(not faults(each, value, path) for each in choices) == 1
                else nowhere(path, "validate one and only one schema (oneOf)")
            )
        )
    for part in parts["allOf"]:
        yield lambda value, path, part=part: next(iter(faults(part, value, path)), None)  # type: ignore[misc]


def faults(shape: Shape, value: Any, path: str) -> list[Cause]:
    found: list[Cause] = []
    shape.problems(value, path, found)
    return found


def nowhere(path: str, words: str) -> Cause:
    """An API server names no field in these cases: that is how it tells it."""
    return causes.invalid("<nil>", "", f'"{path}" must {words}')


class Leaf(Shape):
    """A string, a number or a boolean."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.canonical = CANONICAL.get(self.definition)
        self.plain = self.canonical is None
        self.enum: tuple[str, ...] = () if custom else tuple(schema.get("enum", ()))
        self.is_int32 = schema.get("format") == "int32"
        self.is_base64 = schema.get("format") == "byte"
        if self.types and not (self.enum or self.limits or self.canonical or self.is_int32 or self.is_base64):
            self.suffices = self.types

    def completed(self, value: Any) -> Any:
        if self.canonical is None:
            return value
        try:
            return self.canonical(value)
        except (TypeError, ValueError):
            return value  # told by problems()

    def problems_within(self, value: Any, path: str, found: list[Cause]) -> None:
        if self.custom:
            return
        if self.is_int32 and abs(value) > LARGEST_INT32:
            field = f"{self.owner}.{INDEX.sub('', path)}"
            words = f"json: cannot unmarshal number {value} into Go struct field {field} of type int32"
            found.append(Cause(path, words, causes.MISTYPED))
        if self.enum and value and value not in self.enum and path.startswith("spec"):
            found.append(causes.unsupported(path, value, self.enum))
        if self.canonical or self.is_base64:
            try:
                binascii.a2b_base64(value, strict_mode=True) if self.is_base64 else self.canonical(value)  # type: ignore[misc]
            except ValueError as error:
                found.append(causes.mistyped(path, value, str(error)))


class Object(Shape):
    """A map whose fields are known."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.plain = False
        properties: Mapping[str, Schema] = schema.get("properties", {})
        self.fields: Mapping[str, Shape] = {name: shape_of(each, custom=custom) for name, each in properties.items()}
        for field in self.fields.values():
            field.belongs_to(self.definition.rpartition(".")[2])
        self.keeps_unknown: bool = schema.get("x-kubernetes-preserve-unknown-fields", False)
        self.required: tuple[str, ...] = tuple(schema.get("required", ()))
        self.defaults = tuple((name, field) for name, field in self.fields.items() if field.has_default)

    def completed(self, value: Any) -> Any:
        if type(value) is not dict:
            return value
        found = {}
        for name, each in value.items():
            field = self.fields.get(name)
            if field is None:
                if self.keeps_unknown:
                    found[name] = each
            elif each is not None:
                found[name] = each if field.plain else field.completed(each)
            elif field.nullable:
                found[name] = None  # any other null is as good as not written
        for name, field in self.defaults:
            if name not in found:
                found[name] = field.completed(deepcopy(field.default))
        return found

    def unknown(self, value: Any, path: str, found: list[str]) -> None:
        if type(value) is not dict:
            return
        for name, each in value.items():
            field = self.fields.get(name)
            if field is None:
                if not self.keeps_unknown:
                    found.append(below(path, name))
            elif each.__class__ is dict or each.__class__ is list:
                field.unknown(each, below(path, name), found)

    def problems_within(self, value: Any, path: str, found: list[Cause]) -> None:
        for name, each in value.items():
            field = self.fields.get(name)
            if field is not None and type(each) not in field.suffices and (each is not None or self.custom):
                field.problems(each, below(path, name), found)
        if self.required:
            found += [causes.required(below(path, name)) for name in self.required if self.lacks(name, value, path)]

    def lacks(self, name: str, value: Any, path: str) -> bool:  # noqa: ARG002  # a struct asks where it stands
        return name not in value


class Struct(Object):
    """An object that Go reads: nulls and most zeros are as good as not written, and inner structs are always there."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.times = tuple(name for name, each in schema["properties"].items() if each.get(SHOWN_AS_NULL))

    def completed(self, value: Any) -> Any:
        if type(value) is not dict:
            return value
        found = {}
        fields = self.fields
        for name, each in value.items():
            field = fields.get(name)
            if field is not None and (each or (field.zero_counts and each is not None)):
                found[name] = each if field.plain else field.completed(each)
        for name, field in self.defaults:
            if name not in found:
                found[name] = field.completed(field.default)
        for name in self.times:
            found.setdefault(name, None)
        return found

    def lacks(self, name: str, value: Any, path: str) -> bool:
        """What is required has its zero by now: an empty text is one that was not given, a number may be meant."""
        return name not in value or (value[name] == "" and path.startswith("spec"))


class Map(Shape):
    """A map with any keys, and values of one shape."""

    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.values = shape_of(schema["additionalProperties"], custom=custom)
        if isinstance(self.values, Leaf) and self.values.definition == QUANTITY:
            self.values = Leaf(schema["additionalProperties"], custom=False)
            self.values.canonical = canonical.resource  # a map of amounts is one of resources
        self.plain = False

    def belongs_to(self, owner: str) -> None:
        self.owner = owner
        self.values.belongs_to(owner)

    def completed(self, value: Any) -> Any:
        if type(value) is not dict:
            return value
        if None in value.values():
            value = self.without_nulls(value)
        return value if self.values.plain else {key: self.values.completed(each) for key, each in value.items()}

    def without_nulls(self, value: dict[str, Any]) -> dict[str, Any]:
        """To Go a null is the zero of its type; where a definition is custom, it is nothing unless it may be."""
        if not self.custom:
            return {key: self.values.zero if each is None else each for key, each in value.items()}
        return value if self.values.nullable else {key: each for key, each in value.items() if each is not None}

    def unknown(self, value: Any, path: str, found: list[str]) -> None:
        if type(value) is dict:
            for key, each in value.items():
                self.values.unknown(each, below(path, key), found)

    def problems_within(self, value: Any, path: str, found: list[Cause]) -> None:
        for key, each in value.items():
            self.values.problems(each, below(path, key) if self.custom else f"{path}[{key}]", found)


class List(Shape):
    def __init__(self, schema: Schema, *, custom: bool) -> None:
        super().__init__(schema, custom=custom)
        self.items = shape_of(schema["items"], custom=custom)
        self.plain = False
        if isinstance(self.items, Leaf):
            self.items.enum = ()  # told of the list as a whole, which checks.py does

    def belongs_to(self, owner: str) -> None:
        self.owner = owner
        self.items.belongs_to(owner)

    def completed(self, value: Any) -> Any:
        if type(value) is not list:
            return value
        if not self.custom and None in value:
            value = [self.items.zero if each is None else each for each in value]
        return value if self.items.plain else [self.items.completed(each) for each in value]

    def unknown(self, value: Any, path: str, found: list[str]) -> None:
        if type(value) is list:
            for index, each in enumerate(value):
                self.items.unknown(each, f"{path}[{index}]", found)

    def problems_within(self, value: Any, path: str, found: list[Cause]) -> None:
        for index, each in enumerate(value):
            self.items.problems(each, f"{path}[{index}]", found)


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def shape_of(schema: Schema, *, custom: bool) -> Shape:
    """The shape of a schema. What has the name of a Kubernetes definition is read as Go reads it, wherever it is."""
    if DEFINITION not in schema:
        return new_shape(schema, custom=custom)
    varying = (schema.get("default"), schema.get(ZERO_COUNTS))
    key = f"{schema[DEFINITION]} {varying}"
    if key not in _made:
        _made[key] = new_shape(schema, custom=False)
    return _made[key]


_made: dict[str, Shape] = {}  # one for all kinds: there are as many as Kubernetes has definitions


def new_shape(schema: Schema, *, custom: bool) -> Shape:
    if isinstance(schema.get("additionalProperties"), dict):
        return Map(schema, custom=custom)
    if isinstance(schema.get("items"), dict):
        return List(schema, custom=custom)
    if schema.get("type") in LEAVES or schema.get(DEFINITION) in CANONICAL:
        return Leaf(schema, custom=custom)
    keeps_all = schema.get("x-kubernetes-preserve-unknown-fields") or not custom
    if "properties" in schema or (schema.get("type") == "object" and not keeps_all):
        return Object(schema, custom=True) if custom else Struct(schema, custom=False)
    return Shape(schema, custom=custom)
