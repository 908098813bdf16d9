"""What does the API server do with an object's metadata on create and update?"""

import random
from datetime import datetime

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.api_errors import MalformedObject, StatusError, bad_request
from paddle_operator.local.apiserver.scheme.canonical import format_time
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.validation import field_errors

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as apimachinery: no vowels, so no words
_SUFFIX_LENGTH = 5
_MAX_BASE_LENGTH = 63 - _SUFFIX_LENGTH


def random_name(base: str) -> str:
    return base[:_MAX_BASE_LENGTH] + "".join(random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))  # noqa: S311


def metadata_of(manifest: Manifest) -> Manifest:
    metadata = manifest.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    return metadata


def check_type(kind: Kind, manifest: Manifest) -> None:
    """apiVersion and kind may be omitted, but must match the URL. Raises StatusError."""
    version, name = manifest.get("apiVersion") or kind.api_version, manifest.get("kind") or kind.kind
    if (version, name) == (kind.api_version, kind.kind):
        return
    if isinstance(version, str) and version == kind.api_version:
        raise MalformedObject(kind, str(name), "send it to the URL of its kind")
    raise MalformedObject(kind, str(name), f'its apiVersion is "{version}", but must be {kind.api_version}')


def check_name(metadata: Manifest, namespace: str, name: str = "") -> None:
    """Namespace and name may be omitted, but must match the URL. Raises StatusError."""
    if metadata.get("namespace") not in (None, "", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    body_name = metadata.get("name")
    if name and not body_name:
        raise bad_request("name must be provided")
    if name and body_name != name:
        raise bad_request(f"the name of the object ({body_name}) does not match the name on the URL ({name})")


def _without_empty(metadata: Manifest) -> Manifest:
    """Drop empty fields; a null in a map of strings becomes an empty string, as in Go."""
    fields = {name: value for name, value in metadata.items() if value not in (None, {}, [])}
    for name in ("labels", "annotations"):
        if isinstance(strings := fields.get(name), dict) and None in strings.values():
            fields[name] = {key: "" if text is None else text for key, text in strings.items()}
    return fields


def new_metadata(metadata: Manifest, namespace: str, uid: str, now: datetime) -> Manifest:
    """The metadata of an object on create; its name is set already."""
    if metadata.get("resourceVersion"):
        raise StatusError(500, "resourceVersion should not be set on objects to be created", reason="")
    new = _without_empty(metadata)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink", "namespace"):
        new.pop(name, None)
    if namespace:
        new["namespace"] = namespace
    return new | {"uid": uid, "creationTimestamp": format_time(now)}


def updated_metadata(new: Manifest, old: Manifest) -> Manifest:
    """The metadata of an object on update: fields that the client may not set keep their old values."""
    updated = _without_empty(new)
    for name in ("managedFields", "selfLink"):
        updated.pop(name, None)
    for name in ("creationTimestamp", "generation", "resourceVersion", "namespace", "generateName"):
        updated.pop(name, None)
        if name in old:
            updated[name] = old[name]
    if "deletionTimestamp" in old:
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            updated.pop(name, None)
            if name in old:
                updated[name] = old[name]
    return {"uid": old["uid"]} | updated


def validate_metadata_update(new: Manifest, old: Manifest) -> list[Cause]:
    errors = [
        field_errors.invalid(f"metadata.{name}", new.get(name), "field is immutable")
        for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if new.get(name) != old.get(name)
    ]
    if old.get("deletionTimestamp"):
        before = old.get("finalizers") or ()
        if added := [name for name in new.get("finalizers") or () if name not in before]:
            names = ", ".join(f'"{name}"' for name in added)
            message = "no new finalizers can be added if the object is being deleted"
            detail = f"{message}, found new finalizers []string{{{names}}}"
            errors.append(field_errors.forbidden("metadata.finalizers", detail))
    return errors
