"""How does a CustomResourceDefinition become a Kind of the local API server?

Its CEL rules are not evaluated: `validate` implements the same rules in Python.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from paddle_operator.local.apiserver.printers.columns import NAME_COLUMN
from paddle_operator.local.apiserver.printers.table import format_age
from paddle_operator.local.apiserver.scheme.canonical import parse_time
from paddle_operator.local.apiserver.scheme.kind import Column, Kind, Manifest, Scale, Schema, Validator
from paddle_operator.local.apiserver.scheme.openapi_definitions import OBJECT_META, resolved_schema
from paddle_operator.local.apiserver.scheme.unstructured import nested_value, parse_json_path


def kind_from_crd(definition: Manifest, validate: Validator) -> Kind:
    """The storage version of a CustomResourceDefinition (apiextensions.k8s.io/v1).

    Raises ValueError for a column whose JSONPath has more than names and indices.
    """
    spec = definition["spec"]
    names = spec["names"]
    version = next(version for version in spec["versions"] if version["storage"])
    subresources = version.get("subresources", {})
    return Kind(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        names.get("singular", names["kind"].lower()),
        with_object_meta(version["schema"]["openAPIV3Schema"]),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        has_status="status" in subresources,
        scale=scale_paths(subresources.get("scale")),
        columns=(
            NAME_COLUMN,
            *(column_from_crd(column) for column in version.get("additionalPrinterColumns", AGE_ONLY)),
        ),
        custom=True,
        validate=validate,
    )


AGE_ONLY = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]


def with_object_meta(schema: Schema) -> Schema:
    """Add apiVersion, kind and the full ObjectMeta: a CustomResourceDefinition only has `metadata: object`."""
    metadata = resolved_schema(OBJECT_META) | {"description": METADATA}
    types = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    return schema | {"properties": types | schema.get("properties", {}) | {"metadata": metadata}}


METADATA = (
    "Standard object's metadata. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


def scale_paths(subresource: Manifest | None) -> Scale | None:
    if subresource is None:
        return None
    selector_path = subresource.get("labelSelectorPath", "")
    return Scale(subresource["specReplicasPath"], subresource["statusReplicasPath"], selector_path)


def column_from_crd(column: Manifest) -> Column:
    steps = parse_json_path(column["jsonPath"])
    formatter = CELL_FORMATTERS[column["type"]]

    def cell(item: Manifest, now: datetime) -> object:
        value = nested_value(item, *steps)
        return None if value is None else formatter(value, now)

    return Column(column["name"], column["type"], cell, wide=column.get("priority", 0) > 0)


def format_string(value: Any, _now: datetime) -> object:
    """As kubectl prints a JSONPath: strings unchanged, anything else as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def format_integer(value: Any, _now: datetime) -> object:
    return int(value) if type(value) in (int, float) else None


def format_number(value: Any, _now: datetime) -> object:
    return float(value) if type(value) in (int, float) else None


def format_boolean(value: Any, _now: datetime) -> object:
    return value if isinstance(value, bool) else None


def format_date(value: Any, now: datetime) -> object:
    if not isinstance(value, str):
        return None
    try:
        parse_time(value)
    except ValueError:
        return "<invalid>"
    return format_age(value, now)


CELL_FORMATTERS: dict[str, Callable[[Any, datetime], object]] = {
    "string": format_string,
    "integer": format_integer,
    "number": format_number,
    "boolean": format_boolean,
    "date": format_date,
}
