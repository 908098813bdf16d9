"""PaddleJob as the embedded API server knows it: the CRD's schema, and its rules as api/ keeps them.

A real API server evaluates the rules' CEL; here the same rules are asked in Python, and refuse in the same words.
"""

from typing import Any

import msgspec

from paddle_operator.api.crd import crd
from paddle_operator.api.paddlejob import PaddleJobSpec
from paddle_operator.api.paddlejob_policy_rules import LASTING_FIELDS
from paddle_operator.api.paddlejob_rules import NAME_RULES, SPEC_RULES
from paddle_operator.api.rules import Rule, at, problem
from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme.custom_resource import kind_from_crd
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest


def paddle_job_kind() -> Kind:
    return kind_from_crd(crd(), rules_kept)


def rules_kept(new: Manifest, old: Manifest | None) -> list[Cause]:
    """What the rules have against an object whose schema is right."""
    causes = [] if old is not None else _asked(new["metadata"]["name"], NAME_RULES)
    try:
        spec = msgspec.convert(new["spec"], PaddleJobSpec)
    except msgspec.ValidationError:
        return causes  # the schema has said so already
    if old is None:
        return causes + _asked(spec, SPEC_RULES)
    changed = tuple(rule for rule in SPEC_RULES if _stands_at(old, rule.place) != _stands_at(new, rule.place))
    return causes + _asked(spec, changed) + _lasting(spec, old)


def _stands_at(job: Manifest, place: str) -> object:
    """What was stored before there were rules, and does not change, is left alone: as CEL's ratcheting has it."""
    found: Any = job
    for name in place.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _lasting(spec: PaddleJobSpec, old: Manifest) -> list[Cause]:
    try:
        before = msgspec.convert(old["spec"], PaddleJobSpec)
    except msgspec.ValidationError:  # stored before there was a schema
        return []
    sentences = filter(None, (each.problem(spec, before) for each in LASTING_FIELDS))
    return [Cause(field="spec", message=f"Invalid value: {each}", reason="FieldValueInvalid") for each in sentences]


def _asked(written: Any, rules: tuple[Rule[Any], ...]) -> list[Cause]:
    return [
        Cause(
            field=_told_at(rule), message=f"Invalid value: {_own(written, rule)}{sentence}", reason="FieldValueInvalid"
        )
        for rule in rules
        if (sentence := problem(written, rule))
    ]


def _own(written: Any, rule: Rule[Any]) -> str:
    """A real API server names the value first where a rule stands at a number."""
    return f"{at(written, rule.field)}: " if rule.bounds else ""


def _told_at(rule: Rule[Any]) -> str:
    """A place in a list cannot be told by CEL: there a real API server names the whole."""
    return "spec" if "[" in rule.field else rule.field
