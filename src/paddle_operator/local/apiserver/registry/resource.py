"""How is a kind served? The table of its objects, and how stored objects become responses.

Events are stored once, as core v1, and served in two forms: core v1 and events.k8s.io/v1.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.selectors import selectable_fields
from paddle_operator.local.apiserver.storage.sqlite import ObjectStore, ObjectTable, decode
from paddle_operator.local.apiserver.storage.watch_cache import Record

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class APIResponse:
    """The response to a request, still without HTTP headers."""

    body: bytes
    code: int = 200
    warnings: tuple[str, ...] = ()


def json_response(manifest: Manifest, code: int = 200, warnings: tuple[str, ...] = ()) -> APIResponse:
    return APIResponse(encode(manifest), code, warnings)


def success_response(code: int = 200, details: Manifest | None = None) -> APIResponse:
    """A Status object with status Success."""
    status: Manifest = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code != 200:
        status["code"] = code
    return json_response(status, code)


class APIResource:
    """A kind whose objects are stored in its table in the form in which it serves them."""

    def __init__(self, kind: Kind, table: ObjectTable) -> None:
        self.kind = kind
        self.table = table
        # Items of built-in kinds have no apiVersion and kind in lists, as in kube-apiserver.
        self._type_prefix = (
            b"" if kind.custom else encode({"apiVersion": kind.api_version, "kind": kind.kind})[:-1] + b","
        )

    def key(self, namespace: str, name: str) -> Key:
        return Key(namespace if self.kind.namespaced else "", name)

    def body(self, record: Record) -> bytes:
        return record.body

    def item(self, record: Record) -> bytes:
        """The object as an item of a list."""
        return b"{" + record.body[len(self._type_prefix) :] if self._type_prefix else record.body

    def manifest(self, record: Record) -> Manifest:
        """A copy that the caller may modify."""
        return decode(self.body(record))

    def to_storage(self, manifest: Manifest) -> Manifest:
        """The stored form of an object. It begins with apiVersion and kind, on which `item` relies."""
        kind = self.kind
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": manifest["metadata"]}
        return head | {name: value for name, value in manifest.items() if name not in head}


class EventsV1Resource(APIResource):
    """events.k8s.io/v1, served from the table of core v1 events."""

    def body(self, record: Record) -> bytes:
        return encode(to_events_v1(decode(record.body)))

    def item(self, record: Record) -> bytes:
        event = to_events_v1(decode(record.body))
        return encode({name: value for name, value in event.items() if name not in ("apiVersion", "kind")})

    def to_storage(self, manifest: Manifest) -> Manifest:
        return to_core_event(manifest)


class ResourceRegistry:
    """All kinds that are served; a closed list."""

    def __init__(self, kinds: Iterable[Kind], store: ObjectStore) -> None:
        self.kinds = tuple(kinds)
        self._by_path: dict[tuple[str, str, str], APIResource] = {}
        self._by_kind: dict[tuple[str, str], APIResource] = {}
        tables: dict[str, ObjectTable] = {}
        for kind in self.kinds:
            name, resource_class = _storage_of(kind)
            if name not in tables:
                tables[name] = store.open_table(name, selectable_fields(kind.group, kind.plural).extract)
            resource = resource_class(kind, tables[name])
            self._by_path[kind.group, kind.version, kind.plural] = resource
            self._by_kind.setdefault((kind.group, kind.kind), resource)

    def find(self, group: str, version: str, plural: str) -> APIResource | None:
        return self._by_path.get((group, version, plural))

    def of_owner(self, api_version: str, kind: str) -> APIResource | None:
        """The kind that an owner reference names; all versions of a kind share their objects."""
        return self._by_kind.get((api_version.rpartition("/")[0], kind))

    def of_table(self, name: str) -> APIResource:
        return next(resource for resource in self._by_path.values() if resource.table.name == name)


def _storage_of(kind: Kind) -> tuple[str, Callable[[Kind, ObjectTable], APIResource]]:
    if (kind.group, kind.plural) == ("events.k8s.io", "events"):
        return "events", EventsV1Resource
    return kind.group_resource, APIResource


# The two forms of events

# The fields of events.k8s.io/v1 with another name than in core v1.
_EVENTS_V1_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_NAMES = {new: old for old, new in _EVENTS_V1_NAMES.items()}

# The fields that each form has even if unset.
_CORE_EMPTY_FIELDS: Manifest = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_EVENTS_V1_EMPTY_FIELDS: Manifest = {
    "eventTime": None,
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}
_EVENTS_V1_OMITTED_IF_EMPTY = ("reportingController", "reportingInstance", "note", "reason", "type", "action")


def to_core_event(event: Manifest) -> Manifest:
    """The core v1 form of an events.k8s.io/v1 Event, which is stored."""
    renamed = {_CORE_NAMES.get(name, name): value for name, value in event.items()}
    return {"apiVersion": "v1", "kind": "Event"} | _CORE_EMPTY_FIELDS | renamed | {"apiVersion": "v1"}


def to_events_v1(event: Manifest) -> Manifest:
    """The events.k8s.io/v1 form of a stored Event."""
    renamed = {_EVENTS_V1_NAMES.get(name, name): value for name, value in event.items()}
    fields = {name: value for name, value in renamed.items() if value or name not in _EVENTS_V1_OMITTED_IF_EMPTY}
    return _EVENTS_V1_EMPTY_FIELDS | fields | {"apiVersion": "events.k8s.io/v1"}
