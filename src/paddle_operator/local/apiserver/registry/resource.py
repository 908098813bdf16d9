"""A kind as it is served: where its objects are kept, and how what is kept becomes what is answered."""

from collections.abc import Callable, Iterable

import msgspec

from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.registry import event_forms
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.selectors import selectable_fields
from paddle_operator.local.apiserver.storage.sqlite import Store, Table, decode
from paddle_operator.local.apiserver.storage.watch_cache import Record

encode = msgspec.json.Encoder().encode


class Resource:
    """Its objects stand in its table as it serves them, and as bytes that can be sent as they are."""

    def __init__(self, kind: Kind, table: Table) -> None:
        self.kind = kind
        self.table = table
        # Lists of built-in kinds leave out what all items have in common, as kube-apiserver's do.
        self._head = b"" if kind.custom else encode({"apiVersion": kind.api_version, "kind": kind.kind})[:-1] + b","

    def key(self, namespace: str, name: str) -> Key:
        return Key(namespace if self.kind.namespaced else "", name)

    def body(self, record: Record) -> bytes:
        return record.body

    def item(self, record: Record) -> bytes:
        """Part of a list."""
        return b"{" + record.body[len(self._head) :] if self._head else record.body

    def manifest(self, record: Record) -> Manifest:
        """A copy of the caller's own."""
        return decode(self.body(record))

    def stored(self, manifest: Manifest) -> Manifest:
        """What is kept of an object of this kind; begins with version and kind, on which `item` relies."""
        kind = self.kind
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": manifest["metadata"]}
        return head | {name: value for name, value in manifest.items() if name not in head}


class NewEvents(Resource):
    """events.k8s.io/v1, whose objects stand in the table of core v1's events."""

    def body(self, record: Record) -> bytes:
        return encode(event_forms.as_new(decode(record.body)))

    def item(self, record: Record) -> bytes:
        event = event_forms.as_new(decode(record.body))
        return encode({name: value for name, value in event.items() if name not in ("apiVersion", "kind")})

    def stored(self, manifest: Manifest) -> Manifest:
        return event_forms.as_core(manifest)


class Resources:
    """All that is served. The list is closed."""

    def __init__(self, kinds: Iterable[Kind], store: Store) -> None:
        self.kinds = tuple(kinds)
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        tables: dict[str, Table] = {}
        for kind in self.kinds:
            name, make = _kept_as(kind)
            if name not in tables:
                tables[name] = store.table(name, selectable_fields(kind.group, kind.plural).texts)
            resource = make(kind, tables[name])
            self._by_path[kind.group, kind.version, kind.plural] = resource
            self._by_kind.setdefault((kind.group, kind.kind), resource)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def of_owner(self, api_version: str, kind: str) -> Resource | None:
        """By the way in which an owner reference names a kind; any version of it is the same objects."""
        return self._by_kind.get((api_version.rpartition("/")[0], kind))

    def of_table(self, name: str) -> Resource:
        return next(resource for resource in self._by_path.values() if resource.table.name == name)


def _kept_as(kind: Kind) -> tuple[str, Callable[[Kind, Table], Resource]]:
    if (kind.group, kind.plural) == ("events.k8s.io", "events"):
        return "events", NewEvents
    return (f"{kind.plural}.{kind.group}" if kind.group else kind.plural), Resource
