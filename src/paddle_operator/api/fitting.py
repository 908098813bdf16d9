"""Does a user's template have the form of a PodTemplateSpec? By Kubernetes' own schema: types, and what must be there.

The API server asks the same of what it stores today; what was stored before there was a schema may be anything, and the
plan reads containers, variables, ports and volumes out of it. Values (enums, names, quantities) the API server judges
when a pod is made.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from paddle_operator.api.decoding import shown
from paddle_operator.api.pod_template import Schema, kubernetes_own

IN_WORDS = {
    "integer": "a whole number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map of fields",
}
TYPES: dict[str, type | tuple[type, ...]] = {
    "integer": (int, float),  # 1.0 is a whole number in JSON
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def validate_template(template: dict[str, Any], path: str) -> Iterator[str]:
    """A sentence for each part that has another form."""
    return _misfits(_schema(), template, path)


@cache
def _schema() -> Schema:
    return kubernetes_own()


def _misfits(schema: Schema, value: object, path: str) -> Iterator[str]:
    kind = schema.get("type")
    if kind is None:  # a number or a text, or anything at all
        return
    if not _is(kind, value):
        yield f"{path} is {shown(value)}, but must be {IN_WORDS[kind]}"
    elif isinstance(value, dict):
        yield from _misfits_of_fields(schema, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _misfits(schema["items"], item, f"{path}[{index}]")


def _misfits_of_fields(schema: Schema, value: dict[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield f"{path}.{name} is not set, but is needed: add it"
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, part in value.items():
        found = known.get(name, others)
        if found is not None and part is not None:  # a null is as if the field were not there
            yield from _misfits(found, part, f"{path}.{name}")


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind]) and not (isinstance(value, float) and not value.is_integer())
