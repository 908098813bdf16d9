"""What Kubernetes itself says of its kinds: the data files beside this module, read when they are first needed.

tools/kubernetes_schemas.py made them of a real API server's OpenAPI. What stands only in Go code is added here: what is
filled in by default, and which zeros are stored.
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

# Keys of ours in a schema, beside those of OpenAPI.
DEFINITION = "x-definition"  # the name of what was referred to
ZERO_COUNTS = "x-zero-counts"  # false, 0 and "" differ from nothing
SHOWN_AS_NULL = "x-shown-as-null"  # a time that is told as null where there is none

# pkg/apis/core/v1/defaults.go, as far as a default hangs on its own field alone; the rest is in defaults.py.
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
        "preemptionPolicy": "PreemptLowerPriority",  # the last two of admission: there are no priority classes here
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
# Where Kubernetes tells the values that it knows in another order than OpenAPI has them.
KNOWN_VALUES: dict[str, dict[str, list[str]]] = {CORE + "PodSpec": {"restartPolicy": ["Always", "OnFailure", "Never"]}}
# Times that are no pointers in Go.
TIMES: dict[str, tuple[str, ...]] = {
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


class Data(msgspec.Struct, frozen=True):
    version: dict[str, str]
    definitions: dict[str, Schema]
    pointers: dict[str, list[str]]


@cache
def data() -> Data:
    return msgspec.json.decode(packed("kubernetes_schemas.json.gz"), type=Data)


def descriptions() -> dict[str, dict[str, str]]:
    """By definition and field, the definition's own under the empty name. Not kept: they are rarely asked for."""
    return msgspec.json.decode(packed("kubernetes_descriptions.json.gz"), type=dict[str, dict[str, str]])


def packed(name: str) -> bytes:
    return gzip.decompress(Path(__file__).with_name(name).read_bytes())


@cache
def schema(definition: str) -> Schema:
    """A definition with every reference in its place. What many refer to is there once: change nothing in it."""
    found = dict(data().definitions[definition])
    found[DEFINITION] = definition
    if "properties" in found:
        pointers = data().pointers.get(definition, ())
        found["properties"] = {name: placed(each) for name, each in found["properties"].items()}
        for name in pointers:
            found["properties"][name] = found["properties"][name] | {ZERO_COUNTS: True}
        for name in TIMES.get(definition, ()):
            found["properties"][name] = found["properties"][name] | {SHOWN_AS_NULL: True}
        for name, values in KNOWN_VALUES.get(definition, {}).items():
            found["properties"][name] = found["properties"][name] | {"enum": values}
        for name, default in DEFAULTS.get(definition, {}).items():
            found["properties"][name] = found["properties"][name] | {"default": default}
    return found


def placed(written: Schema) -> Schema:
    for target in (written, *written.get("allOf", ())):
        if "$ref" in target:
            beside = {key: value for key, value in written.items() if key not in ("allOf", "$ref")}
            return schema(target["$ref"].rpartition("/")[2]) | beside
    found = dict(written)
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = placed(found[key])
    return found
