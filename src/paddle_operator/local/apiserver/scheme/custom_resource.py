"""A Kind of a CustomResourceDefinition: what `kubectl apply -f crd.yaml` would teach a cluster, known from the start.

Its CEL rules are not evaluated: they are what `check` is for.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from paddle_operator.local.apiserver.printers.ages import age
from paddle_operator.local.apiserver.scheme.canonical import instant
from paddle_operator.local.apiserver.scheme.kind import Check, Column, Kind, Manifest, Scale, Schema
from paddle_operator.local.apiserver.scheme.openapi_definitions import OBJECT_META, schema

SIMPLE_PATH = re.compile(r"(\.[A-Za-z0-9_-]+|\[[0-9]+\])+")
STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]+)\]")


def kind_of(definition: Manifest, check: Check) -> Kind:
    """Of a CustomResourceDefinition (apiextensions.k8s.io/v1) the version that is stored.

    Raises ValueError for a column whose path is more than names and indices.
    """
    spec = definition["spec"]
    names = spec["names"]
    version = next(each for each in spec["versions"] if each["storage"])
    subresources = version.get("subresources", {})
    return Kind(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        names.get("singular", names["kind"].lower()),
        whole(version["schema"]["openAPIV3Schema"]),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        has_status="status" in subresources,
        scale=scale(subresources.get("scale")),
        columns=(NAME, *(column(each) for each in version.get("additionalPrinterColumns", AGE_ONLY))),
        custom=True,
        check=check,
    )


NAME = Column("Name", "string", lambda item, _now: item["metadata"]["name"])
AGE_ONLY = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]


def whole(described: Schema) -> Schema:
    """With the metadata that every object has, of which a CustomResourceDefinition says only that it is there."""
    metadata = schema(OBJECT_META) | {"description": METADATA}
    types = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    return described | {"properties": types | described.get("properties", {}) | {"metadata": metadata}}


METADATA = (
    "Standard object's metadata. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


def scale(described: Manifest | None) -> Scale | None:
    if described is None:
        return None
    return Scale(described["specReplicasPath"], described["statusReplicasPath"], described.get("labelSelectorPath", ""))


def column(described: Manifest) -> Column:
    value_at = at(described["jsonPath"])
    kind = described["type"]

    def of(item: Manifest, now: datetime) -> object:
        value = value_at(item)
        return None if value is None else CELLS[kind](value, now)

    return Column(described["name"], kind, of, wide=described.get("priority", 0) > 0)


def at(path: str) -> Callable[[Any], Any]:
    """What stands at a simple JSONPath such as `.status.conditions[0].type`; None where nothing does."""
    if not SIMPLE_PATH.fullmatch(path):
        raise ValueError(f'"{path}" is more than names and indices, which is all that a column here can follow')
    steps: list[str | int] = [name or int(index) for name, index in STEP.findall(path)]

    def value_at(value: Any) -> Any:
        for step in steps:
            if isinstance(step, str):
                value = value.get(step) if isinstance(value, dict) else None
            else:
                value = value[step] if isinstance(value, list) and step < len(value) else None
        return value

    return value_at


def as_text(value: Any, _now: datetime) -> object:
    """As a JSONPath is printed: a text as it is, anything else as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def as_integer(value: Any, _now: datetime) -> object:
    return int(value) if type(value) in (int, float) else None


def as_number(value: Any, _now: datetime) -> object:
    return float(value) if type(value) in (int, float) else None


def as_boolean(value: Any, _now: datetime) -> object:
    return value if isinstance(value, bool) else None


def as_age(value: Any, now: datetime) -> object:
    if not isinstance(value, str):
        return None
    try:
        instant(value)
    except ValueError:
        return "<invalid>"
    return age(value, now)


CELLS: dict[str, Callable[[Any, datetime], object]] = {
    "string": as_text,
    "integer": as_integer,
    "number": as_number,
    "boolean": as_boolean,
    "date": as_age,
}
