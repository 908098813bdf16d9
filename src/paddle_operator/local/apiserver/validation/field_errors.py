"""Which error does an invalid field get? The messages of Kubernetes' package field, as causes of a Status."""

import json
from collections.abc import Iterable

from paddle_operator.kube.errors import Cause

TYPE_INVALID = "FieldValueTypeInvalid"


def required(field: str, detail: str = "") -> Cause:
    return Cause(field, "Required value" + (f": {detail}" if detail else ""), "FieldValueRequired")


def invalid(field: str, value: object, detail: str) -> Cause:
    return Cause(field, f"Invalid value: {to_json(value)}: {detail}", "FieldValueInvalid")


def type_invalid(field: str, value: object, detail: str) -> Cause:
    return Cause(field, f"Invalid value: {to_json(value)}: {detail}", TYPE_INVALID)


def not_supported(field: str, value: object, supported: Iterable[object]) -> Cause:
    known = ", ".join(json.dumps(each if isinstance(each, str) else json.dumps(each)) for each in supported)
    return Cause(field, f"Unsupported value: {to_json(value)}: supported values: {known}", "FieldValueNotSupported")


def duplicate(field: str, value: object) -> Cause:
    return Cause(field, f"Duplicate value: {to_json(value)}", "FieldValueDuplicate")


def forbidden(field: str, detail: str) -> Cause:
    return Cause(field, f"Forbidden: {detail}", "FieldValueForbidden")


def not_found(field: str, value: object) -> Cause:
    return Cause(field, f"Not found: {to_json(value)}", "FieldValueNotFound")


def too_long(field: str, maximum: int) -> Cause:
    return Cause(field, f"Too long: may not be more than {maximum} bytes", "FieldValueTooLong")


def too_many(field: str, count: int, maximum: int) -> Cause:
    items = "item" if maximum == 1 else "items"
    return Cause(field, f"Too many: {count}: must have at most {maximum} {items}", "FieldValueTooMany")


def to_json(value: object) -> str:
    """A value as Kubernetes prints it: JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
