"""Which fields do the kinds have? The OpenAPI v3 documents that `kubectl explain` and `kubectl apply` request.

One document a group and version, as on a cluster, with descriptions. Documents are built on each request and not
cached: kubectl caches them itself, and the core group's document alone has 400 KB.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from paddle_operator.local.apiserver.discovery import (
    APIDocument,
    FindDocument,
    group_version_kind,
    json_document,
    kinds_by_group,
)
from paddle_operator.local.apiserver.patch.json_patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest, Schema
from paddle_operator.local.apiserver.scheme.openapi_definitions import (
    CORE,
    DEFINITION,
    OBJECT_META,
    descriptions,
    openapi_data,
)

V3_PATH = "/openapi/v3"

# kubectl falls back to OpenAPI v2 for a kind without a v3 document: List. The document describes nothing to validate,
# since the server validates every item. `swagger: "2.0"` is all that the document needs.
V2_PATH = "/openapi/v2"
V2_JSON: Manifest = {"swagger": "2.0", "info": {"title": "see /openapi/v3", "version": ""}, "paths": {}}
V2_PROTOBUF = b"\x0a\x032.0"
V2_PROTOBUF_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

REFERENCE_PREFIX = "#/components/schemas/"
OK_RESPONSE: Manifest = {"200": {"description": "OK"}}
PATCH_MEDIA_TYPES = (JSON_PATCH, MERGE_PATCH)
NAME_PARAMETER = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
NAMESPACE_PARAMETER = {"name": "namespace", "in": "path", "required": True, "schema": {"type": "string"}}
WRITE_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def openapi_documents(kinds: Iterable[Kind]) -> FindDocument:
    groups = {f"{V3_PATH}{group[0].prefix}": group for group in kinds_by_group(kinds).values()}

    @cache
    def digests() -> dict[str, str]:
        return {path: json_document(group_document(group)).digest for path, group in groups.items()}

    def find(path: str, query: str, accept: str) -> APIDocument | None:
        if path == V2_PATH:
            return APIDocument(V2_PROTOBUF, V2_PROTOBUF_MEDIA_TYPE) if "protobuf" in accept else json_document(V2_JSON)
        if path == V3_PATH:
            urls = {group.removeprefix(f"{V3_PATH}/"): f"{group}?hash={digest}" for group, digest in digests().items()}
            return json_document({"paths": {name: {"serverRelativeURL": url} for name, url in urls.items()}})
        if path not in groups:
            return None
        document = json_document(group_document(groups[path]))
        return APIDocument(document.body, immutable=f"hash={document.digest}" in query)

    return find


def group_document(kinds: list[Kind]) -> Manifest:
    """The OpenAPI document of one group and version."""
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
        "info": {"title": "Kubernetes", "version": openapi_data().version["gitVersion"]},
        "paths": {path: content for kind in kinds for path, content in paths(kind)},
        "components": {"schemas": schemas},
    }


def definition_name(kind: Kind) -> str:
    """Of a custom kind, its reversed group: `org.paddlepaddle.batch.v1.PaddleJob`."""
    if not kind.custom:
        return str(kind.schema[DEFINITION])
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def add_definitions(schemas: dict[str, Schema], name: str, texts: Mapping[str, Mapping[str, str]]) -> None:
    """Add a definition and all definitions that it references."""
    if name in schemas:
        return
    schemas[name] = with_descriptions(openapi_data().definitions[name], texts.get(name, {}))
    for target in references(schemas[name]):
        add_definitions(schemas, target, texts)


def with_descriptions(definition: Schema, texts: Mapping[str, str]) -> Schema:
    schema = definition | ({"description": texts[""]} if "" in texts else {})
    if "properties" in definition:
        fields = definition["properties"].items()
        schema["properties"] = {
            name: field | ({"description": texts[name]} if name in texts else {}) for name, field in fields
        }
    return schema


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target.removeprefix(REFERENCE_PREFIX)
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def custom_schema(kind: Kind, texts: Mapping[str, Mapping[str, str]]) -> Schema:
    """The schema of its CustomResourceDefinition plus apiVersion, kind and metadata."""
    common = texts[f"{CORE}Pod"]
    properties = dict(kind.schema.get("properties", {}))
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string", "description": common[name]}
    properties["metadata"] = {"allOf": [{"$ref": REFERENCE_PREFIX + OBJECT_META}], "description": common["metadata"]}
    return kind.schema | {
        "properties": properties,
        "x-kubernetes-group-version-kind": [group_version_kind(kind.group, kind.version, kind.kind)],
    }


def paths(kind: Kind) -> Iterator[tuple[str, Manifest]]:
    """The operations of a kind, with the fields that kubectl reads: the kind and the parameters."""
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    scope_parameters = [NAMESPACE_PARAMETER] if kind.namespaced else []
    collection = f"{kind.prefix}{scope}/{kind.plural}"
    yield collection, operations(kind, ("get", "list"), ("post", "post")) | {"parameters": scope_parameters}
    item = operations(kind, ("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete"))
    yield f"{collection}/{{name}}", item | {"parameters": [NAME_PARAMETER, *scope_parameters]}


def operations(kind: Kind, *actions: tuple[str, str]) -> Manifest:
    """By HTTP method; an action is the method and Kubernetes' name of it."""
    return {method: build_operation(kind, method, action) for method, action in actions}


def build_operation(kind: Kind, method: str, action: str) -> Manifest:
    operation: Manifest = {
        "responses": OK_RESPONSE,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind.group, kind.version, kind.kind),
    }
    if method in ("post", "put", "patch"):
        operation["parameters"] = WRITE_PARAMETERS
    if method == "patch":
        media_types = PATCH_MEDIA_TYPES if kind.custom else (*PATCH_MEDIA_TYPES, STRATEGIC_MERGE_PATCH)
        content = {media_type: {"schema": {"type": "object"}} for media_type in media_types}
        operation["requestBody"] = {"content": content, "required": True}
    return operation
