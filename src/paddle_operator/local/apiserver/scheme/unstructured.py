"""How are fields of an object read whose types are not checked yet? None or empty where a type does not match."""

import re
from typing import Any

from paddle_operator.local.apiserver.scheme.kind import Manifest

JSON_PATH = re.compile(r"(\.[A-Za-z0-9_-]+|\[[0-9]+\])+")
JSON_PATH_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]+)\]")


def parse_json_path(path: str) -> tuple[str | int, ...]:
    """The steps of a simple JSONPath such as `.status.conditions[0].type`; none for an empty one.

    Raises ValueError for anything but names and indices.
    """
    if path and not JSON_PATH.fullmatch(path):
        raise ValueError(f'JSONPath "{path}" is not supported: use field names and indices only')
    return tuple(name or int(index) for name, index in JSON_PATH_STEP.findall(path))


def nested_value(value: Any, *steps: str | int) -> Any:
    """The value at these field names and indices; None if there is none."""
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


def nested_map(manifest: Manifest, name: str) -> Manifest:
    """The map at a field; an empty one if there is no map."""
    value = manifest.get(name)
    return value if isinstance(value, dict) else {}


def ensure_map(manifest: Manifest, name: str) -> Manifest:
    """The map at a field, created if missing; a detached one if the field has another type."""
    value = manifest.setdefault(name, {})
    return value if isinstance(value, dict) else {}


def maps_in(value: object) -> list[dict[str, Any]]:
    """The maps of a list; none if the value is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
