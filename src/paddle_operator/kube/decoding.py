"""From the server's bytes to Structs: an object, a page of a list, the lines of a watch.

One object that cannot be decoded must not hide the others: it may have been stored before its schema was tightened.
All objects are decoded in one C call; only if that fails, one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import msgspec

from paddle_operator.kube.errors import DecodeError
from paddle_operator.kube.objects import Change, ListMeta, Manifest, Meta, Object, Resource, T

# msgspec does not wrap invalid UTF-8 in a string, nor the RecursionError of deep nesting
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Unreadable(msgspec.Struct, frozen=True):
    """An object that cannot be decoded into its Struct."""

    metadata: Meta
    problem: str
    deleted: bool = False


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list; the version is that of the whole list."""

    version: str
    items: list[T]
    unreadable: list[Unreadable] = field(default_factory=list)


class _RawPage(msgspec.Struct, frozen=True):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _RawChange(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


def read_one(kind: Resource[T], body: bytes) -> T:
    """Raises DecodeError."""
    try:
        return kind.one.decode(body)
    except _DECODE_ERRORS as problem:
        raise _decode_error(kind, problem) from None


def read_manifest(body: bytes) -> Manifest:
    return msgspec.json.decode(body, type=dict[str, Any])


def read_manifests(body: bytes) -> list[Manifest]:
    """The items of a list, each with the apiVersion and kind that a list leaves out."""
    listed = read_manifest(body)
    type_meta = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
    return [type_meta | item for item in listed.get("items") or ()]


def read_page(kind: Resource[T], body: bytes) -> tuple[Page[T], str]:
    """The page and the continue token, empty for the last page. Raises DecodeError if the body is not a list."""
    try:
        page = kind.page.decode(body)
    except _DECODE_ERRORS:
        return _read_page_by_item(kind, body)
    return Page(page.metadata.resource_version, page.items or []), page.metadata.continue_


def read_changes(kind: Resource[T], lines: bytes | memoryview) -> Sequence[Change[T] | Unreadable]:
    """Raises DecodeError if a line is not a watch event."""
    try:
        return kind.change.decode_lines(lines)
    except _DECODE_ERRORS:
        return [_read_change(kind, line) for line in bytes(lines).splitlines() if line.strip()]


def _read_page_by_item(kind: Resource[T], body: bytes) -> tuple[Page[T], str]:
    try:
        raw = msgspec.json.decode(body, type=_RawPage)
    except _DECODE_ERRORS as problem:
        raise _decode_error(kind, problem) from None
    page: Page[T] = Page(raw.metadata.resource_version, [])
    for text in raw.items or ():
        try:
            page.items.append(kind.one.decode(text))
        except _DECODE_ERRORS as problem:
            page.unreadable.append(Unreadable(_metadata_of(text), str(problem)))
    return page, raw.metadata.continue_


def _read_change(kind: Resource[T], line: bytes) -> Change[T] | Unreadable:
    try:
        return kind.change.decode(line)
    except _DECODE_ERRORS as problem:
        raw = _raw_change(kind, line)
        return Unreadable(_metadata_of(raw.object), str(problem), deleted=raw.type == "DELETED")


def _raw_change(kind: Resource[T], line: bytes) -> _RawChange:
    try:
        return msgspec.json.decode(line, type=_RawChange)
    except _DECODE_ERRORS as problem:
        raise _decode_error(kind, problem) from None


def _metadata_of(text: msgspec.Raw) -> Meta:
    """The metadata; empty if even that cannot be decoded."""
    try:
        return msgspec.json.decode(text, type=Object).metadata
    except _DECODE_ERRORS:
        return Meta()


def _decode_error(kind: Resource[T], problem: Exception) -> DecodeError:
    return DecodeError(
        f"cannot decode the server's {kind}: {problem}; "
        "check the address, and that this program is not older than the cluster"
    )
