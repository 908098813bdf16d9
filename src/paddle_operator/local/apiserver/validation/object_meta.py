"""What may an object be called, and what may stand in its labels? The rules of Kubernetes, in its words."""

import re
from collections.abc import Iterator
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.validation import causes

LABEL_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_NAME = rf"{LABEL_NAME}(\.{LABEL_NAME})*"
KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
ONE_LABEL, ONE_SUBDOMAIN, ONE_KEY = re.compile(LABEL_NAME), re.compile(SUBDOMAIN_NAME), re.compile(KEY_NAME)
LONGEST_LABEL, LONGEST_SUBDOMAIN = 63, 253
LARGEST_ANNOTATIONS = 256 * 1024

NAMED_AS_LABELS = ("Namespace", "Service")
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")

NOT_A_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN_NAME}')"
)
NOT_A_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL_NAME}')"
)
NOT_A_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY_NAME}')"
)
NOT_A_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def metadata_problems(kind: Kind, manifest: Manifest) -> list[Cause]:
    found = manifest.get("metadata")
    metadata = found if isinstance(found, dict) else {}
    return [
        *name_problems(kind, metadata.get("name")),
        *label_problems(metadata.get("labels"), "metadata.labels"),
        *annotation_problems(metadata.get("annotations")),
        *finalizer_problems(kind, metadata.get("finalizers")),
        *owner_problems(metadata.get("ownerReferences")),
    ]


def name_problems(kind: Kind, name: object) -> Iterator[Cause]:
    path = "metadata.name"
    if not isinstance(name, str) or not name:
        yield causes.required(path, "name or generateName is required")
    elif kind.kind in NAMED_AS_LABELS and not kind.group:
        yield from label_name_problems(path, name)
    else:
        yield from subdomain_problems(path, name)


def label_name_problems(path: str, name: str) -> Iterator[Cause]:
    if len(name) > LONGEST_LABEL:
        yield causes.invalid(path, name, f"must be no more than {LONGEST_LABEL} characters")
    if not ONE_LABEL.fullmatch(name):
        yield causes.invalid(path, name, "must not contain dots" if ONE_SUBDOMAIN.fullmatch(name) else NOT_A_LABEL)


def subdomain_problems(path: str, name: str) -> Iterator[Cause]:
    if len(name) > LONGEST_SUBDOMAIN:
        yield causes.invalid(path, name, f"must be no more than {LONGEST_SUBDOMAIN} characters")
    if not ONE_SUBDOMAIN.fullmatch(name):
        yield causes.invalid(path, name, NOT_A_SUBDOMAIN)


def label_problems(labels: object, path: str) -> Iterator[Cause]:
    for key, value in texts(labels):
        yield from key_problems(key, path)
        if len(value) > LONGEST_LABEL:
            yield causes.invalid(path, value, f"must be no more than {LONGEST_LABEL} bytes")
        if value and not ONE_KEY.fullmatch(value):
            yield causes.invalid(path, value, NOT_A_VALUE)


def annotation_problems(annotations: object) -> Iterator[Cause]:
    path = "metadata.annotations"
    size = 0
    for key, value in texts(annotations):
        yield from key_problems(key, path)
        size += len(key) + len(value.encode())
    if size > LARGEST_ANNOTATIONS:
        yield causes.too_long(path, LARGEST_ANNOTATIONS)


def key_problems(key: str, path: str) -> Iterator[Cause]:
    """A label's key is a name, perhaps behind a domain: `example.com/name`."""
    prefix, slash, name = key.rpartition("/")
    if slash and not ONE_SUBDOMAIN.fullmatch(prefix.lower()):
        words = f"prefix part {NOT_A_SUBDOMAIN}" if prefix else "prefix part must be non-empty"
        yield causes.invalid(path, key, words)
    if not name:
        yield causes.invalid(path, key, "name part must be non-empty")
    if len(name) > LONGEST_LABEL:
        yield causes.invalid(path, key, f"name part must be no more than {LONGEST_LABEL} bytes")
    if not ONE_KEY.fullmatch(name):
        yield causes.invalid(path, key, NOT_A_KEY)


def finalizer_problems(kind: Kind, finalizers: object) -> Iterator[Cause]:
    """A built-in kind's finalizer is a standard one or has a domain; a custom kind's may be any valid name."""
    for index, each in enumerate(finalizers if isinstance(finalizers, list) else ()):
        if not isinstance(each, str) or "/" in each or each in STANDARD_FINALIZERS:
            continue
        path = f"metadata.finalizers[{index}]"
        if not ONE_KEY.fullmatch(each):
            yield causes.invalid(path, each, NOT_A_KEY)
        elif not kind.custom:
            words = "name is neither a standard finalizer name nor is it fully qualified"
            yield causes.invalid(path, each, words)


def owner_problems(owners: object) -> Iterator[Cause]:
    path = "metadata.ownerReferences"
    controllers = []
    for owner in owners if isinstance(owners, list) else ():
        if not isinstance(owner, dict):
            continue
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                words = "version must not be empty" if key == "apiVersion" else "must not be empty"
                yield causes.invalid(f"{path}.{key}", "", words)
        if owner.get("controller"):
            controllers.append(owner)
    if len(controllers) > 1:
        first, second = (f"{each.get('kind')}/{each.get('name')}" for each in controllers[:2])
        found = f'Found "true" in references for {first} and {second}'
        yield causes.invalid(path, owners, f"Only one reference can have Controller set to true. {found}")


def texts(value: object) -> Iterator[tuple[str, str]]:
    """The entries of a map of strings; a value of another type has been told of already."""
    entries: dict[str, Any] = value if isinstance(value, dict) else {}
    return ((key, each) for key, each in entries.items() if isinstance(each, str))
