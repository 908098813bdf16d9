"""What defines a kind? Its names, schema, printer columns, defaults and validation.

The list is closed: built-in kinds are in builtin.py, a custom kind is built from its CustomResourceDefinition.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from paddle_operator.kube.errors import Cause

Manifest = dict[str, Any]
Schema = dict[str, Any]

Validator = Callable[[Manifest, Manifest | None], list[Cause]]
"""Errors of an object beyond its schema. Takes the new object and the stored one (None on create)."""

Defaulter = Callable[[Manifest], None]
"""Sets defaults that depend on other fields, in place. The schema's own defaults are already set."""


def set_no_defaults(_manifest: Manifest) -> None:
    pass


def accept_all(_new: Manifest, _old: Manifest | None) -> list[Cause]:
    return []


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; a wide one is shown with `-o wide` only.

    `cell` takes the object and the current time, since the server formats ages.
    """

    name: str
    type: str  # string, integer, number, boolean or date
    cell: Callable[[Manifest, datetime], object]
    wide: bool = False


@dataclass(frozen=True)
class Scale:
    """The paths of a CRD's scale subresource, such as `.spec.worker.replicas`."""

    spec_path: str
    status_path: str
    selector_path: str


@dataclass(frozen=True, eq=False)  # hashed by identity, as the key of caches
class Kind:
    group: str  # empty for the core
    version: str
    kind: str
    plural: str
    singular: str
    schema: Schema = field(repr=False)  # OpenAPI v3, all references resolved
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    scale: Scale | None = None
    columns: tuple[Column, ...] = ()
    custom: bool = False  # from a CRD: no strategic merge patch, and spec changes raise the generation
    validate: Validator = field(default=accept_all)
    set_defaults: Defaulter = field(default=set_no_defaults)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`pods`, `paddlejobs.batch.paddlepaddle.org`: the collection's name in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        """`Pod`, `PaddleJob.batch.paddlepaddle.org`: the kind's name in messages."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def prefix(self) -> str:
        """The prefix of its URLs: `/api/v1`, `/apis/batch.paddlepaddle.org/v1`."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
