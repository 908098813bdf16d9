"""What is wrong with a built-in object, beyond its types: the mistakes that people make, in Kubernetes' words.

Not everything that kube-apiserver checks is here. What is missing lets an object in that a cluster would refuse;
nothing here refuses what a cluster takes (tests/local/test_checks_cluster.py asks both).
"""

import re
from collections.abc import Iterator
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.kube.quantities import amount
from paddle_operator.local.apiserver.scheme.defaulting import maps
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.validation import causes
from paddle_operator.local.apiserver.validation.object_meta import label_name_problems, label_problems

PORTS = range(1, 65_536)
NOT_A_PORT = "must be between 1 and 65535, inclusive"
NOT_A_DATA_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
DATA_KEY = re.compile("[-._a-zA-Z0-9]+")
LARGEST_DATA = 1024 * 1024
IMMUTABLE = "field is immutable"
IMMUTABLE_DATA = "field is immutable when `immutable` is set"
UPDATABLE = (
    "spec.containers[*].image",
    "spec.initContainers[*].image",
    "spec.activeDeadlineSeconds",
    "spec.terminationGracePeriodSeconds (allow it to be set to 1 if it was previously negative)",
    "spec.schedulingGates (only deletions are allowed)",
    "spec.tolerations (only additions to existing tolerations)",
)
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def pod(new: Manifest, old: Manifest | None) -> list[Cause]:
    if old is None:
        return list(pod_spec(new["spec"]))
    if old["spec"] == new["spec"]:  # a status, as nearly always
        return []
    return [*pod_spec(new["spec"]), *pod_update(new["spec"], old["spec"])]


def pod_spec(spec: Manifest) -> Iterator[Cause]:
    volumes = maps(spec.get("volumes"))
    yield from named_once(volumes, "spec.volumes")
    names = {volume.get("name") for volume in volumes}
    if not spec.get("containers"):
        yield causes.required("spec.containers")
    seen: set[object] = set()
    for key in ("initContainers", "containers"):
        listed = maps(spec.get(key))
        yield from named_once(listed, f"spec.{key}", seen)
        for index, container in enumerate(listed):
            yield from container_problems(container, f"spec.{key}[{index}]", names)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None and deadline < 1:
        yield causes.invalid("spec.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    yield from label_problems(spec.get("nodeSelector"), "spec.nodeSelector")
    for key in ("hostname", "subdomain"):
        if key in spec:
            yield from label_name_problems(f"spec.{key}", spec[key])


def named_once(listed: list[dict[str, Any]], path: str, seen: set[object] | None = None) -> Iterator[Cause]:
    """Names that are DNS labels, and none twice; that there is one at all the schema says."""
    seen = set() if seen is None else seen
    for index, each in enumerate(listed):
        name = each.get("name")
        if not name:
            continue
        yield from label_name_problems(f"{path}[{index}].name", name)
        if name in seen:
            yield causes.duplicate(f"{path}[{index}].name", name)
        seen.add(name)


def container_problems(container: Manifest, path: str, volumes: set[object]) -> Iterator[Cause]:
    if not container.get("image"):
        yield causes.required(f"{path}.image")
    for index, port in enumerate(maps(container.get("ports"))):
        yield from port_problems(port, f"{path}.ports[{index}]")
    mounted = set()
    for index, mount in enumerate(maps(container.get("volumeMounts"))):
        if mount.get("name") not in volumes:
            yield causes.missing(f"{path}.volumeMounts[{index}].name", mount.get("name", ""))
        if mount.get("mountPath") in mounted:
            yield causes.invalid(f"{path}.volumeMounts[{index}].mountPath", mount["mountPath"], "must be unique")
        mounted.add(mount.get("mountPath"))
    for index, variable in enumerate(maps(container.get("env"))):
        if variable.get("value") and "valueFrom" in variable:
            words = "may not be specified when `value` is not empty"
            yield causes.invalid(f"{path}.env[{index}].valueFrom", "", words)
    yield from resource_problems(container.get("resources", {}), f"{path}.resources")


def port_problems(port: Manifest, path: str) -> Iterator[Cause]:
    number = port.get("containerPort")
    if not number:
        yield causes.required(f"{path}.containerPort")
    elif number not in PORTS:
        yield causes.invalid(f"{path}.containerPort", number, NOT_A_PORT)
    if (number := port.get("hostPort", 0)) and number not in PORTS:
        yield causes.invalid(f"{path}.hostPort", number, NOT_A_PORT)


def resource_problems(resources: Manifest, path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for kind, listed in (("limits", limits), ("requests", requests)):
        for name, value in listed.items():
            if amount(value) < 0:
                yield causes.invalid(f"{path}.{kind}[{name}]", value, "must be greater than or equal to 0")
    for name, value in requests.items():
        if name in limits and amount(value) > amount(limits[name]):
            words = f"must be less than or equal to {name} limit of {limits[name]}"
            yield causes.invalid(f"{path}.requests", value, words)


def pod_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    """Of a pod's spec only images, its deadline and a few other things can change."""
    for key in ("containers", "initContainers"):
        if len(new.get(key, ())) != len(old.get(key, ())):
            yield causes.forbidden(f"spec.{key}", "pod updates may not add or remove containers")
            return
    yield from deadline_update(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    if fixed(new) != fixed(old):
        changed = sorted(key for key in new.keys() | old.keys() if fixed(new).get(key) != fixed(old).get(key))
        words = f"pod updates may not change fields other than {','.join(f'`{each}`' for each in UPDATABLE)}"
        yield causes.forbidden("spec", f"{words}: {', '.join(f'spec.{key}' for key in changed)} would change")


def deadline_update(new: int | None, old: int | None) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            yield causes.invalid(path, None, "must not update from a positive integer to nil value")
    elif new < 0:
        yield causes.invalid(path, new, "must be between 0 and 2147483647, inclusive")
    elif old is not None and old < new:
        yield causes.invalid(path, new, "must be less than or equal to previous value")


def fixed(spec: Manifest) -> Manifest:
    """What of a pod's spec never changes."""
    found = {key: spec[key] for key in spec if key not in ("activeDeadlineSeconds", "schedulingGates", "tolerations")}
    for key in ("containers", "initContainers"):
        if key in found:
            found[key] = [each | {"image": ""} for each in found[key]]
    return found


def service(new: Manifest, old: Manifest | None) -> list[Cause]:
    return [*service_spec(new["spec"]), *(service_update(new["spec"], old["spec"]) if old else ())]


def service_spec(spec: Manifest) -> Iterator[Cause]:
    ports = maps(spec.get("ports"))
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield causes.required("spec.ports")
    if spec.get("type") == "ExternalName" and not spec.get("externalName"):
        yield causes.required("spec.externalName")
    names: set[object] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        if len(ports) > 1 and not port.get("name"):
            yield causes.required(f"{path}.name")
        if port.get("name") in names:
            yield causes.duplicate(f"{path}.name", port["name"])
        names |= {port["name"]} if port.get("name") else set()
        if port.get("port") not in PORTS:
            yield causes.invalid(f"{path}.port", port.get("port"), NOT_A_PORT)
    yield from label_problems(spec.get("selector"), "spec.selector")


def service_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    if new.get("type") == old.get("type") and old.get("clusterIP") and new.get("clusterIP") != old["clusterIP"]:
        yield causes.invalid("spec.clusterIPs[0]", [new.get("clusterIP", "")], "may not change once set")


def config_map(new: Manifest, old: Manifest | None) -> list[Cause]:
    size = 0
    found = []
    for bag in ("data", "binaryData"):
        for key, value in new.get(bag, {}).items():
            size += len(value or "")  # null is stored as an empty text
            if not DATA_KEY.fullmatch(key):
                found.append(causes.invalid(f"{bag}[{key}]", key, NOT_A_DATA_KEY))
    if size > LARGEST_DATA:
        found.append(causes.too_long("", LARGEST_DATA))
    return found + immutable_data(new, old, "data", "binaryData")


def secret(new: Manifest, old: Manifest | None) -> list[Cause]:
    data = new.get("data", {})
    found = [causes.invalid(f"data[{key}]", key, NOT_A_DATA_KEY) for key in data if not DATA_KEY.fullmatch(key)]
    if sum(len(value) * 3 // 4 for value in data.values()) > LARGEST_DATA:
        found.append(causes.too_long("data", LARGEST_DATA))
    if old and new.get("type") != old.get("type"):
        found.append(causes.invalid("type", new.get("type"), IMMUTABLE))
    return found + immutable_data(new, old, "data")


def immutable_data(new: Manifest, old: Manifest | None, *bags: str) -> list[Cause]:
    if not old or not old.get("immutable"):
        return []
    changed = [bag for bag in bags if new.get(bag) != old.get(bag)]
    return [
        causes.forbidden(each, IMMUTABLE_DATA) for each in (*([] if new.get("immutable") else ["immutable"]), *changed)
    ]


def claim(new: Manifest, old: Manifest | None) -> list[Cause]:
    spec = new["spec"]
    found = list(access_mode_problems(spec, "at least 1 access mode is required"))
    if "storage" not in spec["resources"].get("requests", {}):
        found.append(causes.required("spec.resources[storage]"))
    if old and claimed(spec, old["spec"]) != claimed(old["spec"], old["spec"]):
        words = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        found.append(causes.forbidden("spec", words))
    return found


def claimed(spec: Manifest, old: Manifest) -> Manifest:
    """What of a claim never changes: its volume is named once, by whoever binds it."""
    free = ("resources", "volumeAttributesClassName", *(() if old.get("volumeName") else ("volumeName",)))
    return {key: value for key, value in spec.items() if key not in free}


def volume(new: Manifest, old: Manifest | None) -> list[Cause]:  # noqa: ARG001  # a check's face
    spec = new["spec"]
    found = list(access_mode_problems(spec, ""))
    if "storage" not in spec.get("capacity", {}):
        found.append(causes.required("spec.capacity"))
    return found


def access_mode_problems(spec: Manifest, words: str) -> Iterator[Cause]:
    if not spec.get("accessModes"):
        yield causes.required("spec.accessModes", words)
    for mode in spec.get("accessModes", ()):
        if mode not in ACCESS_MODES:
            yield causes.unsupported("spec.accessModes", mode, ACCESS_MODES)


def lease(new: Manifest, _old: Manifest | None) -> list[Cause]:
    spec = new["spec"]
    found = []
    if spec.get("leaseDurationSeconds", 1) <= 0:
        words = "must be greater than 0"
        found.append(causes.invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], words))
    if spec.get("leaseTransitions", 0) < 0:
        words = "must be greater than or equal to 0"
        found.append(causes.invalid("spec.leaseTransitions", spec["leaseTransitions"], words))
    return found
