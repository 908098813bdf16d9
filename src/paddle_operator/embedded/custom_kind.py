"""One of api/kinds.py as the local API server serves it: the CRD's schema, and the rules of its definition.

A real API server evaluates the rules' CEL. Here the same rules run in Python, with the same messages.
"""

from functools import partial
from typing import Any

import msgspec

from paddle_operator.api.crd import AnyKind, crd
from paddle_operator.api.rules import Rule, describe_violation, value_at
from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme.custom_resource import kind_from_crd
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest


def custom_kind(definition: AnyKind) -> Kind:
    return kind_from_crd(crd(definition), partial(broken_rules, definition))


def broken_rules(definition: AnyKind, new: Manifest, old: Manifest | None) -> list[Cause]:
    """A cause for each rule that an object with a valid schema breaks; `old` is the object before an update."""
    causes = [] if old is not None else _causes(new["metadata"]["name"], definition.name_rules)
    try:
        spec = msgspec.convert(new["spec"], definition.spec)
    except msgspec.ValidationError:
        return causes  # the schema has refused it already
    if old is None:
        return causes + _causes(spec, definition.rules)
    changed = tuple(
        rule for rule in definition.rules if _manifest_value(old, rule.cel_path) != _manifest_value(new, rule.cel_path)
    )
    return causes + _causes(spec, changed) + _immutable_causes(definition, spec, old)


def _manifest_value(manifest: Manifest, path: str) -> object:
    """CEL's ratcheting accepts what was stored before there were rules, and is unchanged."""
    found: Any = manifest
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _immutable_causes(definition: AnyKind, spec: msgspec.Struct, old: Manifest) -> list[Cause]:
    try:
        before = msgspec.convert(old["spec"], definition.spec)
    except msgspec.ValidationError:  # stored before there was a schema
        return []
    messages = filter(None, (each.describe_violation(spec, before) for each in definition.immutable))
    return [Cause(field="spec", message=f"Invalid value: {each}", reason="FieldValueInvalid") for each in messages]


def _causes(written: Any, rules: tuple[Rule[Any], ...]) -> list[Cause]:
    return [
        Cause(
            field=_reported_field(rule),
            message=f"Invalid value: {_value_prefix(written, rule)}{message}",
            reason="FieldValueInvalid",
        )
        for rule in rules
        if (message := describe_violation(written, rule))
    ]


def _value_prefix(written: Any, rule: Rule[Any]) -> str:
    """A real API server names the value first where a rule is about a number."""
    return f"{value_at(written, rule.field)}: " if rule.bounds else ""


def _reported_field(rule: Rule[Any]) -> str:
    """CEL cannot name an index of a list: there a real API server reports the spec."""
    return "spec" if "[" in rule.field else rule.field
