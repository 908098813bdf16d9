"""From the server's bytes to Structs: an object, a page of a list, the lines of a watch.

One object that does not fit its Struct must not hide the others: it was stored before its schema had the rule that it
breaks. The quick way decodes everything in one C call; only when that fails is each object looked at by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import msgspec

from paddle_operator.kube.errors import DecodeError
from paddle_operator.kube.objects import Change, ListMeta, Manifest, Meta, Object, Resource, T

# msgspec does not wrap what it meets inside a string, nor what is nested too deep for Python.
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Unreadable(msgspec.Struct, frozen=True):
    """An object that does not fit its Struct."""

    metadata: Meta
    problem: str
    deleted: bool = False


@dataclass(frozen=True)
class Page(Generic[T]):
    """Part of a list; the version is that of the whole list."""

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
    """Raises DecodeError where the object does not fit its Struct: here there are no others to go on with."""
    try:
        return kind.one.decode(body)
    except _UNFIT as problem:
        raise _garbled(kind, problem) from None


def read_manifest(body: bytes) -> Manifest:
    return msgspec.json.decode(body, type=dict[str, Any])


def read_manifests(body: bytes) -> list[Manifest]:
    """The items of a list, each with the apiVersion and kind that a list leaves out."""
    found = read_manifest(body)
    own = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
    return [own | item for item in found.get("items") or ()]


def read_page(kind: Resource[T], body: bytes) -> tuple[Page[T], str]:
    """The page and the token of the next one, which is empty at the end. Raises DecodeError where it is no page at all."""
    try:
        page = kind.page.decode(body)
    except _UNFIT:
        return _read_page_by_item(kind, body)
    return Page(page.metadata.resource_version, page.items or []), page.metadata.continue_


def read_changes(kind: Resource[T], lines: bytes | memoryview) -> Sequence[Change[T] | Unreadable]:
    """Raises DecodeError where a line is no change at all."""
    try:
        return kind.change.decode_lines(lines)
    except _UNFIT:
        return [_read_change(kind, line) for line in bytes(lines).splitlines() if line.strip()]


def _read_page_by_item(kind: Resource[T], body: bytes) -> tuple[Page[T], str]:
    try:
        raw = msgspec.json.decode(body, type=_RawPage)
    except _UNFIT as problem:
        raise _garbled(kind, problem) from None
    page: Page[T] = Page(raw.metadata.resource_version, [])
    for text in raw.items or ():
        try:
            page.items.append(kind.one.decode(text))
        except _UNFIT as problem:
            page.unreadable.append(Unreadable(_metadata_of(text), str(problem)))
    return page, raw.metadata.continue_


def _read_change(kind: Resource[T], line: bytes) -> Change[T] | Unreadable:
    try:
        return kind.change.decode(line)
    except _UNFIT as problem:
        raw = _raw_change(kind, line)
        return Unreadable(_metadata_of(raw.object), str(problem), deleted=raw.type == "DELETED")


def _raw_change(kind: Resource[T], line: bytes) -> _RawChange:
    try:
        return msgspec.json.decode(line, type=_RawChange)
    except _UNFIT as problem:
        raise _garbled(kind, problem) from None


def _metadata_of(text: msgspec.Raw) -> Meta:
    """Whose object it is; nobody's where even that cannot be read."""
    try:
        return msgspec.json.decode(text, type=Object).metadata
    except _UNFIT:
        return Meta()


def _garbled(kind: Resource[T], problem: Exception) -> DecodeError:
    return DecodeError(
        f"the server's answer about {kind} does not have the form that we know: {problem}; "
        "is this program older than the cluster, or is the address that of another server?"
    )
