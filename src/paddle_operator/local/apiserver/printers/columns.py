"""The columns of `kubectl get` for the built-in kinds, with the cells that the real server's printers give them."""

from datetime import datetime
from typing import Any

from paddle_operator.local.apiserver.printers.ages import age
from paddle_operator.local.apiserver.scheme.defaulting import maps
from paddle_operator.local.apiserver.scheme.kind import Column, Manifest

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"
ROLE_LABEL = "node-role.kubernetes.io/"
MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def text(*path: str, default: str = "") -> Any:
    """A cell with the text at a path."""

    def of(item: Manifest, _now: datetime) -> object:
        value: Any = item
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value or default

    return of


def age_at(*path: str) -> Any:
    def of(item: Manifest, now: datetime) -> str:
        return age(str(text(*path)(item, now)), now)

    return of


NAME = Column("Name", "string", text("metadata", "name"))
AGE = Column("Age", "string", age_at("metadata", "creationTimestamp"))


def service_address(item: Manifest, _now: datetime) -> str:
    return str(next(iter(item["spec"].get("clusterIPs") or ()), NONE))


def external_address(item: Manifest, _now: datetime) -> str:
    spec = item["spec"]
    addresses = [str(each) for each in spec.get("externalIPs", ())]
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(addresses) or NONE
        case "LoadBalancer":
            given = maps(item.get("status", {}).get("loadBalancer", {}).get("ingress"))
            return (
                ",".join([*(str(each.get("ip") or each.get("hostname")) for each in given), *addresses]) or "<pending>"
            )
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def service_ports(item: Manifest, _now: datetime) -> str:
    ports = maps(item["spec"].get("ports"))
    return ",".join(f"{one['port']}{node_port(one)}/{one.get('protocol', 'TCP')}" for one in ports) or NONE


def node_port(port: Manifest) -> str:
    return f":{port['nodePort']}" if port.get("nodePort") else ""


def selector(item: Manifest, _now: datetime) -> str:
    labels = item["spec"].get("selector") or {}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or NONE


def size_of(*bags: str) -> Any:
    return lambda item, _now: sum(len(item.get(bag) or {}) for bag in bags)


def node_status(item: Manifest, _now: datetime) -> str:
    conditions = {each["type"]: each.get("status") for each in maps(item.get("status", {}).get("conditions"))}
    ready = conditions.get("Ready")
    status = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if item.get("spec", {}).get("unschedulable") else status


def node_roles(item: Manifest, _now: datetime) -> str:
    labels = item["metadata"].get("labels") or {}
    roles = {key.removeprefix(ROLE_LABEL) for key in labels if key.startswith(ROLE_LABEL)}
    return ",".join(sorted((roles | {labels.get("kubernetes.io/role", "")}) - {""})) or NONE


def node_address(kind: str) -> Any:
    def of(item: Manifest, _now: datetime) -> str:
        addresses = maps(item.get("status", {}).get("addresses"))
        return next((str(each["address"]) for each in addresses if each.get("type") == kind), NONE)

    return of


def kernel(item: Manifest, now: datetime) -> str:
    version = text("status", "nodeInfo", "kernelVersion", default=UNKNOWN)(item, now)
    architecture = text("status", "nodeInfo", "architecture")(item, now)
    return f"{version} ({architecture})" if architecture else str(version)


def phase(item: Manifest, _now: datetime) -> str:
    deleted = item["metadata"].get("deletionTimestamp")
    return "Terminating" if deleted else str(item.get("status", {}).get("phase", ""))


def modes(listed: object) -> str:
    given = listed if isinstance(listed, list) else []
    return ",".join(short for mode, short in MODES.items() if mode in given)


def volume_claim(item: Manifest, _now: datetime) -> str:
    reference = item["spec"].get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def claim_capacity(item: Manifest, _now: datetime) -> str:
    if not item["spec"].get("volumeName"):
        return ""
    return str(item.get("status", {}).get("capacity", {}).get("storage", "0"))


def claim_modes(item: Manifest, _now: datetime) -> str:
    return modes(item.get("status", {}).get("accessModes")) if item["spec"].get("volumeName") else ""


# Events: both APIs are printed alike, though their fields have other names.


def first_seen(item: Manifest, now: datetime) -> str:
    return age(item.get("firstTimestamp") or item.get("deprecatedFirstTimestamp") or item.get("eventTime"), now)


def last_seen(item: Manifest, now: datetime) -> str:
    if series := item.get("series"):
        return age(series.get("lastObservedTime"), now)
    last = item.get("lastTimestamp") or item.get("deprecatedLastTimestamp")
    return age(last, now) if last else first_seen(item, now)


def involved(item: Manifest) -> Manifest:
    return item.get("involvedObject") or item.get("regarding") or {}


def event_object(item: Manifest, _now: datetime) -> str:
    about = involved(item)
    kind = str(about.get("kind", "")).lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def event_source(item: Manifest, _now: datetime) -> str:
    source = item.get("source") or item.get("deprecatedSource") or {}
    component = source.get("component") or item.get("reportingComponent") or item.get("reportingController") or ""
    instance = source.get("host") or item.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else str(component)


def event_message(item: Manifest, _now: datetime) -> str:
    return str(item.get("message") or item.get("note") or "").strip()


def event_count(item: Manifest, _now: datetime) -> int:
    series = item.get("series") or {}
    return int(series.get("count") or item.get("count") or item.get("deprecatedCount") or 1)


EVENT = (
    Column("Last Seen", "string", last_seen),
    Column("Type", "string", text("type")),
    Column("Reason", "string", text("reason")),
    Column("Object", "string", event_object),
    Column("Subobject", "string", lambda item, _now: involved(item).get("fieldPath", ""), wide=True),
    Column("Source", "string", event_source, wide=True),
    Column("Message", "string", event_message),
    Column("First Seen", "string", first_seen, wide=True),
    Column("Count", "string", event_count, wide=True),
    Column("Name", "string", text("metadata", "name"), wide=True),
)
SERVICE = (
    NAME,
    Column("Type", "string", text("spec", "type")),
    Column("Cluster-IP", "string", service_address),
    Column("External-IP", "string", external_address),
    Column("Port(s)", "string", service_ports),
    AGE,
    Column("Selector", "string", selector, wide=True),
)
CONFIG_MAP = (NAME, Column("Data", "string", size_of("data", "binaryData")), AGE)
SECRET = (NAME, Column("Type", "string", text("type")), Column("Data", "string", size_of("data")), AGE)
NAMESPACE = (NAME, Column("Status", "string", text("status", "phase")), AGE)
LEASE = (NAME, Column("Holder", "string", text("spec", "holderIdentity")), AGE)
NODE = (
    NAME,
    Column("Status", "string", node_status),
    Column("Roles", "string", node_roles),
    AGE,
    Column("Version", "string", text("status", "nodeInfo", "kubeletVersion")),
    Column("Internal-IP", "string", node_address("InternalIP"), wide=True),
    Column("External-IP", "string", node_address("ExternalIP"), wide=True),
    Column("OS-Image", "string", text("status", "nodeInfo", "osImage", default=UNKNOWN), wide=True),
    Column("Kernel-Version", "string", kernel, wide=True),
    Column(
        "Container-Runtime", "string", text("status", "nodeInfo", "containerRuntimeVersion", default=UNKNOWN), wide=True
    ),
)
VOLUME_MODE = Column("VolumeMode", "string", text("spec", "volumeMode", default=UNSET), wide=True)
ATTRIBUTES_CLASS = Column("VolumeAttributesClass", "string", text("spec", "volumeAttributesClassName", default=UNSET))
STORAGE_CLASS = Column("StorageClass", "string", text("spec", "storageClassName"))
PERSISTENT_VOLUME = (
    NAME,
    Column("Capacity", "string", text("spec", "capacity", "storage", default="0")),
    Column("Access Modes", "string", lambda item, _now: modes(item["spec"].get("accessModes"))),
    Column("Reclaim Policy", "string", text("spec", "persistentVolumeReclaimPolicy")),
    Column("Status", "string", phase),
    Column("Claim", "string", volume_claim),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    Column("Reason", "string", text("status", "reason")),
    AGE,
    VOLUME_MODE,
)
PERSISTENT_VOLUME_CLAIM = (
    NAME,
    Column("Status", "string", phase),
    Column("Volume", "string", text("spec", "volumeName")),
    Column("Capacity", "string", claim_capacity),
    Column("Access Modes", "string", claim_modes),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    AGE,
    VOLUME_MODE,
)
