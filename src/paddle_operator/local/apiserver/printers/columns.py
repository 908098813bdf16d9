"""Which columns does `kubectl get` show of a built-in kind? The cells of kube-apiserver's printers."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from paddle_operator.local.apiserver.printers.table import format_age
from paddle_operator.local.apiserver.scheme.kind import Column, Manifest
from paddle_operator.local.apiserver.scheme.unstructured import maps_in, nested_value

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"
NODE_ROLE_PREFIX = "node-role.kubernetes.io/"
ACCESS_MODE_ABBREVIATIONS = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


Cell = Callable[[Manifest, datetime], Any]


def value_cell(*path: str, default: str = "") -> Cell:
    """A cell with the value at a path."""
    return lambda item, _now: nested_value(item, *path) or default


def age_cell(*path: str) -> Cell:
    return lambda item, now: format_age(str(nested_value(item, *path) or ""), now)


NAME_COLUMN = Column("Name", "string", value_cell("metadata", "name"))
AGE_COLUMN = Column("Age", "string", age_cell("metadata", "creationTimestamp"))


def cluster_ip(item: Manifest, _now: datetime) -> str:
    return str(next(iter(item["spec"].get("clusterIPs") or ()), NONE))


def external_ip(item: Manifest, _now: datetime) -> str:
    spec = item["spec"]
    addresses = [str(each) for each in spec.get("externalIPs", ())]
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(addresses) or NONE
        case "LoadBalancer":
            ingress = maps_in(item.get("status", {}).get("loadBalancer", {}).get("ingress"))
            return (
                ",".join([*(str(each.get("ip") or each.get("hostname")) for each in ingress), *addresses])
                or "<pending>"
            )
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def service_ports(item: Manifest, _now: datetime) -> str:
    ports = maps_in(item["spec"].get("ports"))
    return ",".join(f"{port['port']}{node_port(port)}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


def node_port(port: Manifest) -> str:
    return f":{port['nodePort']}" if port.get("nodePort") else ""


def selector(item: Manifest, _now: datetime) -> str:
    labels = item["spec"].get("selector") or {}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or NONE


def entry_count(*fields: str) -> Cell:
    return lambda item, _now: sum(len(item.get(field) or {}) for field in fields)


def node_status(item: Manifest, _now: datetime) -> str:
    conditions = {each["type"]: each.get("status") for each in maps_in(item.get("status", {}).get("conditions"))}
    ready = conditions.get("Ready")
    status = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if item.get("spec", {}).get("unschedulable") else status


def node_roles(item: Manifest, _now: datetime) -> str:
    labels = item["metadata"].get("labels") or {}
    roles = {key.removeprefix(NODE_ROLE_PREFIX) for key in labels if key.startswith(NODE_ROLE_PREFIX)}
    return ",".join(sorted((roles | {labels.get("kubernetes.io/role", "")}) - {""})) or NONE


def node_address(address_type: str) -> Cell:
    def cell(item: Manifest, _now: datetime) -> str:
        addresses = maps_in(item.get("status", {}).get("addresses"))
        return next((str(each["address"]) for each in addresses if each.get("type") == address_type), NONE)

    return cell


def kernel_version(item: Manifest, now: datetime) -> str:
    version = value_cell("status", "nodeInfo", "kernelVersion", default=UNKNOWN)(item, now)
    architecture = value_cell("status", "nodeInfo", "architecture")(item, now)
    return f"{version} ({architecture})" if architecture else str(version)


def phase(item: Manifest, _now: datetime) -> str:
    deleted = item["metadata"].get("deletionTimestamp")
    return "Terminating" if deleted else str(item.get("status", {}).get("phase", ""))


def format_access_modes(modes: object) -> str:
    listed = modes if isinstance(modes, list) else []
    return ",".join(short for mode, short in ACCESS_MODE_ABBREVIATIONS.items() if mode in listed)


def volume_claim(item: Manifest, _now: datetime) -> str:
    reference = item["spec"].get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def claim_capacity(item: Manifest, _now: datetime) -> str:
    if not item["spec"].get("volumeName"):
        return ""
    return str(item.get("status", {}).get("capacity", {}).get("storage", "0"))


def claim_access_modes(item: Manifest, _now: datetime) -> str:
    return format_access_modes(item.get("status", {}).get("accessModes")) if item["spec"].get("volumeName") else ""


# Events: both APIs are printed alike, but some fields have different names.


def first_seen(item: Manifest, now: datetime) -> str:
    return format_age(item.get("firstTimestamp") or item.get("deprecatedFirstTimestamp") or item.get("eventTime"), now)


def last_seen_age(item: Manifest, now: datetime) -> str:
    if series := item.get("series"):
        return format_age(series.get("lastObservedTime"), now)
    last = item.get("lastTimestamp") or item.get("deprecatedLastTimestamp")
    return format_age(last, now) if last else first_seen(item, now)


def involved_object(item: Manifest) -> Manifest:
    return item.get("involvedObject") or item.get("regarding") or {}


def event_object(item: Manifest, _now: datetime) -> str:
    reference = involved_object(item)
    kind = str(reference.get("kind", "")).lower()
    return f"{kind}/{reference['name']}" if reference.get("name") else kind


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


EVENT_COLUMNS = (
    Column("Last Seen", "string", last_seen_age),
    Column("Type", "string", value_cell("type")),
    Column("Reason", "string", value_cell("reason")),
    Column("Object", "string", event_object),
    Column("Subobject", "string", lambda item, _now: involved_object(item).get("fieldPath", ""), wide=True),
    Column("Source", "string", event_source, wide=True),
    Column("Message", "string", event_message),
    Column("First Seen", "string", first_seen, wide=True),
    Column("Count", "string", event_count, wide=True),
    Column("Name", "string", value_cell("metadata", "name"), wide=True),
)
SERVICE_COLUMNS = (
    NAME_COLUMN,
    Column("Type", "string", value_cell("spec", "type")),
    Column("Cluster-IP", "string", cluster_ip),
    Column("External-IP", "string", external_ip),
    Column("Port(s)", "string", service_ports),
    AGE_COLUMN,
    Column("Selector", "string", selector, wide=True),
)
CONFIG_MAP_COLUMNS = (NAME_COLUMN, Column("Data", "string", entry_count("data", "binaryData")), AGE_COLUMN)
SECRET_COLUMNS = (
    NAME_COLUMN,
    Column("Type", "string", value_cell("type")),
    Column("Data", "string", entry_count("data")),
    AGE_COLUMN,
)
NAMESPACE_COLUMNS = (NAME_COLUMN, Column("Status", "string", value_cell("status", "phase")), AGE_COLUMN)
LEASE_COLUMNS = (NAME_COLUMN, Column("Holder", "string", value_cell("spec", "holderIdentity")), AGE_COLUMN)
NODE_COLUMNS = (
    NAME_COLUMN,
    Column("Status", "string", node_status),
    Column("Roles", "string", node_roles),
    AGE_COLUMN,
    Column("Version", "string", value_cell("status", "nodeInfo", "kubeletVersion")),
    Column("Internal-IP", "string", node_address("InternalIP"), wide=True),
    Column("External-IP", "string", node_address("ExternalIP"), wide=True),
    Column("OS-Image", "string", value_cell("status", "nodeInfo", "osImage", default=UNKNOWN), wide=True),
    Column("Kernel-Version", "string", kernel_version, wide=True),
    Column(
        "Container-Runtime",
        "string",
        value_cell("status", "nodeInfo", "containerRuntimeVersion", default=UNKNOWN),
        wide=True,
    ),
)
VOLUME_MODE = Column("VolumeMode", "string", value_cell("spec", "volumeMode", default=UNSET), wide=True)
ATTRIBUTES_CLASS = Column(
    "VolumeAttributesClass", "string", value_cell("spec", "volumeAttributesClassName", default=UNSET)
)
STORAGE_CLASS = Column("StorageClass", "string", value_cell("spec", "storageClassName"))
PERSISTENT_VOLUME_COLUMNS = (
    NAME_COLUMN,
    Column("Capacity", "string", value_cell("spec", "capacity", "storage", default="0")),
    Column("Access Modes", "string", lambda item, _now: format_access_modes(item["spec"].get("accessModes"))),
    Column("Reclaim Policy", "string", value_cell("spec", "persistentVolumeReclaimPolicy")),
    Column("Status", "string", phase),
    Column("Claim", "string", volume_claim),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    Column("Reason", "string", value_cell("status", "reason")),
    AGE_COLUMN,
    VOLUME_MODE,
)
PERSISTENT_VOLUME_CLAIM_COLUMNS = (
    NAME_COLUMN,
    Column("Status", "string", phase),
    Column("Volume", "string", value_cell("spec", "volumeName")),
    Column("Capacity", "string", claim_capacity),
    Column("Access Modes", "string", claim_access_modes),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    AGE_COLUMN,
    VOLUME_MODE,
)
