"""What the embedded API server knows of a kind: its names, its schema, its columns, and what else is asked of it.

The list is closed. What is built in stands in builtin.py; a custom kind is made of its CustomResourceDefinition.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from paddle_operator.kube.errors import Cause

Manifest = dict[str, Any]
Schema = dict[str, Any]

Check = Callable[[Manifest, Manifest | None], list[Cause]]
"""What is wrong with an object beyond its schema; the second is what is stored, None for a new one."""


Fill = Callable[[Manifest], None]
"""Fills in what hangs on other fields; the object has the defaults of its schema, and is changed in place."""


def nothing_to_fill(_manifest: Manifest) -> None:
    pass


def nothing_more(_new: Manifest, _old: Manifest | None) -> list[Cause]:
    return []


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; a wide one is shown with `-o wide` only.

    `of` gives the cell as it is at an instant, since ages are told by the server.
    """

    name: str
    type: str  # string, integer, number, boolean or date
    of: Callable[[Manifest, datetime], object]
    wide: bool = False


@dataclass(frozen=True)
class Scale:
    """Where a custom kind keeps its number of replicas, as in a CRD: `.spec.worker.replicas`."""

    spec_path: str
    status_path: str
    selector_path: str


@dataclass(frozen=True, eq=False)  # one object a kind, so that what is derived of it can be kept by it
class Kind:
    group: str  # empty for the core
    version: str
    kind: str
    plural: str
    singular: str
    schema: Schema = field(repr=False)  # OpenAPI v3, with every reference in its place
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    scale: Scale | None = None
    columns: tuple[Column, ...] = ()
    custom: bool = False  # made of a CRD: no strategic merge patch, and a spec that changes raises the generation
    check: Check = field(default=nothing_more)
    fill: Fill = field(default=nothing_to_fill)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """Where its URLs begin: `/api/v1`, `/apis/batch.paddlepaddle.org/v1`."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
