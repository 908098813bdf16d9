"""Which kinds are built into the local API server? Those that the operator, the CLI or common kubectl verbs need.

PaddleJob is not among them: it is built from its CustomResourceDefinition (custom_resource.py).
"""

from collections.abc import Iterable

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.printers import columns as printers
from paddle_operator.local.apiserver.printers.pods import POD_COLUMNS
from paddle_operator.local.apiserver.scheme import defaulting
from paddle_operator.local.apiserver.scheme.custom_resource import kind_from_crd
from paddle_operator.local.apiserver.scheme.kind import (
    Column,
    Defaulter,
    Kind,
    Manifest,
    Validator,
    accept_all,
    set_no_defaults,
)
from paddle_operator.local.apiserver.scheme.openapi_definitions import CORE, resolved_schema
from paddle_operator.local.apiserver.validation import builtin, field_errors


def core_kind(
    kind: str,
    plural: str,
    short_names: Iterable[str] = (),
    *,
    columns: tuple[Column, ...],
    validate: Validator = accept_all,
    set_defaults: Defaulter = set_no_defaults,
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
        resolved_schema(CORE + kind),
        short_names=tuple(short_names),
        columns=columns,
        validate=validate,
        set_defaults=set_defaults,
        categories=categories,
        namespaced=namespaced,
        has_status=has_status,
    )


# The category of `kubectl get all`, as on a cluster.
ALL_CATEGORY = ("all",)

POD_KIND = core_kind(
    "Pod",
    "pods",
    ["po"],
    columns=POD_COLUMNS,
    validate=builtin.validate_pod,
    set_defaults=defaulting.set_pod_defaults,
    categories=ALL_CATEGORY,
    has_status=True,
)
SERVICE_KIND = core_kind(
    "Service",
    "services",
    ["svc"],
    columns=printers.SERVICE_COLUMNS,
    validate=builtin.validate_service,
    set_defaults=defaulting.set_service_defaults,
    categories=ALL_CATEGORY,
    has_status=True,
)
CONFIG_MAP_KIND = core_kind(
    "ConfigMap", "configmaps", ["cm"], columns=printers.CONFIG_MAP_COLUMNS, validate=builtin.validate_config_map
)
SECRET_KIND = core_kind(
    "Secret",
    "secrets",
    columns=printers.SECRET_COLUMNS,
    validate=builtin.validate_secret,
    set_defaults=defaulting.set_secret_defaults,
)
PERSISTENT_VOLUME_KIND = core_kind(
    "PersistentVolume",
    "persistentvolumes",
    ["pv"],
    columns=printers.PERSISTENT_VOLUME_COLUMNS,
    validate=builtin.validate_persistent_volume,
    namespaced=False,
    has_status=True,
)
PERSISTENT_VOLUME_CLAIM_KIND = core_kind(
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    ["pvc"],
    columns=printers.PERSISTENT_VOLUME_CLAIM_COLUMNS,
    validate=builtin.validate_persistent_volume_claim,
    has_status=True,
)
NODE_KIND = core_kind(
    "Node",
    "nodes",
    ["no"],
    columns=printers.NODE_COLUMNS,
    set_defaults=defaulting.set_node_defaults,
    namespaced=False,
    has_status=True,
)
NAMESPACE_KIND = core_kind(
    "Namespace", "namespaces", ["ns"], columns=printers.NAMESPACE_COLUMNS, namespaced=False, has_status=True
)
EVENT_KIND = core_kind("Event", "events", ["ev"], columns=printers.EVENT_COLUMNS)
EVENTS_V1_KIND = Kind(
    "events.k8s.io",
    "v1",
    "Event",
    "events",
    "event",
    resolved_schema("io.k8s.api.events.v1.Event"),
    short_names=("ev",),
    columns=printers.EVENT_COLUMNS,
)
LEASE_KIND = Kind(
    "coordination.k8s.io",
    "v1",
    "Lease",
    "leases",
    "lease",
    resolved_schema("io.k8s.api.coordination.v1.Lease"),
    columns=printers.LEASE_COLUMNS,
    validate=builtin.validate_lease,
)

# Volcano's, for gang scheduling. The local scheduler accepts every scheduler name, so PodGroups are only stored.
POD_GROUP_KIND = kind_from_crd(
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
                            "description": "A group of pods that the scheduler starts together.",
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": {
                                    "type": "object",
                                    "description": "What is required before the first pod starts.",
                                    "properties": {
                                        "minMember": {
                                            "type": "integer",
                                            "format": "int32",
                                            "description": "The minimum number of pods to start.",
                                        },
                                        "minTaskMember": {
                                            "type": "object",
                                            "description": "The minimum number of pods by task.",
                                            "additionalProperties": {"type": "integer", "format": "int32"},
                                        },
                                        "minResources": {
                                            "type": "object",
                                            "description": "The minimum resources by name.",
                                            "additionalProperties": {"x-kubernetes-int-or-string": True},
                                        },
                                        "queue": {"type": "string", "description": "The queue of the group."},
                                        "priorityClassName": {
                                            "type": "string",
                                            "description": "The priority class of the group.",
                                        },
                                    },
                                },
                                "status": {
                                    "type": "object",
                                    "description": "The status that the scheduler reports.",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                },
                            },
                        }
                    },
                }
            ],
        }
    },
    accept_all,
)


def reject_definition(_new: Manifest, _old: Manifest | None) -> list[Cause]:
    detail = (
        "the local cluster has a fixed set of kinds and accepts no CustomResourceDefinition: skip this file; "
        "`kubectl api-resources` lists the kinds"
    )
    return [field_errors.forbidden("spec", detail)]


# Served so that `kubectl apply -f crd.yaml` gets this message instead of "no matches for kind"; never stored.
CRD_KIND = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
    {
        "type": "object",
        "description": "Not supported: the local cluster has a fixed set of kinds.",
        "x-kubernetes-preserve-unknown-fields": True,
    },
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    columns=(printers.NAME_COLUMN, printers.AGE_COLUMN),
    custom=True,
    validate=reject_definition,
)

BUILTIN_KINDS: tuple[Kind, ...] = (
    CONFIG_MAP_KIND,
    EVENT_KIND,
    NAMESPACE_KIND,
    NODE_KIND,
    PERSISTENT_VOLUME_CLAIM_KIND,
    PERSISTENT_VOLUME_KIND,
    POD_KIND,
    SECRET_KIND,
    SERVICE_KIND,
    LEASE_KIND,
    EVENTS_V1_KIND,
    POD_GROUP_KIND,
    CRD_KIND,
)
