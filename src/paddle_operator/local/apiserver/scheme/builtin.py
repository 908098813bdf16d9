"""The closed list: the kinds that are built into the embedded API server, each because our operator, our command or an
everyday verb of kubectl needs it. PaddleJob is not among them: it comes from outside, through custom.py.
"""

from collections.abc import Iterable

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.printers import columns
from paddle_operator.local.apiserver.printers.pods import POD
from paddle_operator.local.apiserver.scheme import defaulting
from paddle_operator.local.apiserver.scheme.custom_resource import kind_of
from paddle_operator.local.apiserver.scheme.kind import (
    Check,
    Column,
    Fill,
    Kind,
    Manifest,
    nothing_more,
    nothing_to_fill,
)
from paddle_operator.local.apiserver.scheme.openapi_definitions import CORE, schema
from paddle_operator.local.apiserver.validation import builtin, causes


def core(
    kind: str,
    plural: str,
    short_names: Iterable[str] = (),
    *,
    shown: tuple[Column, ...],
    check: Check = nothing_more,
    fill: Fill = nothing_to_fill,
    categories: tuple[str, ...] = (),
    namespaced: bool = True,
    has_status: bool = False,
) -> Kind:
    return Kind(
        "",
        "v1",
        kind,
        plural,
        kind.lower(),
        schema(CORE + kind),
        short_names=tuple(short_names),
        columns=shown,
        check=check,
        fill=fill,
        categories=categories,
        namespaced=namespaced,
        has_status=has_status,
    )


# Which group has `kubectl get all`: as on a cluster.
ALL = ("all",)

PODS = core(
    "Pod",
    "pods",
    ["po"],
    shown=POD,
    check=builtin.pod,
    fill=defaulting.pod,
    categories=ALL,
    has_status=True,
)
SERVICES = core(
    "Service",
    "services",
    ["svc"],
    shown=columns.SERVICE,
    check=builtin.service,
    fill=defaulting.service,
    categories=ALL,
    has_status=True,
)
CONFIG_MAPS = core("ConfigMap", "configmaps", ["cm"], shown=columns.CONFIG_MAP, check=builtin.config_map)
SECRETS = core("Secret", "secrets", shown=columns.SECRET, check=builtin.secret, fill=defaulting.secret)
PERSISTENT_VOLUMES = core(
    "PersistentVolume",
    "persistentvolumes",
    ["pv"],
    shown=columns.PERSISTENT_VOLUME,
    check=builtin.volume,
    namespaced=False,
    has_status=True,
)
PERSISTENT_VOLUME_CLAIMS = core(
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    ["pvc"],
    shown=columns.PERSISTENT_VOLUME_CLAIM,
    check=builtin.claim,
    has_status=True,
)
NODES = core("Node", "nodes", ["no"], shown=columns.NODE, fill=defaulting.node, namespaced=False, has_status=True)
NAMESPACES = core("Namespace", "namespaces", ["ns"], shown=columns.NAMESPACE, namespaced=False, has_status=True)
EVENTS = core("Event", "events", ["ev"], shown=columns.EVENT)
NEW_EVENTS = Kind(
    "events.k8s.io",
    "v1",
    "Event",
    "events",
    "event",
    schema("io.k8s.api.events.v1.Event"),
    short_names=("ev",),
    columns=columns.EVENT,
)
LEASES = Kind(
    "coordination.k8s.io",
    "v1",
    "Lease",
    "leases",
    "lease",
    schema("io.k8s.api.coordination.v1.Lease"),
    columns=columns.LEASE,
    check=builtin.lease,
)

# Volcano's: whoever asks for gang scheduling makes one. Any scheduler name is served here, so it is only kept.
POD_GROUPS = kind_of(
    {
        "spec": {
            "group": "scheduling.volcano.sh",
            "names": {
                "kind": "PodGroup",
                "plural": "podgroups",
                "singular": "podgroup",
                "shortNames": ["pg", "podgroup-v1beta1"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {"name": "STATUS", "type": "string", "jsonPath": ".status.phase"},
                        {"name": "minMember", "type": "integer", "jsonPath": ".spec.minMember"},
                        {"name": "RUNNINGS", "type": "integer", "jsonPath": ".status.running"},
                        {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                        {"name": "QUEUE", "type": "string", "jsonPath": ".spec.queue", "priority": 1},
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": "Pods of which a scheduler starts a number together, or none.",
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": {
                                    "type": "object",
                                    "description": "What must be there before the first pod starts.",
                                    "properties": {
                                        "minMember": {
                                            "type": "integer",
                                            "format": "int32",
                                            "description": "The fewest pods that start together.",
                                        },
                                        "minTaskMember": {
                                            "type": "object",
                                            "description": "The fewest pods of each task.",
                                            "additionalProperties": {"type": "integer", "format": "int32"},
                                        },
                                        "minResources": {
                                            "type": "object",
                                            "description": "The fewest resources, by name.",
                                            "additionalProperties": {"x-kubernetes-int-or-string": True},
                                        },
                                        "queue": {"type": "string", "description": "The queue to wait in."},
                                        "priorityClassName": {
                                            "type": "string",
                                            "description": "How urgent it is, among those that wait.",
                                        },
                                    },
                                },
                                "status": {
                                    "type": "object",
                                    "description": "What the scheduler says of it.",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                },
                            },
                        }
                    },
                }
            ],
        }
    },
    nothing_more,
)


def no_definitions(_new: Manifest, _old: Manifest | None) -> list[Cause]:
    words = (
        "this cluster has its kinds built in and takes no definitions: leave this file out, "
        "`kubectl api-resources` shows what is there"
    )
    return [causes.forbidden("spec", words)]


# Listed, so that `kubectl apply -f crd.yaml` hears the sentence instead of "no matches for kind"; never stored.
DEFINITIONS = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
    {
        "type": "object",
        "description": "Not taken here: the kinds of this cluster are built in.",
        "x-kubernetes-preserve-unknown-fields": True,
    },
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    columns=(columns.NAME, columns.AGE),
    custom=True,
    check=no_definitions,
)

KINDS: tuple[Kind, ...] = (
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICES,
    LEASES,
    NEW_EVENTS,
    POD_GROUPS,
    DEFINITIONS,
)
