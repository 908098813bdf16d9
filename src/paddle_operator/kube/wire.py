"""From the server's bytes to Structs: a page of a list, the lines of a watch.

One object that does not fit its Struct must not hide the others: it was stored before its schema had the rule that it
breaks. The quick way decodes everything in one C call; only when that fails is each object looked at by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic

import msgspec

from paddle_operator.kube.objects import Change, ListMeta, Meta, Object, Resource, T


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
    object: Object


def read_page(kind: Resource[T], body: bytes) -> tuple[Page[T], str]:
    """The page and the token of the next one, which is empty at the end."""
    try:
        page = kind.page.decode(body)
    except msgspec.ValidationError:
        return _read_page_by_item(kind, body)
    return Page(page.metadata.resource_version, page.items or []), page.metadata.continue_


def read_changes(kind: Resource[T], lines: bytes) -> Sequence[Change[T] | Unreadable]:
    try:
        return kind.change.decode_lines(lines)
    except msgspec.ValidationError:
        return [_read_change(kind, line) for line in lines.splitlines()]


def _read_page_by_item(kind: Resource[T], body: bytes) -> tuple[Page[T], str]:
    raw = msgspec.json.decode(body, type=_RawPage)
    page: Page[T] = Page(raw.metadata.resource_version, [])
    for text in raw.items or ():
        try:
            page.items.append(kind.one.decode(text))
        except msgspec.ValidationError as problem:
            page.unreadable.append(Unreadable(msgspec.json.decode(text, type=Object).metadata, str(problem)))
    return page, raw.metadata.continue_


def _read_change(kind: Resource[T], line: bytes) -> Change[T] | Unreadable:
    try:
        return kind.change.decode(line)
    except msgspec.ValidationError as problem:
        raw = msgspec.json.decode(line, type=_RawChange)
        return Unreadable(raw.object.metadata, str(problem), deleted=raw.type == "DELETED")
