"""The CustomResourceDefinition of a kind, for apiextensions v1 and for the v1beta1 of Kubernetes up to 1.15.

Both come from the same types and rules. What v1beta1 does not support (CEL, defaults, list types) is left out there.
"""

from typing import Any

from paddle_operator.api.definition import KindDefinition, PrinterColumn, Schema
from paddle_operator.api.rules import Rule
from paddle_operator.api.schema import struct_schema

Manifest = dict[str, Any]
AnyKind = KindDefinition[Any, Any]

NEWER_THAN_1_15 = (
    "default",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)


def crd(definition: AnyKind) -> Manifest:
    """For Kubernetes 1.30 or newer, which accepts a stored object that breaks a rule while its spec is unchanged."""
    version = {
        "name": definition.version,
        "served": True,
        "storage": True,
        "subresources": subresources(definition),
        "additionalPrinterColumns": [printer_column(each, "jsonPath") for each in definition.columns],
        "schema": {"openAPIV3Schema": object_schema(definition)},
    }
    return custom_resource_definition(definition, "v1", {"versions": [version]})


def crd_v1beta1(definition: AnyKind) -> Manifest:
    """For Kubernetes 1.15 or older."""
    schema = without_newer_keywords(object_schema(definition))
    if definition.name_schema:
        schema["properties"]["metadata"]["properties"] = {"name": {"type": "string", **definition.name_schema}}
    for rule in definition.rules:
        add_bounds(schema, rule)
    parts = {
        "version": definition.version,
        "versions": [{"name": definition.version, "served": True, "storage": True}],
        "preserveUnknownFields": False,
        "subresources": subresources(definition),
        "additionalPrinterColumns": [printer_column(each, "JSONPath") for each in definition.columns],
        "validation": {"openAPIV3Schema": schema},
    }
    return custom_resource_definition(definition, "v1beta1", parts)


def custom_resource_definition(definition: AnyKind, version: str, parts: Manifest) -> Manifest:
    names: Manifest = {
        "kind": definition.kind,
        "listKind": f"{definition.kind}List",
        "plural": definition.plural,
        "singular": definition.singular,
        "shortNames": list(definition.short_names),
        "categories": list(definition.categories),
    }
    return {
        "apiVersion": f"apiextensions.k8s.io/{version}",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{definition.plural}.{definition.group}"},
        "spec": {"group": definition.group, "names": names, "scope": "Namespaced", **parts},
    }


def subresources(definition: AnyKind) -> Manifest:
    scale = definition.scale
    if scale is None:
        return {"status": {}}
    paths = {
        "specReplicasPath": scale.spec_replicas,
        "statusReplicasPath": scale.status_replicas,
        "labelSelectorPath": scale.label_selector,
    }
    return {"status": {}, "scale": paths}


def printer_column(column: PrinterColumn, path_key: str) -> Manifest:
    return {"name": column.name, "type": column.type, path_key: column.json_path}


def object_schema(definition: AnyKind) -> Schema:
    spec = struct_schema(definition.spec, definition)
    for path, bounds in definition.bounds.items():
        subschema(spec, path).update(bounds)
    status = struct_schema(definition.status, definition)
    if "conditions" in status["properties"]:
        status["properties"]["conditions"] |= {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        }
    schema: Schema = {
        "type": "object",
        "description": definition.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [on_create(validation(rule)) for rule in definition.name_rules],
    }
    for rule in definition.rules:
        subschema(schema, rule.cel_path).setdefault("x-kubernetes-validations", []).append(validation(rule))
    spec.setdefault("x-kubernetes-validations", []).extend(
        {"rule": each.cel, "message": each.message} for each in definition.immutable
    )
    return schema


def subschema(schema: Schema, path: str) -> Schema:
    """The schema at `rules.items.action`: of a property, or of the items of a list."""
    for name in path.split("."):
        schema = schema["items"] if name == "items" else schema["properties"][name]
    return schema


def validation(rule: Rule[Any]) -> Schema:
    found = {"rule": rule.cel, "message": f"{rule.field}: {rule.fix}", "messageExpression": rule.cel_message}
    within = rule.field.removeprefix(rule.cel_path)
    if rule.cel_path and within and "[" not in within:  # CEL cannot name an index of a list
        found["fieldPath"] = within
    return found


def on_create(found: Schema) -> Schema:
    """A name cannot change: an object with an invalid name from before must remain updatable and deletable."""
    return found | {"rule": f"oldSelf.hasValue() || {found['rule']}", "optionalOldSelf": True}


def without_newer_keywords(schema: Schema) -> Schema:
    """Without what Kubernetes 1.15 does not support; a property may have the name of a keyword."""
    retained = {key: value for key, value in schema.items() if key not in NEWER_THAN_1_15}
    if "properties" in retained:
        retained["properties"] = {name: without_newer_keywords(value) for name, value in retained["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in retained:
            retained[key] = without_newer_keywords(retained[key])
    return retained


def add_bounds(schema: Schema, rule: Rule[Any]) -> None:
    """Write a rule about a range of numbers as minimum and maximum."""
    if rule.bounds is None:
        return
    low, high = rule.bounds
    subschema(schema, rule.field).update({"minimum": low} | ({} if high is None else {"maximum": high}))
