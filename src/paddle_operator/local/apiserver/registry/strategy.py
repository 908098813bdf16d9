"""What does the API server set on create and update beyond the schema? kube-apiserver's REST strategies."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.kube.quantities import amount
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.scheme.unstructured import nested_map
from paddle_operator.local.apiserver.storage.sqlite import ObjectTable
from paddle_operator.local.apiserver.validation import field_errors

PrepareForCreate = Callable[[Manifest, ObjectTable], None]
"""Modifies a new object; takes the table of its kind."""

PrepareForUpdate = Callable[[Manifest, Manifest], None]
"""Modifies the new object: copies fields from the old one that clients may not change."""


def _unchanged_on_create(_new: Manifest, _table: ObjectTable) -> None: ...


def _unchanged_on_update(_new: Manifest, _old: Manifest) -> None: ...


def _always_valid(_new: Manifest) -> list[Cause]:
    return []


@dataclass(frozen=True)
class Strategy:
    """The names are those of the interfaces in k8s.io/apiserver/pkg/registry/rest."""

    prepare_for_create: PrepareForCreate = _unchanged_on_create
    prepare_for_update: PrepareForUpdate = _unchanged_on_update
    validate: Callable[[Manifest], list[Cause]] = _always_valid
    allow_unconditional_update: bool = True  # a PUT may omit the resourceVersion
    allow_create_on_update: bool = False
    return_deleted_object: bool = False  # the response to a deletion is the object instead of a Status
    tracks_generation: bool = False


# Pods


def _qos_class(spec: Manifest) -> str:
    """Guaranteed if every container's requests equal its limits, BestEffort if none has either."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    has_resources: set[bool] = set()
    guaranteed = True
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            has_resources.add(bool(_quantity(requests.get(name)) or _quantity(limits.get(name))))
            limit = _quantity(limits.get(name))
            guaranteed &= bool(limit) and _quantity(requests.get(name, limits.get(name))) == limit
    if True not in has_resources:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _quantity(written: Any) -> Any:
    return amount(str(written)) if written is not None else 0


def _create_pod(pod: Manifest, _table: ObjectTable) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(pod.get("spec") or {})}


def _update_pod(pod: Manifest, old: Manifest) -> None:
    """Keep the QoS class, which a kubelet does not report, and keep podIP and podIPs consistent."""
    status = dict(nested_map(pod, "status"))
    if qos_class := (old.get("status") or {}).get("qosClass"):
        status["qosClass"] = qos_class
    address, addresses = status.get("podIP"), status.get("podIPs") or []
    first = addresses[0] if isinstance(addresses, list) and addresses else None
    if address and first != {"ip": address} and isinstance(addresses, list):
        status["podIPs"] = [{"ip": address}]
    elif isinstance(first, dict) and not address:
        status["podIP"] = first.get("ip", "")
    if status:
        pod["status"] = status


# Services


def _create_service(service: Manifest, services: ObjectTable) -> None:
    spec = service.setdefault("spec", {})
    service["status"] = {"loadBalancer": {}}
    if spec.get("type") == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(services)
    _set_address_fields(spec)


def _set_address_fields(spec: Manifest) -> None:
    spec["clusterIPs"] = [spec["clusterIP"]]
    dual_stack = spec["clusterIP"] == "None" and not spec.get("selector")  # the user provides the endpoints
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if dual_stack else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if dual_stack else "SingleStack")
    spec.setdefault("internalTrafficPolicy", "Cluster")


def _free_address(services: ObjectTable) -> str:
    """From the usual range of clusters. Nothing listens there: names resolve to pods."""
    used = {record.fields["spec.clusterIP"] for record in services}
    while True:
        address = f"10.96.{random.randrange(256)}.{random.randrange(1, 255)}"  # noqa: S311
        if address not in used:
            return address


def _update_service(new: Manifest, old: Manifest) -> None:
    spec, old_spec = nested_map(new, "spec"), old.get("spec") or {}
    if spec.get("type") != "ExternalName" and old_spec.get("clusterIP") and not spec.get("clusterIP"):
        spec["clusterIP"] = old_spec["clusterIP"]
        _set_address_fields(spec)


def _validate_service(service: Manifest) -> list[Cause]:
    service_type = (service.get("spec") or {}).get("type")
    if service_type in ("NodePort", "LoadBalancer"):
        return [
            field_errors.invalid(
                "spec.type",
                service_type,
                "the local cluster has no node ports and no load balancers: omit spec.type; every pod's address is "
                "reachable on this machine",
            )
        ]
    return []


# Namespaces, volumes


def _create_namespace(namespace: Manifest, _table: ObjectTable) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = (metadata.get("labels") or {}) | {"kubernetes.io/metadata.name": metadata["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _update_namespace(new: Manifest, old: Manifest) -> None:
    metadata = new["metadata"]
    metadata["labels"] = nested_map(metadata, "labels") | {"kubernetes.io/metadata.name": metadata["name"]}
    new["spec"] = old.get("spec") or {}


def _create_volume_or_claim(manifest: Manifest, _table: ObjectTable) -> None:
    manifest["status"] = {"phase": "Pending"}


def _drop_status(new: Manifest, _table: ObjectTable) -> None:
    new.pop("status", None)


_CUSTOM = Strategy(allow_unconditional_update=False, tracks_generation=True)
_CUSTOM_WITH_STATUS = Strategy(_drop_status, allow_unconditional_update=False, tracks_generation=True)
_DEFAULT = Strategy()
_BUILT_IN: dict[tuple[str, str], Strategy] = {
    ("", "pods"): Strategy(_create_pod, _update_pod, return_deleted_object=True, tracks_generation=True),
    ("", "services"): Strategy(
        _create_service,
        _update_service,
        _validate_service,
        allow_create_on_update=True,
        return_deleted_object=True,
    ),
    ("", "namespaces"): Strategy(_create_namespace, _update_namespace),
    ("", "persistentvolumes"): Strategy(_create_volume_or_claim, return_deleted_object=True),
    ("", "persistentvolumeclaims"): Strategy(_create_volume_or_claim, return_deleted_object=True),
    ("", "serviceaccounts"): Strategy(return_deleted_object=True),
    ("", "events"): Strategy(allow_create_on_update=True),
    ("events.k8s.io", "events"): Strategy(allow_create_on_update=True),
    ("coordination.k8s.io", "leases"): Strategy(allow_unconditional_update=False, allow_create_on_update=True),
}


def strategy_of(kind: Kind) -> Strategy:
    if kind.custom:
        return _CUSTOM_WITH_STATUS if kind.has_status else _CUSTOM
    return _BUILT_IN.get((kind.group, kind.plural), _DEFAULT)
