"""Which objects does a list return? All or one page, at the current or at an earlier version."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.registry.resource import APIResource
from paddle_operator.local.apiserver.request_info import (
    Parameters,
    invalid_options,
    parse_bool,
    parse_int,
    parse_version,
)
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.selectors import Predicate, parse_field_selector, parse_label_selector
from paddle_operator.local.apiserver.storage.sqlite import ObjectStore, key_path, sort_records
from paddle_operator.local.apiserver.storage.watch_cache import HistoryExpired, Record
from paddle_operator.local.apiserver.validation import field_errors

CONTINUE_FORMAT = "meta.k8s.io/v1"


@dataclass(frozen=True)
class Selection:
    """Which objects of a kind a list, watch or deletion selects."""

    namespace: str = ""
    labels: Predicate | None = None
    fields: Predicate | None = None

    @property
    def is_unfiltered(self) -> bool:
        return self.labels is None and self.fields is None

    def matches(self, record: Record) -> bool:
        return (
            (not self.namespace or record.key.namespace == self.namespace)
            and (self.labels is None or self.labels(record.labels))
            and (self.fields is None or self.fields(record.fields))
        )


def parse_selection(resource: APIResource, namespace: str, parameters: Parameters) -> Selection:
    """Raises StatusError."""
    kind = resource.kind
    return Selection(
        namespace,
        parse_label_selector(parameters.get("labelSelector", "")),
        parse_field_selector(parameters.get("fieldSelector", ""), kind.group, kind.plural),
    )


@dataclass(frozen=True)
class ListResult:
    """The records of a list page; `metadata` is that of the response."""

    records: list[Record]
    version: int
    metadata: Manifest = field(default_factory=dict)


def check_list_parameters(parameters: Parameters) -> None:
    """Raises StatusError for parameters of a list or watch that exclude each other."""
    match, resource_version = parameters.get("resourceVersionMatch", ""), parameters.get("resourceVersion", "")
    watch, initial = parse_bool(parameters, "watch"), "sendInitialEvents" in parameters
    message = ""
    if initial and not watch:
        raise _forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if initial and match != "NotOlderThan":
        message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif match and watch and not initial:
        message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    elif match and not watch and not resource_version:
        message = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match and parameters.get("continue"):
        message = "resourceVersionMatch is forbidden when continue is provided"
    elif match == "Exact" and resource_version == "0":
        message = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if message:
        raise _forbidden("resourceVersionMatch", message)
    if match not in ("", "Exact", "NotOlderThan"):
        known = ("Exact", "NotOlderThan", "")
        raise invalid_options("ListOptions", field_errors.not_supported("resourceVersionMatch", match, known))


def _forbidden(parameter: str, message: str) -> api_errors.StatusError:
    return invalid_options("ListOptions", field_errors.forbidden(parameter, message))


def list_records(store: ObjectStore, resource: APIResource, selection: Selection, parameters: Parameters) -> ListResult:
    """Raises StatusError."""
    limit = max(parse_int(parameters, "limit") or 0, 0)
    token = parameters.get("continue", "")
    requested = parse_version(parameters.get("resourceVersion", ""))
    if token:
        if requested:
            raise api_errors.bad_request("specifying resource version is not allowed when using continue")
        at, after = _parse_continue_token(token, selection.namespace)
        return _list_page(resource, selection, at, after, limit)
    if requested > store.version:
        raise api_errors.too_large_version(requested, store.version)
    is_exact = parameters.get("resourceVersionMatch") == "Exact" or (
        requested and limit and not parameters.get("resourceVersionMatch")
    )
    return _list_page(resource, selection, requested if is_exact else store.version, None, limit)


def _list_page(resource: APIResource, selection: Selection, at: int, after: Key | None, limit: int) -> ListResult:
    records = [record for record in _records_at(resource, at, after) if selection.matches(record)]
    metadata: Manifest = {"resourceVersion": str(at)}
    if limit and len(records) > limit:
        metadata["continue"] = _continue_token(at, records[limit - 1].key, selection.namespace)
        if selection.is_unfiltered:
            metadata["remainingItemCount"] = len(records) - limit
        del records[limit:]
    return ListResult(records, at, metadata)


def _records_at(resource: APIResource, at: int, after: Key | None) -> Iterable[Record]:
    table = resource.table
    try:
        if table.history.position_after(at) == table.history.end:  # no change since
            return table.in_order(after)
        records = sort_records(table.history.objects_at(at, table.records).values())
    except HistoryExpired:
        if after is None:
            raise api_errors.expired(f"The resourceVersion for the provided list is too old: {at}") from None
        raise api_errors.expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter."
        ) from None
    return records if after is None else (record for record in records if key_path(record.key) > key_path(after))


def _continue_token(at: int, last: Key, namespace: str) -> str:
    start = ("" if namespace else last.namespace) + "/" + last.name + "\0"
    text = msgspec.json.encode({"v": CONTINUE_FORMAT, "rv": at, "start": start})
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _parse_continue_token(token: str, namespace: str) -> tuple[int, Key]:
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        content: Any = msgspec.json.decode(text)
        start, at = content["start"], content["rv"]
        start_namespace, slash, name = start.rstrip("\0").partition("/")
        if content["v"] != CONTINUE_FORMAT or not isinstance(at, int) or not slash:
            raise ValueError("unknown format")
    except (
        binascii.Error,
        msgspec.DecodeError,
        UnicodeDecodeError,
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
    ) as error:
        raise api_errors.bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    return at, Key(namespace or start_namespace, name)


def list_body(resource: APIResource, result: ListResult) -> bytes:
    kind = resource.kind
    head = msgspec.json.encode(
        {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": result.metadata}
    )
    items = b",".join([resource.item(record) for record in result.records])
    return head[:-1] + b',"items":[' + items + b"]}"
