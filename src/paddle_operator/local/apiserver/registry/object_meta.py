"""What an API server does with the metadata of an object: what it fills in, and what it lets nobody change."""

import random
from datetime import UTC, datetime

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.api_errors import Malformed, Refusal, bad_request
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.validation import causes

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: nobody's name is a word that should not be there
_LONGEST_BASE = 58  # 63 less the five letters

KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "generateName")


def told_time(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def random_name(base: str) -> str:
    return base[:_LONGEST_BASE] + "".join(random.choices(_LETTERS, k=5))  # noqa: S311


def metadata_of(manifest: Manifest) -> Manifest:
    metadata = manifest.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object with at least a name")
    return metadata


def check_type(kind: Kind, manifest: Manifest) -> None:
    """Version and kind may be left out, as the URL says them; what they say must be true. Raises Refusal."""
    version, name = manifest.get("apiVersion") or kind.api_version, manifest.get("kind") or kind.kind
    if (version, name) == (kind.api_version, kind.kind):
        return
    if isinstance(version, str) and version == kind.api_version:
        raise Malformed(kind, str(name), "send it to the URL of its own kind")
    raise Malformed(kind, str(name), f'its apiVersion is "{version}", but must be {kind.api_version}')


def check_place(metadata: Manifest, namespace: str, name: str = "") -> None:
    """Namespace and name may be left out, as the URL says them; what they say must be true. Raises Refusal."""
    if metadata.get("namespace") not in (None, "", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    told = metadata.get("name")
    if name and not told:
        raise bad_request("name must be provided")
    if name and told != name:
        raise bad_request(f"the name of the object ({told}) does not match the name on the URL ({name})")


def _shown(metadata: Manifest) -> Manifest:
    """Without what is empty, and with the texts that null stands for in a map of texts."""
    shown = {name: value for name, value in metadata.items() if value not in (None, {}, [])}
    for name in ("labels", "annotations"):
        if isinstance(texts := shown.get(name), dict) and None in texts.values():
            shown[name] = {key: "" if text is None else text for key, text in texts.items()}
    return shown


def new_metadata(metadata: Manifest, namespace: str, uid: str, now: datetime) -> Manifest:
    """Of an object that is about to be made; its name is there already."""
    if metadata.get("resourceVersion"):
        raise Refusal(500, "resourceVersion should not be set on objects to be created", reason="")
    made = _shown(metadata)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink", "namespace"):
        made.pop(name, None)
    if namespace:
        made["namespace"] = namespace
    return made | {"uid": uid, "creationTimestamp": told_time(now)}


def kept_metadata(new: Manifest, old: Manifest) -> Manifest:
    """Of an object that is about to be changed: what the writer left out or may not decide stays as it was."""
    kept = _shown(new)
    for name in ("managedFields", "selfLink"):
        kept.pop(name, None)
    for name in ("creationTimestamp", "generation", "resourceVersion", "namespace", "generateName"):
        kept.pop(name, None)
        if name in old:
            kept[name] = old[name]
    if "deletionTimestamp" in old:
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            kept.pop(name, None)
            if name in old:
                kept[name] = old[name]
    return {"uid": old["uid"]} | kept


def changed_metadata_problems(new: Manifest, old: Manifest) -> list[Cause]:
    """What is wrong with a change of the metadata."""
    problems = [
        causes.invalid(f"metadata.{name}", new.get(name), "field is immutable")
        for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if new.get(name) != old.get(name)
    ]
    if old.get("deletionTimestamp"):
        before = old.get("finalizers") or ()
        if added := [name for name in new.get("finalizers") or () if name not in before]:
            told = ", ".join(f'"{name}"' for name in added)
            sentence = "no new finalizers can be added if the object is being deleted"
            told = f"{sentence}, found new finalizers []string{{{told}}}"
            problems.append(causes.forbidden("metadata.finalizers", told))
    return problems
