"""Stores the schema of a PodTemplateSpec for api/, read from the test bed's API server.

`python -m tools.pod_template_schema` writes the file; a cluster test fails if that would change it.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.assets import ensure_binaries
from testbed.control_plane import ControlPlane

Schema = dict[str, Any]

SCHEMA_FILE = Path(__file__).parent.parent / "src/paddle_operator/api/pod_template_schema.json"
DEFINITIONS = "/openapi/v3/api/v1"
TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

# The keywords that the CRD has. Without `description`: with it, the templates of three roles have 799 KiB instead of
# 154, and kubectl apply stores at most 256 KiB.
KEYWORDS = ("type", "format", "enum", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
METADATA_FIELDS = ("annotations", "creationTimestamp", "finalizers", "labels", "name", "namespace")
OMITTED_FIELDS = {"io.k8s.api.core.v1.PodSpec": ("ephemeralContainers",)}  # a new pod with one is refused anyway

NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
# A Quantity may be a number with a fraction (cpu: 0.5), which int-or-string, the usual schema, refuses. So any value is
# accepted, except other text, maps, lists and booleans.
ANY_QUANTITY: Schema = {
    "x-kubernetes-preserve-unknown-fields": True,
    "pattern": rf"^[+-]?{NUMBER}([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    "maxProperties": 0,
    "maxItems": 0,
    "not": {"enum": [{}, [], True, False]},
}


def structural_schema(definitions: Mapping[str, Schema], name: str) -> Schema:
    """A definition as a structural schema, with its references inlined."""
    if name == QUANTITY:
        return ANY_QUANTITY
    if name == INT_OR_STRING:
        return {"x-kubernetes-int-or-string": True}
    schema = definitions[name]
    if name == OBJECT_META:
        schema = schema | {"properties": {key: schema["properties"][key] for key in METADATA_FIELDS}}
    if omitted := OMITTED_FIELDS.get(name):
        schema = schema | {"properties": {k: v for k, v in schema["properties"].items() if k not in omitted}}
    return inline(definitions, schema)


def inline(definitions: Mapping[str, Schema], schema: Schema) -> Schema:
    for target in (schema, *schema.get("allOf", ())):
        if "$ref" in target:
            return structural_schema(definitions, target["$ref"].rpartition("/")[2])
    result = {key: schema[key] for key in KEYWORDS if key in schema}
    if schema.get("x-kubernetes-map-type") == "atomic":
        result["x-kubernetes-map-type"] = "atomic"
    if "properties" in schema:
        result["properties"] = {key: inline(definitions, value) for key, value in schema["properties"].items()}
    if "additionalProperties" in schema:
        result["additionalProperties"] = inline(definitions, schema["additionalProperties"])
    if "items" in schema:
        result["items"] = inline(definitions, schema["items"])
        default_keys(definitions, schema, result)
    return result


def default_keys(definitions: Mapping[str, Schema], schema: Schema, result: Schema) -> None:
    """Give the fields by which a list is keyed their defaults: a CRD must have them; no other default is needed."""
    item = definitions[schema["items"]["allOf"][0]["$ref"].rpartition("/")[2]] if "allOf" in schema["items"] else {}
    for key in schema.get("x-kubernetes-list-map-keys", ()):
        if key not in item.get("required", ()):
            result["items"]["properties"][key]["default"] = item["properties"][key]["default"]


def pod_template(openapi: Mapping[str, Any]) -> Schema:
    schema = structural_schema(openapi["components"]["schemas"], TEMPLATE)
    created_at = schema["properties"]["metadata"]["properties"]["creationTimestamp"]
    created_at["nullable"] = True  # what Go programs write there
    return schema


def as_text(schema: Schema) -> str:
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


async def fetch_schema(control_plane: ControlPlane) -> str:
    """The text of the file, from the API server."""
    return as_text(pod_template(json.loads(await control_plane.kubectl("get", "--raw", DEFINITIONS))))


def main() -> None:
    with ControlPlane.start(ensure_binaries()) as control_plane:
        SCHEMA_FILE.write_text(asyncio.run(fetch_schema(control_plane)))


if __name__ == "__main__":
    main()
