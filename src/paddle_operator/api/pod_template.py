"""The schema of a PodTemplateSpec: Kubernetes' own, stored by tools/pod_template_schema.py, and what we add to it.

A template that was stored before there was a schema may have any form, and the plan reads containers, variables, ports
and volumes from it: `validate_template` checks its types. Values are checked by the API server when a pod is created.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from paddle_operator.api.decoding import format_value
from paddle_operator.api.definition import Schema
from paddle_operator.api.paddlejob_rules import MAX_PORT, MIN_PORT

JSON_TYPE_DESCRIPTIONS = {
    "integer": "a whole number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map of fields",
}
JSON_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "integer": (int, float),  # 1.0 is a whole number in JSON
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def pod_template_schema() -> Schema:
    """Kubernetes' schema with a required spec, at least one container, and valid ports.

    It is atomic to server-side apply. If each field were tracked, every write of a job with two roles and twenty
    variables would cost the API server a fifth more, also a write of its status.
    """
    schema = kubernetes_schema()
    schema["x-kubernetes-map-type"] = "atomic"
    schema["required"] = ["spec"]
    pod = schema["properties"]["spec"]["properties"]
    pod["containers"]["minItems"] = 1
    for kind in ("containers", "initContainers"):
        port = pod[kind]["items"]["properties"]["ports"]["items"]["properties"]
        port["containerPort"] |= {"minimum": MIN_PORT, "maximum": MAX_PORT}
        port["hostPort"] |= {"minimum": 0, "maximum": MAX_PORT}  # 0 stands for none
    return schema


def quantities_schema() -> Schema:
    """The schema of a map of quantities, such as requests and limits."""
    container = kubernetes_schema()["properties"]["spec"]["properties"]["containers"]["items"]
    quantity: Schema = container["properties"]["resources"]["properties"]["limits"]["additionalProperties"]
    return {"type": "object", "additionalProperties": quantity}


def kubernetes_schema() -> Schema:
    text = files("paddle_operator.api").joinpath("pod_template_schema.json").read_text()
    schema: Schema = json.loads(text)
    return schema


def validate_template(template: dict[str, Any], path: str) -> Iterator[str]:
    """A message for each field of a wrong type, and for each that is missing."""
    return _type_errors(_cached_schema(), template, path)


@cache
def _cached_schema() -> Schema:
    return kubernetes_schema()


def _type_errors(schema: Schema, value: object, path: str) -> Iterator[str]:
    type_ = schema.get("type")
    if type_ is None:  # a number or a text, or any value
        return
    if not _has_type(type_, value):
        yield f"{path} is {format_value(value)}, but must be {JSON_TYPE_DESCRIPTIONS[type_]}"
    elif isinstance(value, dict):
        yield from _type_errors_of_fields(schema, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _type_errors(schema["items"], item, f"{path}[{index}]")


def _type_errors_of_fields(schema: Schema, value: dict[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield f"{path}.{name} is not set, but is needed: add it"
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
    for name, field in value.items():
        field_schema = properties.get(name, additional)
        if field_schema is not None and field is not None:  # a null counts as absent
            yield from _type_errors(field_schema, field, f"{path}.{name}")


def _has_type(type_: str, value: object) -> bool:
    if isinstance(value, bool):
        return type_ == "boolean"
    return isinstance(value, JSON_PYTHON_TYPES[type_]) and not (isinstance(value, float) and not value.is_integer())
