"""One of our kinds: names, types, rules and columns. The CRD, decoding, the reference and local mode read them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from paddle_operator.api.rules import ImmutableField, Rule, describe_violation

Schema = dict[str, Any]
Sp = TypeVar("Sp", bound=msgspec.Struct)
St = TypeVar("St", bound=msgspec.Struct)


@dataclass(frozen=True)
class PrinterColumn:
    """A column of `kubectl get`."""

    name: str
    type: str
    json_path: str


@dataclass(frozen=True)
class ScalePaths:
    """Where `kubectl scale` and autoscalers find replicas and selector."""

    spec_replicas: str
    status_replicas: str
    label_selector: str


@dataclass(frozen=True)
class KindDefinition(Generic[Sp, St]):
    """One kind, in one declaration for the API server (CRD and CEL), for the operator (decoding) and for people."""

    group: str
    version: str
    kind: str
    plural: str
    description: str
    spec: type[Sp]
    status: type[St]
    columns: tuple[PrinterColumn, ...] = (PrinterColumn("Age", "date", ".metadata.creationTimestamp"),)
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    rules: tuple[Rule[Sp], ...] = ()
    immutable: tuple[ImmutableField, ...] = ()
    name_rules: tuple[Rule[str], ...] = ()
    name_schema: Schema = field(default_factory=dict)  # the name rules for schemas without CEL
    checks: tuple[Callable[[Sp], Iterable[str]], ...] = ()
    """Check what only the schema refuses, for objects that were stored before the CRD had a schema."""
    bounds: Mapping[str, Schema] = field(default_factory=dict)
    """Schemas of lists and texts by path: the API server accepts CEL over them only if they are bounded."""
    type_schemas: Mapping[Any, Callable[[], Schema]] = field(default_factory=dict)
    """The schemas of types that do not describe themselves, such as `dict[str, Any]` for a pod template."""
    old_spellings: Mapping[str, str] = field(default_factory=dict)  # accepted for an enum's value
    scale: ScalePaths | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def singular(self) -> str:
        return self.kind.lower()

    def problems(self, spec: Sp, name: str | None = None) -> list[str]:
        """A message for each rule that the spec violates, and for each that the name violates if one is passed."""
        about_name = [describe_violation(name, rule) for rule in self.name_rules] if name is not None else []
        about_spec = [describe_violation(spec, rule) for rule in self.rules]
        checked = [each for check in self.checks for each in check(spec)]
        return [message for message in (*about_name, *about_spec, *checked) if message]
