"""What are the schemas of Kubernetes' own kinds? They are read from the data files beside this module on first use.

tools/kubernetes_schemas.py writes the files from a real API server's OpenAPI. This module adds what only Go code
defines: which defaults are set and which zero values are stored.
"""

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from paddle_operator.local.apiserver.scheme.kind import Schema

CORE = "io.k8s.api.core.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META = META + "ObjectMeta"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"

# Schema keys of this API server, besides those of OpenAPI.
DEFINITION = "x-definition"  # the name of the definition that was resolved
STORES_ZERO = "x-zero-counts"  # false, 0 and "" are stored: a pointer in Go
NULL_IF_UNSET = "x-shown-as-null"  # a time that is null if unset: no pointer in Go

# From pkg/apis/core/v1/defaults.go: defaults that depend on no other field. The others are in defaulting.py.
DEFAULTS: dict[str, dict[str, Any]] = {
    CORE + "ConfigMapVolumeSource": {"defaultMode": 0o644},
    CORE + "Container": {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"},
    CORE + "DownwardAPIVolumeSource": {"defaultMode": 0o644},
    CORE + "HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    CORE + "HostPathVolumeSource": {"type": ""},
    CORE + "NamespaceStatus": {"phase": "Active"},
    CORE + "ObjectFieldSelector": {"apiVersion": "v1"},
    CORE + "PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    CORE + "PersistentVolumeClaimStatus": {"phase": "Pending"},
    CORE + "PersistentVolumeSpec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
    CORE + "PersistentVolumeStatus": {"phase": "Pending"},
    CORE + "PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",  # this and priority: set by an admission plugin
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
    },
    CORE + "Probe": {"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
    CORE + "ProjectedVolumeSource": {"defaultMode": 0o644},
    CORE + "ResourceFieldSelector": {"divisor": "0"},
    CORE + "Secret": {"type": "Opaque"},
    CORE + "SecretVolumeSource": {"defaultMode": 0o644},
    CORE + "ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    CORE + "ServiceSpec": {"sessionAffinity": "None", "type": "ClusterIP"},
}
# Enums that Kubernetes lists in another order in its error messages than in OpenAPI.
ENUM_ORDER: dict[str, dict[str, list[str]]] = {CORE + "PodSpec": {"restartPolicy": ["Always", "OnFailure", "Never"]}}
# Times that are no pointers in Go, so they are null if unset.
NULLABLE_TIMES: dict[str, tuple[str, ...]] = {
    CORE + "ContainerStateRunning": ("startedAt",),
    CORE + "ContainerStateTerminated": ("finishedAt", "startedAt"),
    CORE + "Event": ("eventTime", "firstTimestamp", "lastTimestamp"),
    CORE + "EventSeries": ("lastObservedTime",),
    CORE + "NodeCondition": ("lastHeartbeatTime", "lastTransitionTime"),
    CORE + "PersistentVolumeClaimCondition": ("lastProbeTime", "lastTransitionTime"),
    CORE + "PodCondition": ("lastProbeTime", "lastTransitionTime"),
    "io.k8s.api.events.v1.Event": ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime"),
    "io.k8s.api.events.v1.EventSeries": ("lastObservedTime",),
}


class OpenAPIData(msgspec.Struct, frozen=True):
    version: dict[str, str]
    definitions: dict[str, Schema]
    pointers: dict[str, list[str]]


@cache
def openapi_data() -> OpenAPIData:
    return msgspec.json.decode(read_data_file("kubernetes_schemas.json.gz"), type=OpenAPIData)


def descriptions() -> dict[str, dict[str, str]]:
    """By definition and field; the definition's own has an empty field name. Not cached, since it is rarely needed."""
    return msgspec.json.decode(read_data_file("kubernetes_descriptions.json.gz"), type=dict[str, dict[str, str]])


def read_data_file(name: str) -> bytes:
    return gzip.decompress(Path(__file__).with_name(name).read_bytes())


@cache
def resolved_schema(definition: str) -> Schema:
    """A definition with all references resolved. Shared between its users: do not modify it."""
    schema = dict(openapi_data().definitions[definition])
    schema[DEFINITION] = definition
    if "properties" in schema:
        pointers = openapi_data().pointers.get(definition, ())
        schema["properties"] = {name: resolve_references(field) for name, field in schema["properties"].items()}
        for name in pointers:
            schema["properties"][name] = schema["properties"][name] | {STORES_ZERO: True}
        for name in NULLABLE_TIMES.get(definition, ()):
            schema["properties"][name] = schema["properties"][name] | {NULL_IF_UNSET: True}
        for name, values in ENUM_ORDER.get(definition, {}).items():
            schema["properties"][name] = schema["properties"][name] | {"enum": values}
        for name, default in DEFAULTS.get(definition, {}).items():
            schema["properties"][name] = schema["properties"][name] | {"default": default}
    return schema


def resolve_references(schema: Schema) -> Schema:
    for target in (schema, *schema.get("allOf", ())):
        if "$ref" in target:
            siblings = {key: value for key, value in schema.items() if key not in ("allOf", "$ref")}
            return resolved_schema(target["$ref"].rpartition("/")[2]) | siblings
    resolved = dict(schema)
    for key in ("items", "additionalProperties"):
        if key in resolved:
            resolved[key] = resolve_references(resolved[key])
    return resolved
