"""What else happens when an object is made or changed, beyond its schema: what kube-apiserver decides itself."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.kube.quantities import amount
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.storage.sqlite import Table
from paddle_operator.local.apiserver.validation import causes

MakeReady = Callable[[Manifest, Table], None]
"""Told a new object, which it may change, and what there is of its kind."""

BringAlong = Callable[[Manifest, Manifest], None]
"""Told the new and the old state of an object: takes over into the new what nobody may change."""


def _nothing_new(_new: Manifest, _table: Table) -> None: ...


def _nothing_old(_new: Manifest, _old: Manifest) -> None: ...


def _no_problem(_new: Manifest) -> list[Cause]:
    return []


@dataclass(frozen=True)
class Strategy:
    make_ready: MakeReady = _nothing_new
    bring_along: BringAlong = _nothing_old
    refuses: Callable[[Manifest], list[Cause]] = _no_problem
    needs_version: bool = False  # a PUT must say which version it replaces
    made_by_put: bool = False
    answers_with_deleted: bool = False  # a deletion's answer is the object and no Status
    counts_generations: bool = False


# Pods


def _qos_class(spec: Manifest) -> str:
    """Guaranteed where every container's limits are its requests, BestEffort where there is neither."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    asked: set[bool] = set()
    guaranteed = True
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked.add(bool(_quantity(requests.get(name)) or _quantity(limits.get(name))))
            limit = _quantity(limits.get(name))
            guaranteed &= bool(limit) and _quantity(requests.get(name, limits.get(name))) == limit
    if True not in asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _quantity(written: Any) -> Any:
    return amount(str(written)) if written is not None else 0


def _pod(pod: Manifest, _table: Table) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(pod.get("spec") or {})}


def _pod_status(pod: Manifest, old: Manifest) -> None:
    """A node that reports says nothing of the class, which never changes, and gives its address in one form or two."""
    status = dict(_part(pod, "status"))
    if quality := (old.get("status") or {}).get("qosClass"):
        status["qosClass"] = quality
    address, addresses = status.get("podIP"), status.get("podIPs") or []
    first = addresses[0] if isinstance(addresses, list) and addresses else None
    if address and first != {"ip": address} and isinstance(addresses, list):
        status["podIPs"] = [{"ip": address}]
    elif isinstance(first, dict) and not address:
        status["podIP"] = first.get("ip", "")
    if status:
        pod["status"] = status


def _part(manifest: Manifest, name: str) -> Manifest:
    """A part of an object whose types nobody has checked yet."""
    found = manifest.get(name)
    return found if isinstance(found, dict) else {}


# Services


def _service(service: Manifest, services: Table) -> None:
    spec = service.setdefault("spec", {})
    service["status"] = {"loadBalancer": {}}
    if spec.get("type") == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(services)
    _address_fields(spec)


def _address_fields(spec: Manifest) -> None:
    spec["clusterIPs"] = [spec["clusterIP"]]
    both = spec["clusterIP"] == "None" and not spec.get("selector")  # whose endpoints nobody but the user knows
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")
    spec.setdefault("internalTrafficPolicy", "Cluster")


def _free_address(services: Table) -> str:
    """Of the range that clusters usually have. Nothing listens there: names lead to pods."""
    taken = {record.fields["spec.clusterIP"] for record in services}
    while True:
        address = f"10.96.{random.randrange(256)}.{random.randrange(1, 255)}"  # noqa: S311
        if address not in taken:
            return address


def _service_again(new: Manifest, old: Manifest) -> None:
    spec, before = _part(new, "spec"), old.get("spec") or {}
    if spec.get("type") != "ExternalName" and before.get("clusterIP") and not spec.get("clusterIP"):
        spec["clusterIP"] = before["clusterIP"]
        _address_fields(spec)


def _service_problems(service: Manifest) -> list[Cause]:
    kind = (service.get("spec") or {}).get("type")
    if kind in ("NodePort", "LoadBalancer"):
        return [
            causes.invalid(
                "spec.type",
                kind,
                "the local cluster has no ports of nodes and no load balancers: leave it out, since every pod's "
                "address can be reached on this machine",
            )
        ]
    return []


# Namespaces, volumes


def _namespace(namespace: Manifest, _table: Table) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = (metadata.get("labels") or {}) | {"kubernetes.io/metadata.name": metadata["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _namespace_again(new: Manifest, old: Manifest) -> None:
    metadata = new["metadata"]
    metadata["labels"] = _part(metadata, "labels") | {"kubernetes.io/metadata.name": metadata["name"]}
    new["spec"] = old.get("spec") or {}


def _unbound(claim: Manifest, _table: Table) -> None:
    claim["status"] = {"phase": "Pending"}


def _custom(new: Manifest, _table: Table) -> None:
    new.pop("status", None)


_CUSTOM = Strategy(needs_version=True, counts_generations=True)
_CUSTOM_WITH_STATUS = Strategy(make_ready=_custom, needs_version=True, counts_generations=True)
_PLAIN = Strategy()
_BUILT_IN: dict[tuple[str, str], Strategy] = {
    ("", "pods"): Strategy(_pod, _pod_status, answers_with_deleted=True, counts_generations=True),
    ("", "services"): Strategy(
        _service, _service_again, _service_problems, made_by_put=True, answers_with_deleted=True
    ),
    ("", "namespaces"): Strategy(_namespace, _namespace_again),
    ("", "persistentvolumes"): Strategy(_unbound, answers_with_deleted=True),
    ("", "persistentvolumeclaims"): Strategy(_unbound, answers_with_deleted=True),
    ("", "serviceaccounts"): Strategy(answers_with_deleted=True),
    ("", "events"): Strategy(made_by_put=True),
    ("events.k8s.io", "events"): Strategy(made_by_put=True),
    ("coordination.k8s.io", "leases"): Strategy(needs_version=True, made_by_put=True),
}


def strategy_of(kind: Kind) -> Strategy:
    if kind.custom:
        return _CUSTOM_WITH_STATUS if kind.has_status else _CUSTOM
    return _BUILT_IN.get((kind.group, kind.plural), _PLAIN)
