"""Is an object of a built-in kind valid beyond its types? The common errors, with kube-apiserver's messages.

Not all rules of kube-apiserver are here, so an object may be accepted that a cluster rejects. Nothing is rejected that
a cluster accepts: tests/local/served/test_validation_cluster.py compares both.
"""

import re
from collections.abc import Iterator
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.kube.quantities import amount
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.scheme.unstructured import maps_in
from paddle_operator.local.apiserver.validation import field_errors
from paddle_operator.local.apiserver.validation.object import validate_dns_label, validate_labels

VALID_PORTS = range(1, 65_536)
PORT_ERROR = "must be between 1 and 65535, inclusive"
DATA_KEY_ERROR = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
DATA_KEY_PATTERN = re.compile("[-._a-zA-Z0-9]+")
MAX_DATA_BYTES = 1024 * 1024
IMMUTABLE_ERROR = "field is immutable"
IMMUTABLE_DATA_ERROR = "field is immutable when `immutable` is set"
UPDATABLE_POD_FIELDS = (
    "spec.containers[*].image",
    "spec.initContainers[*].image",
    "spec.activeDeadlineSeconds",
    "spec.terminationGracePeriodSeconds (allow it to be set to 1 if it was previously negative)",
    "spec.schedulingGates (only deletions are allowed)",
    "spec.tolerations (only additions to existing tolerations)",
)
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def validate_pod(new: Manifest, old: Manifest | None) -> list[Cause]:
    if old is None:
        return list(validate_pod_spec(new["spec"]))
    if old["spec"] == new["spec"]:  # nearly all updates of pods are of the status
        return []
    return [*validate_pod_spec(new["spec"]), *validate_pod_update(new["spec"], old["spec"])]


def validate_pod_spec(spec: Manifest) -> Iterator[Cause]:
    volumes = maps_in(spec.get("volumes"))
    yield from validate_names(volumes, "spec.volumes")
    names = {volume.get("name") for volume in volumes}
    if not spec.get("containers"):
        yield field_errors.required("spec.containers")
    seen: set[object] = set()
    for key in ("initContainers", "containers"):
        listed = maps_in(spec.get(key))
        yield from validate_names(listed, f"spec.{key}", seen)
        for index, container in enumerate(listed):
            yield from validate_container(container, f"spec.{key}[{index}]", names)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None and deadline < 1:
        yield field_errors.invalid(
            "spec.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"
        )
    yield from validate_labels(spec.get("nodeSelector"), "spec.nodeSelector")
    for key in ("hostname", "subdomain"):
        if key in spec:
            yield from validate_dns_label(f"spec.{key}", spec[key])


def validate_names(items: list[dict[str, Any]], path: str, seen: set[object] | None = None) -> Iterator[Cause]:
    """Names must be unique DNS labels; the schema requires them to be set."""
    seen = set() if seen is None else seen
    for index, item in enumerate(items):
        name = item.get("name")
        if not name:
            continue
        yield from validate_dns_label(f"{path}[{index}].name", name)
        if name in seen:
            yield field_errors.duplicate(f"{path}[{index}].name", name)
        seen.add(name)


def validate_container(container: Manifest, path: str, volumes: set[object]) -> Iterator[Cause]:
    if not container.get("image"):
        yield field_errors.required(f"{path}.image")
    for index, port in enumerate(maps_in(container.get("ports"))):
        yield from validate_container_port(port, f"{path}.ports[{index}]")
    mounted = set()
    for index, mount in enumerate(maps_in(container.get("volumeMounts"))):
        if mount.get("name") not in volumes:
            yield field_errors.not_found(f"{path}.volumeMounts[{index}].name", mount.get("name", ""))
        if mount.get("mountPath") in mounted:
            yield field_errors.invalid(f"{path}.volumeMounts[{index}].mountPath", mount["mountPath"], "must be unique")
        mounted.add(mount.get("mountPath"))
    for index, variable in enumerate(maps_in(container.get("env"))):
        if variable.get("value") and "valueFrom" in variable:
            detail = "may not be specified when `value` is not empty"
            yield field_errors.invalid(f"{path}.env[{index}].valueFrom", "", detail)
    yield from validate_resources(container.get("resources", {}), f"{path}.resources")


def validate_container_port(port: Manifest, path: str) -> Iterator[Cause]:
    number = port.get("containerPort")
    if not number:
        yield field_errors.required(f"{path}.containerPort")
    elif number not in VALID_PORTS:
        yield field_errors.invalid(f"{path}.containerPort", number, PORT_ERROR)
    if (number := port.get("hostPort", 0)) and number not in VALID_PORTS:
        yield field_errors.invalid(f"{path}.hostPort", number, PORT_ERROR)


def validate_resources(resources: Manifest, path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for kind, listed in (("limits", limits), ("requests", requests)):
        for name, value in listed.items():
            if amount(value) < 0:
                yield field_errors.invalid(f"{path}.{kind}[{name}]", value, "must be greater than or equal to 0")
    for name, value in requests.items():
        if name in limits and amount(value) > amount(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield field_errors.invalid(f"{path}.requests", value, detail)


def validate_pod_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    """Only images, the deadline and a few other fields of a pod's spec may change."""
    for key in ("containers", "initContainers"):
        if len(new.get(key, ())) != len(old.get(key, ())):
            yield field_errors.forbidden(f"spec.{key}", "pod updates may not add or remove containers")
            return
    yield from validate_deadline_update(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    fixed_new, fixed_old = immutable_pod_fields(new), immutable_pod_fields(old)
    if fixed_new != fixed_old:
        changed = sorted(key for key in new.keys() | old.keys() if fixed_new.get(key) != fixed_old.get(key))
        updatable = ",".join(f"`{field}`" for field in UPDATABLE_POD_FIELDS)
        detail = f"pod updates may not change fields other than {updatable}"
        yield field_errors.forbidden("spec", f"{detail}: {', '.join(f'spec.{key}' for key in changed)} would change")


def validate_deadline_update(new: int | None, old: int | None) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            yield field_errors.invalid(path, None, "must not update from a positive integer to nil value")
    elif new < 0:
        yield field_errors.invalid(path, new, "must be between 0 and 2147483647, inclusive")
    elif old is not None and old < new:
        yield field_errors.invalid(path, new, "must be less than or equal to previous value")


def immutable_pod_fields(spec: Manifest) -> Manifest:
    """The part of a pod's spec that may not change."""
    fields = {key: spec[key] for key in spec if key not in ("activeDeadlineSeconds", "schedulingGates", "tolerations")}
    for key in ("containers", "initContainers"):
        if key in fields:
            fields[key] = [container | {"image": ""} for container in fields[key]]
    return fields


def validate_service(new: Manifest, old: Manifest | None) -> list[Cause]:
    return [*validate_service_spec(new["spec"]), *(validate_service_update(new["spec"], old["spec"]) if old else ())]


def validate_service_spec(spec: Manifest) -> Iterator[Cause]:
    ports = maps_in(spec.get("ports"))
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield field_errors.required("spec.ports")
    if spec.get("type") == "ExternalName" and not spec.get("externalName"):
        yield field_errors.required("spec.externalName")
    names: set[object] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        if len(ports) > 1 and not port.get("name"):
            yield field_errors.required(f"{path}.name")
        if port.get("name") in names:
            yield field_errors.duplicate(f"{path}.name", port["name"])
        names |= {port["name"]} if port.get("name") else set()
        if port.get("port") not in VALID_PORTS:
            yield field_errors.invalid(f"{path}.port", port.get("port"), PORT_ERROR)
    yield from validate_labels(spec.get("selector"), "spec.selector")


def validate_service_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    if new.get("type") == old.get("type") and old.get("clusterIP") and new.get("clusterIP") != old["clusterIP"]:
        yield field_errors.invalid("spec.clusterIPs[0]", [new.get("clusterIP", "")], "may not change once set")


def validate_config_map(new: Manifest, old: Manifest | None) -> list[Cause]:
    size = 0
    errors = []
    for field in ("data", "binaryData"):
        for key, value in new.get(field, {}).items():
            size += len(value or "")  # null is stored as an empty string
            if not DATA_KEY_PATTERN.fullmatch(key):
                errors.append(field_errors.invalid(f"{field}[{key}]", key, DATA_KEY_ERROR))
    if size > MAX_DATA_BYTES:
        errors.append(field_errors.too_long("", MAX_DATA_BYTES))
    return errors + validate_immutable_data(new, old, "data", "binaryData")


def validate_secret(new: Manifest, old: Manifest | None) -> list[Cause]:
    data = new.get("data", {})
    errors = [
        field_errors.invalid(f"data[{key}]", key, DATA_KEY_ERROR) for key in data if not DATA_KEY_PATTERN.fullmatch(key)
    ]
    if sum(len(value) * 3 // 4 for value in data.values()) > MAX_DATA_BYTES:
        errors.append(field_errors.too_long("data", MAX_DATA_BYTES))
    if old and new.get("type") != old.get("type"):
        errors.append(field_errors.invalid("type", new.get("type"), IMMUTABLE_ERROR))
    return errors + validate_immutable_data(new, old, "data")


def validate_immutable_data(new: Manifest, old: Manifest | None, *fields: str) -> list[Cause]:
    if not old or not old.get("immutable"):
        return []
    changed = [field for field in fields if new.get(field) != old.get(field)]
    if not new.get("immutable"):
        changed.insert(0, "immutable")
    return [field_errors.forbidden(field, IMMUTABLE_DATA_ERROR) for field in changed]


def validate_persistent_volume_claim(new: Manifest, old: Manifest | None) -> list[Cause]:
    spec = new["spec"]
    errors = list(validate_access_modes(spec, "at least 1 access mode is required"))
    if "storage" not in spec["resources"].get("requests", {}):
        errors.append(field_errors.required("spec.resources[storage]"))
    if old and immutable_claim_fields(spec, old["spec"]) != immutable_claim_fields(old["spec"], old["spec"]):
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        errors.append(field_errors.forbidden("spec", detail))
    return errors


def immutable_claim_fields(spec: Manifest, old: Manifest) -> Manifest:
    """The part of a claim's spec that may not change; the volume name may be set once, when it is bound."""
    mutable = ("resources", "volumeAttributesClassName", *(() if old.get("volumeName") else ("volumeName",)))
    return {key: value for key, value in spec.items() if key not in mutable}


def validate_persistent_volume(new: Manifest, _old: Manifest | None) -> list[Cause]:
    spec = new["spec"]
    errors = list(validate_access_modes(spec, ""))
    if "storage" not in spec.get("capacity", {}):
        errors.append(field_errors.required("spec.capacity"))
    return errors


def validate_access_modes(spec: Manifest, detail: str) -> Iterator[Cause]:
    if not spec.get("accessModes"):
        yield field_errors.required("spec.accessModes", detail)
    for mode in spec.get("accessModes", ()):
        if mode not in ACCESS_MODES:
            yield field_errors.not_supported("spec.accessModes", mode, ACCESS_MODES)


def validate_lease(new: Manifest, _old: Manifest | None) -> list[Cause]:
    spec = new["spec"]
    errors = []
    if spec.get("leaseDurationSeconds", 1) <= 0:
        detail = "must be greater than 0"
        errors.append(field_errors.invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], detail))
    if spec.get("leaseTransitions", 0) < 0:
        detail = "must be greater than or equal to 0"
        errors.append(field_errors.invalid("spec.leaseTransitions", spec["leaseTransitions"], detail))
    return errors
