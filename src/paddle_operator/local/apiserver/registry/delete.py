"""Ends objects: at once, after a pod's grace, or when the last finalizer is gone."""

from datetime import datetime, timedelta

from paddle_operator.kube.clock import Clock
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.answers import Answer, success, told
from paddle_operator.local.apiserver.api_errors import Refusal
from paddle_operator.local.apiserver.registry.create_update import Writer
from paddle_operator.local.apiserver.registry.object_meta import read_time, told_time
from paddle_operator.local.apiserver.registry.resource import Resource
from paddle_operator.local.apiserver.registry.strategy import strategy_of
from paddle_operator.local.apiserver.request_info import DeleteOptions
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.storage.watch_cache import Record

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
UNDELETABLE = ("default",)  # as kube-apiserver has it, where there are more of them


class Deleter:
    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    def delete(self, resource: Resource, record: Record | None, name: str, options: DeleteOptions) -> Answer:
        """Raises Refusal."""
        kind = resource.kind
        if record is None:
            raise api_errors.not_found(kind, name)
        left, gone = self.end(resource, record, options)
        if gone and not strategy_of(kind).answers_with_deleted:
            return success(details=api_errors.about(kind, name, uid=record.uid))
        return told(left)

    def end(self, resource: Resource, record: Record, options: DeleteOptions) -> tuple[Manifest, bool]:
        """What the object looks like then, and whether it is gone. Raises Refusal."""
        _check_preconditions(resource.kind, record, options)
        old, new = resource.manifest(record), resource.manifest(record)
        if (resource.kind.group, resource.kind.plural) == ("", "namespaces"):
            gone = self._mark_namespace(new)
        else:
            gone = self._mark(resource.kind, new, options)
        if options.dry_run or (new == old and not gone):
            return new, gone
        if gone:
            self._writer.remove(resource, record, new)
        else:
            self._writer.put(resource, record, new)
        return new, gone

    def _mark(self, kind: Kind, manifest: Manifest, options: DeleteOptions) -> bool:
        """Note the wish in the object, and say whether nothing holds it."""
        metadata = manifest["metadata"]
        finalizers = _finalizers_after(metadata.get("finalizers") or [], options.propagation)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        grace = _grace_seconds(kind, manifest, options)
        if grace is None:
            return not finalizers and not metadata.get("deletionGracePeriodSeconds") and _marked(metadata)
        now = self._clock.now()
        asked_at = _asked_at(metadata, now)
        if not _marked(metadata) and metadata.get("generation"):
            metadata["generation"] += 1
        if grace > 0 or finalizers or kind.plural == "pods":
            metadata["deletionTimestamp"] = told_time(asked_at + timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
        return grace == 0 and not finalizers

    def _mark_namespace(self, namespace: Manifest) -> bool:
        """It goes when it is empty, which is garbage.py's work."""
        metadata = namespace["metadata"]
        if metadata["name"] in UNDELETABLE:
            raise Refusal(
                403,
                f'namespaces "{metadata["name"]}" is forbidden: this namespace may not be deleted',
                details={"name": metadata["name"], "kind": "namespaces"},
            )
        if not _marked(metadata):
            metadata["deletionTimestamp"] = told_time(self._clock.now())
            namespace["status"] = (namespace.get("status") or {}) | {"phase": "Terminating"}
        return False


def _marked(metadata: Manifest) -> bool:
    return bool(metadata.get("deletionTimestamp"))


def _asked_at(metadata: Manifest, now: datetime) -> datetime:
    """When the deletion was first asked for: a shorter grace counts from then."""
    if not _marked(metadata):
        return now
    asked = read_time(metadata["deletionTimestamp"])
    return asked - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)


def _grace_seconds(kind: Kind, manifest: Manifest, options: DeleteOptions) -> int | None:
    """How long the object may take to end; None where an earlier wish stands."""
    metadata = manifest["metadata"]
    if (kind.group, kind.plural) != ("", "pods"):
        return None if _marked(metadata) else 0
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    grace = options.grace_seconds
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", 30)
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        grace = 0  # no node has to end it first
    if grace < 0:
        grace = 1
    if _marked(metadata) and grace >= metadata.get("deletionGracePeriodSeconds", 0):
        return None
    return int(grace)


def _finalizers_after(finalizers: list[str], propagation: str) -> list[str]:
    """A propagation policy is kept as a finalizer, which the garbage collector removes when it has done its part."""
    if not propagation:
        return finalizers
    kept = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    added = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(propagation, [])
    return kept + added


def _check_preconditions(kind: Kind, record: Record, options: DeleteOptions) -> None:
    why = ""
    if options.uid and options.uid != record.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({record.uid}). "
            "The object might have been deleted and then recreated"
        )
    elif options.resource_version and options.resource_version != str(record.version):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({record.version}). The object might have been modified"
        )
    if why:
        spelled = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        details = {"name": record.key.name, "kind": kind.kind} | ({"group": kind.group} if kind.group else {})
        raise Refusal(409, f'Operation cannot be fulfilled on {spelled} "{record.key.name}": {why}', details=details)
