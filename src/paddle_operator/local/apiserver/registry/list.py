"""Reads many objects: a list in one piece or in pages, as they are now or as they were at a version still kept."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.registry.resource import Resource
from paddle_operator.local.apiserver.request_info import Parameters, invalid_options, number, truth, version
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.selectors import Test, field_test, label_test
from paddle_operator.local.apiserver.storage.sqlite import Store, in_order
from paddle_operator.local.apiserver.storage.watch_cache import Forgotten, Record
from paddle_operator.local.apiserver.validation import causes

FORMAT = "meta.k8s.io/v1"  # of a continue token


@dataclass(frozen=True)
class Selection:
    """Which objects of a kind are meant."""

    namespace: str = ""
    labels: Test | None = None
    fields: Test | None = None

    @property
    def everything(self) -> bool:
        return self.labels is None and self.fields is None

    def has(self, record: Record) -> bool:
        return (
            (not self.namespace or record.key.namespace == self.namespace)
            and (self.labels is None or self.labels(record.labels))
            and (self.fields is None or self.fields(record.fields))
        )


def selection_of(resource: Resource, namespace: str, parameters: Parameters) -> Selection:
    """Raises Refusal."""
    kind = resource.kind
    return Selection(
        namespace,
        label_test(parameters.get("labelSelector", "")),
        field_test(parameters.get("fieldSelector", ""), kind.group, kind.plural),
    )


@dataclass(frozen=True)
class Found:
    """A list, or a page of one; `metadata` is that of the answer."""

    records: list[Record]
    version: int
    metadata: Manifest = field(default_factory=dict)


def check_list_parameters(parameters: Parameters) -> None:
    """What may not be asked for at once, whether it is a list or a watch. Raises Refusal."""
    match, resource_version = parameters.get("resourceVersionMatch", ""), parameters.get("resourceVersion", "")
    watch, initial = truth(parameters, "watch"), "sendInitialEvents" in parameters
    problem = ""
    if initial and not watch:
        raise _forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if initial and match != "NotOlderThan":
        problem = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif match and watch and not initial:
        problem = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    elif match and not watch and not resource_version:
        problem = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match and parameters.get("continue"):
        problem = "resourceVersionMatch is forbidden when continue is provided"
    elif match == "Exact" and resource_version == "0":
        problem = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if problem:
        raise _forbidden("resourceVersionMatch", problem)
    if match not in ("", "Exact", "NotOlderThan"):
        known = ("Exact", "NotOlderThan", "")
        raise invalid_options("ListOptions", causes.unsupported("resourceVersionMatch", match, known))


def _forbidden(parameter: str, sentence: str) -> api_errors.Refusal:
    return invalid_options("ListOptions", causes.forbidden(parameter, sentence))


def found(store: Store, resource: Resource, selection: Selection, parameters: Parameters) -> Found:
    """Raises Refusal."""
    limit = max(number(parameters, "limit") or 0, 0)
    token = parameters.get("continue", "")
    wanted = version(parameters.get("resourceVersion", ""))
    if token:
        if wanted:
            raise api_errors.bad_request("specifying resource version is not allowed when using continue")
        at, after = _read_token(token, selection.namespace)
        return _page(resource, selection, at, after, limit)
    if wanted > store.version:
        raise api_errors.too_large_version(wanted, store.version)
    exactly = parameters.get("resourceVersionMatch") == "Exact" or (
        wanted and limit and not parameters.get("resourceVersionMatch")
    )
    return _page(resource, selection, wanted if exactly else store.version, None, limit)


def _page(resource: Resource, selection: Selection, at: int, after: Key | None, limit: int) -> Found:
    records = [record for record in _records_at(resource, at, after) if selection.has(record)]
    metadata: Manifest = {"resourceVersion": str(at)}
    if limit and len(records) > limit:
        metadata["continue"] = _token(at, records[limit - 1].key, selection.namespace)
        if selection.everything:
            metadata["remainingItemCount"] = len(records) - limit
        del records[limit:]
    return Found(records, at, metadata)


def _records_at(resource: Resource, at: int, after: Key | None) -> Iterable[Record]:
    table = resource.table
    try:
        if table.history.place_after(at) == table.history.end:  # nothing has happened since
            return table.in_order(after)
        then = in_order(table.history.as_of(at, table.records).values())
    except Forgotten:
        if after is None:
            raise api_errors.expired(f"The resourceVersion for the provided list is too old: {at}") from None
        raise api_errors.expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter."
        ) from None
    return then if after is None else (record for record in then if _path(record.key) > _path(after))


def _path(key: Key) -> str:
    return f"{key.namespace}/{key.name}"


def _token(at: int, last: Key, namespace: str) -> str:
    start = ("" if namespace else last.namespace) + "/" + last.name + "\0"
    text = msgspec.json.encode({"v": FORMAT, "rv": at, "start": start})
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _read_token(token: str, namespace: str) -> tuple[int, Key]:
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        told: Any = msgspec.json.decode(text)
        start, at = told["start"], told["rv"]
        within, slash, name = start.rstrip("\0").partition("/")
        if told["v"] != FORMAT or not isinstance(at, int) or not slash:
            raise ValueError("it is of another form")
    except (
        binascii.Error,
        msgspec.DecodeError,
        UnicodeDecodeError,
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
    ) as problem:
        raise api_errors.bad_request(f"invalid continue token: continue key is not valid: {problem}") from None
    return at, Key(namespace or within, name)


def list_body(resource: Resource, found_: Found) -> bytes:
    kind = resource.kind
    head = msgspec.json.encode(
        {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": found_.metadata}
    )
    items = b",".join([resource.item(record) for record in found_.records])
    return head[:-1] + b',"items":[' + items + b"]}"
