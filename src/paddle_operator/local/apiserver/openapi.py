"""What do the kinds look like? The OpenAPI v3 documents that `kubectl explain` shows and `kubectl apply` asks.

A document a group and version, as on a cluster, with the fields' own texts. Each is put together when it is asked for
and not kept: it is asked for rarely, since kubectl keeps it, and the core's alone has 400 KB.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from paddle_operator.local.apiserver.discovery import by_group
from paddle_operator.local.apiserver.documents import Document, Finder, as_document
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest, Schema
from paddle_operator.local.apiserver.scheme.openapi_definitions import CORE, DEFINITION, OBJECT_META, data, descriptions

ROOT = "/openapi/v3"

# OpenAPI v2 is where kubectl turns for what has no document of its own, a List. It then checks by itself what it finds
# described, which here is nothing: the server checks every item. `swagger: "2.0"` is all that a document must have.
OLD = "/openapi/v2"
OLD_JSON: Manifest = {"swagger": "2.0", "info": {"title": "see /openapi/v3", "version": ""}, "paths": {}}
OLD_PROTOBUF = b"\x0a\x032.0"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

REFERENCE = "#/components/schemas/"
OK: Manifest = {"200": {"description": "OK"}}
PATCHES = ("application/json-patch+json", "application/merge-patch+json")
STRATEGIC = "application/strategic-merge-patch+json"
NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
NAMESPACE = {"name": "namespace", "in": "path", "required": True, "schema": {"type": "string"}}
WRITE_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def documents(kinds: Iterable[Kind]) -> Finder:
    groups = {f"{ROOT}{each[0].prefix}": each for each in by_group(kinds).values()}

    @cache
    def marks() -> dict[str, str]:
        return {path: as_document(document(each)).mark for path, each in groups.items()}

    def find(path: str, query: str, accept: str) -> Document | None:
        if path == OLD:
            return Document(OLD_PROTOBUF, PROTOBUF) if "protobuf" in accept else as_document(OLD_JSON)
        if path == ROOT:
            found = {each.removeprefix(f"{ROOT}/"): f"{each}?hash={mark}" for each, mark in marks().items()}
            return as_document({"paths": {name: {"serverRelativeURL": url} for name, url in found.items()}})
        if path not in groups:
            return None
        written = as_document(document(groups[path]))
        return Document(written.body, lasting=f"hash={written.mark}" in query)

    return find


def document(kinds: list[Kind]) -> Manifest:
    """Of the kinds of one group and version."""
    texts = descriptions()
    schemas: dict[str, Schema] = {}
    for kind in kinds:
        if kind.custom:
            schemas[definition_name(kind)] = custom_schema(kind, texts)
            add_definitions(schemas, OBJECT_META, texts)
        else:
            add_definitions(schemas, definition_name(kind), texts)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": data().version["gitVersion"]},
        "paths": {path: content for kind in kinds for path, content in paths(kind)},
        "components": {"schemas": schemas},
    }


def definition_name(kind: Kind) -> str:
    """A custom kind's is its group backwards: `org.paddlepaddle.batch.v1.PaddleJob`."""
    if not kind.custom:
        return str(kind.schema[DEFINITION])
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def add_definitions(found: dict[str, Schema], name: str, texts: Mapping[str, Mapping[str, str]]) -> None:
    """Add a definition and all that it refers to."""
    if name in found:
        return
    found[name] = described(data().definitions[name], texts.get(name, {}))
    for target in references(found[name]):
        add_definitions(found, target, texts)


def described(definition: Schema, texts: Mapping[str, str]) -> Schema:
    found = definition | ({"description": texts[""]} if "" in texts else {})
    if "properties" in definition:
        fields = definition["properties"].items()
        found["properties"] = {
            name: field | ({"description": texts[name]} if name in texts else {}) for name, field in fields
        }
    return found


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target.removeprefix(REFERENCE)
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def custom_schema(kind: Kind, texts: Mapping[str, Mapping[str, str]]) -> Schema:
    """As its CustomResourceDefinition has it, with what every object has: a kind, a version and metadata."""
    everywhere = texts[f"{CORE}Pod"]
    properties = dict(kind.schema.get("properties", {}))
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string", "description": everywhere[name]}
    properties["metadata"] = {"allOf": [{"$ref": REFERENCE + OBJECT_META}], "description": everywhere["metadata"]}
    return kind.schema | {"properties": properties, "x-kubernetes-group-version-kind": [named(kind)]}


def paths(kind: Kind) -> Iterator[tuple[str, Manifest]]:
    """The operations of a kind, as far as somebody reads them: which kind they are of, and what can be asked."""
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    within = [NAMESPACE] if kind.namespaced else []
    collection = f"{kind.prefix}{scope}/{kind.plural}"
    yield collection, operations(kind, ("get", "list"), ("post", "post")) | {"parameters": within}
    one = operations(kind, ("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete"))
    yield f"{collection}/{{name}}", one | {"parameters": [NAME, *within]}


def operations(kind: Kind, *wanted: tuple[str, str]) -> Manifest:
    """By HTTP method; the second word is Kubernetes' own for it."""
    return {method: operation(kind, method, action) for method, action in wanted}


def operation(kind: Kind, method: str, action: str) -> Manifest:
    found: Manifest = {
        "responses": OK,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": named(kind),
    }
    if method in ("post", "put", "patch"):
        found["parameters"] = WRITE_PARAMETERS
    if method == "patch":
        forms = PATCHES if kind.custom else (*PATCHES, STRATEGIC)
        found["requestBody"] = {"content": {form: {"schema": {"type": "object"}} for form in forms}, "required": True}
    return found


def named(kind: Kind) -> Manifest:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
