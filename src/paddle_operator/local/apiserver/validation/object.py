"""Is an object that a client writes valid, and in which form is it stored?

Schema first, then metadata, then the kind's own rules. tests/local/served/test_schema_cluster.py writes the same
objects to a real API server.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.scheme.unstructured import nested_map
from paddle_operator.local.apiserver.validation import field_errors
from paddle_operator.local.apiserver.validation.structural import ValueSchema, compile_schema

LABEL_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_NAME = rf"{LABEL_NAME}(\.{LABEL_NAME})*"
KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABEL_PATTERN, SUBDOMAIN_PATTERN, KEY_PATTERN = re.compile(LABEL_NAME), re.compile(SUBDOMAIN_NAME), re.compile(KEY_NAME)
MAX_LABEL_LENGTH, MAX_SUBDOMAIN_LENGTH = 63, 253
MAX_ANNOTATIONS_BYTES = 256 * 1024

KINDS_NAMED_BY_LABEL = ("Namespace", "Service")
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")

SUBDOMAIN_ERROR = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN_NAME}')"
)
LABEL_ERROR = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL_NAME}')"
)
KEY_ERROR = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY_NAME}')"
)
LABEL_VALUE_ERROR = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def normalize(kind: Kind, manifest: Manifest) -> Manifest:
    """The stored form: unknown fields pruned, quantities and times canonical, defaults set.

    Returns a copy that shares its unchanged parts with the argument.
    """
    normalized: Manifest = _compiled_schema(kind).normalize(manifest)
    kind.set_defaults(normalized)
    return normalized


def unknown_fields(kind: Kind, manifest: Manifest) -> list[str]:
    """A message for each field that is not in the schema, as strict decoding reports it: `unknown field "spec.foo"`."""
    paths: list[str] = []
    _compiled_schema(kind).find_unknown(manifest, "", paths)
    return [f'unknown field "{path}"' for path in paths]


def validate(kind: Kind, manifest: Manifest, old: Manifest | None) -> list[Cause]:
    """The errors of a normalized object; `old` is the stored one, None on create.

    The kind's own validation runs only if all types are right, so it need not check them. A cause with the reason
    TYPE_INVALID is a decoding error: for a built-in kind the response is 400 instead of 422.
    """
    errors: list[Cause] = []
    _compiled_schema(kind).validate(manifest, "", errors)
    errors += validate_metadata(kind, manifest)
    if not any(cause.reason == field_errors.TYPE_INVALID for cause in errors):
        errors += kind.validate(manifest, old)
    return errors


@cache
def _compiled_schema(kind: Kind) -> ValueSchema:
    """Compiled on the first write of a kind: the largest takes some milliseconds."""
    return compile_schema(kind.schema, custom=kind.custom)


# Metadata: the rules of apimachinery's package validation, with its messages


def validate_metadata(kind: Kind, manifest: Manifest) -> list[Cause]:
    metadata = nested_map(manifest, "metadata")
    return [
        *validate_name(kind, metadata.get("name")),
        *validate_labels(metadata.get("labels"), "metadata.labels"),
        *validate_annotations(metadata.get("annotations")),
        *validate_finalizers(kind, metadata.get("finalizers")),
        *validate_owner_references(metadata.get("ownerReferences")),
    ]


def validate_name(kind: Kind, name: object) -> Iterator[Cause]:
    path = "metadata.name"
    if not isinstance(name, str) or not name:
        yield field_errors.required(path, "name or generateName is required")
    elif kind.kind in KINDS_NAMED_BY_LABEL and not kind.group:
        yield from validate_dns_label(path, name)
    else:
        yield from validate_subdomain(path, name)


def validate_dns_label(path: str, name: str) -> Iterator[Cause]:
    if len(name) > MAX_LABEL_LENGTH:
        yield field_errors.invalid(path, name, f"must be no more than {MAX_LABEL_LENGTH} characters")
    if not LABEL_PATTERN.fullmatch(name):
        yield field_errors.invalid(
            path, name, "must not contain dots" if SUBDOMAIN_PATTERN.fullmatch(name) else LABEL_ERROR
        )


def validate_subdomain(path: str, name: str) -> Iterator[Cause]:
    if len(name) > MAX_SUBDOMAIN_LENGTH:
        yield field_errors.invalid(path, name, f"must be no more than {MAX_SUBDOMAIN_LENGTH} characters")
    if not SUBDOMAIN_PATTERN.fullmatch(name):
        yield field_errors.invalid(path, name, SUBDOMAIN_ERROR)


def validate_labels(labels: object, path: str) -> Iterator[Cause]:
    for key, value in string_items(labels):
        yield from validate_label_key(key, path)
        if len(value) > MAX_LABEL_LENGTH:
            yield field_errors.invalid(path, value, f"must be no more than {MAX_LABEL_LENGTH} bytes")
        if value and not KEY_PATTERN.fullmatch(value):
            yield field_errors.invalid(path, value, LABEL_VALUE_ERROR)


def validate_annotations(annotations: object) -> Iterator[Cause]:
    path = "metadata.annotations"
    size = 0
    for key, value in string_items(annotations):
        yield from validate_label_key(key, path)
        size += len(key) + len(value.encode())
    if size > MAX_ANNOTATIONS_BYTES:
        yield field_errors.too_long(path, MAX_ANNOTATIONS_BYTES)


def validate_label_key(key: str, path: str) -> Iterator[Cause]:
    """A key is a name with an optional domain: `example.com/name`."""
    prefix, slash, name = key.rpartition("/")
    if slash and not SUBDOMAIN_PATTERN.fullmatch(prefix.lower()):
        detail = f"prefix part {SUBDOMAIN_ERROR}" if prefix else "prefix part must be non-empty"
        yield field_errors.invalid(path, key, detail)
    if not name:
        yield field_errors.invalid(path, key, "name part must be non-empty")
    if len(name) > MAX_LABEL_LENGTH:
        yield field_errors.invalid(path, key, f"name part must be no more than {MAX_LABEL_LENGTH} bytes")
    if not KEY_PATTERN.fullmatch(name):
        yield field_errors.invalid(path, key, KEY_ERROR)


def validate_finalizers(kind: Kind, finalizers: object) -> Iterator[Cause]:
    """A built-in kind's finalizer is a standard one or has a domain; a custom kind's may be any valid name."""
    for index, each in enumerate(finalizers if isinstance(finalizers, list) else ()):
        if not isinstance(each, str) or "/" in each or each in STANDARD_FINALIZERS:
            continue
        path = "metadata.finalizers" if kind.custom else f"metadata.finalizers[{index}]"
        if not KEY_PATTERN.fullmatch(each):
            yield field_errors.invalid(path, each, KEY_ERROR)
        elif not kind.custom:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield field_errors.invalid(path, each, detail)


def finalizer_warnings(kind: Kind, metadata: Manifest, old_metadata: Manifest) -> tuple[str, ...]:
    """A warning for each finalizer without a path that is added to an object of a custom kind."""
    if not kind.custom:
        return ()
    before = (*STANDARD_FINALIZERS, *(old_metadata.get("finalizers") or ()))
    added = [each for each in metadata.get("finalizers") or () if "/" not in each and each not in before]
    advice = (
        "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other "
        "finalizer writers"
    )
    return tuple(f"metadata.finalizers: {field_errors.to_json(each)}: {advice}" for each in added)


def validate_owner_references(owners: object) -> Iterator[Cause]:
    path = "metadata.ownerReferences"
    controllers = []
    for owner in owners if isinstance(owners, list) else ():
        if not isinstance(owner, dict):
            continue
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                detail = "version must not be empty" if key == "apiVersion" else "must not be empty"
                yield field_errors.invalid(f"{path}.{key}", "", detail)
        if owner.get("controller"):
            controllers.append(owner)
    if len(controllers) > 1:
        first, second = (f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2])
        detail = (
            f'Only one reference can have Controller set to true. Found "true" in references for {first} and {second}'
        )
        yield field_errors.invalid(path, owners, detail)


def string_items(value: object) -> Iterator[tuple[str, str]]:
    """The entries of a map of strings; values of other types are type errors already."""
    entries: dict[str, Any] = value if isinstance(value, dict) else {}
    return ((key, each) for key, each in entries.items() if isinstance(each, str))
