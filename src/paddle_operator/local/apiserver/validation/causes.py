"""What an API server says about a field that it refuses: the words of Kubernetes' field errors, as Causes."""

import json
from collections.abc import Iterable

from paddle_operator.kube.errors import Cause

MISTYPED = "FieldValueTypeInvalid"


def required(field: str, detail: str = "") -> Cause:
    return Cause(field, "Required value" + (f": {detail}" if detail else ""), "FieldValueRequired")


def invalid(field: str, value: object, detail: str) -> Cause:
    return Cause(field, f"Invalid value: {told(value)}: {detail}", "FieldValueInvalid")


def mistyped(field: str, value: object, detail: str) -> Cause:
    return Cause(field, f"Invalid value: {told(value)}: {detail}", MISTYPED)


def unsupported(field: str, value: object, supported: Iterable[object]) -> Cause:
    known = ", ".join(json.dumps(each if isinstance(each, str) else json.dumps(each)) for each in supported)
    return Cause(field, f"Unsupported value: {told(value)}: supported values: {known}", "FieldValueNotSupported")


def duplicate(field: str, value: object) -> Cause:
    return Cause(field, f"Duplicate value: {told(value)}", "FieldValueDuplicate")


def forbidden(field: str, detail: str) -> Cause:
    return Cause(field, f"Forbidden: {detail}", "FieldValueForbidden")


def missing(field: str, value: object) -> Cause:
    return Cause(field, f"Not found: {told(value)}", "FieldValueNotFound")


def too_long(field: str, most: int) -> Cause:
    return Cause(field, f"Too long: may not be more than {most} bytes", "FieldValueTooLong")


def too_many(field: str, count: int, most: int) -> Cause:
    items = "item" if most == 1 else "items"
    return Cause(field, f"Too many: {count}: must have at most {most} {items}", "FieldValueTooMany")


def told(value: object) -> str:
    """A value as Kubernetes prints it, which is JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
