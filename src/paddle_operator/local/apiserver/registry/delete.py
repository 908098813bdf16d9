"""How are objects deleted? At once, after a pod's grace period, or when the last finalizer is removed."""

from datetime import datetime, timedelta

from paddle_operator.kube.clock import Clock
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.api_errors import StatusError
from paddle_operator.local.apiserver.registry.create_update import ObjectWriter
from paddle_operator.local.apiserver.registry.resource import APIResource, APIResponse, json_response, success_response
from paddle_operator.local.apiserver.registry.strategy import strategy_of
from paddle_operator.local.apiserver.request_info import DeleteOptions
from paddle_operator.local.apiserver.scheme.canonical import format_time, parse_time
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.storage.watch_cache import Record

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
PROTECTED_NAMESPACES = ("default",)  # kube-apiserver protects its kube-* namespaces, too


class ObjectDeleter:
    def __init__(self, writer: ObjectWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    def delete(self, resource: APIResource, record: Record | None, name: str, options: DeleteOptions) -> APIResponse:
        """Raises StatusError."""
        kind = resource.kind
        if record is None:
            raise api_errors.not_found(kind, name)
        manifest, is_deleted = self.start_deletion(resource, record, options)
        if is_deleted and not strategy_of(kind).return_deleted_object:
            return success_response(details=api_errors.status_details(kind, name, uid=record.uid))
        return json_response(manifest)

    def start_deletion(self, resource: APIResource, record: Record, options: DeleteOptions) -> tuple[Manifest, bool]:
        """Delete an object or mark it as terminating.

        Returns its state after that and whether it is deleted. Raises StatusError.
        """
        _check_preconditions(resource.kind, record, options)
        old, new = resource.manifest(record), resource.manifest(record)
        if (resource.kind.group, resource.kind.plural) == ("", "namespaces"):
            is_deleted = self._mark_namespace(new)
        else:
            is_deleted = self._mark(resource.kind, new, options)
        if options.dry_run or (new == old and not is_deleted):
            return new, is_deleted
        if is_deleted:
            self._writer.delete(resource, record, new)
        else:
            self._writer.put(resource, record, new)
        return new, is_deleted

    def _mark(self, kind: Kind, manifest: Manifest, options: DeleteOptions) -> bool:
        """Set the deletion fields in the metadata; returns whether the object can be deleted now."""
        metadata = manifest["metadata"]
        finalizers = _finalizers_after(metadata.get("finalizers") or [], options.propagation)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        grace = _grace_seconds(kind, manifest, options)
        if grace is None:
            return not finalizers and not metadata.get("deletionGracePeriodSeconds") and _is_terminating(metadata)
        now = self._clock.now()
        requested_at = _requested_at(metadata, now)
        if not _is_terminating(metadata) and metadata.get("generation"):
            metadata["generation"] += 1
        if grace > 0 or finalizers or kind.plural == "pods":
            metadata["deletionTimestamp"] = format_time(requested_at + timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
        return grace == 0 and not finalizers

    def _mark_namespace(self, namespace: Manifest) -> bool:
        """Set the phase Terminating; the garbage collector deletes the namespace when it is empty."""
        metadata = namespace["metadata"]
        if metadata["name"] in PROTECTED_NAMESPACES:
            raise StatusError(
                403,
                f'namespaces "{metadata["name"]}" is forbidden: this namespace may not be deleted',
                details={"name": metadata["name"], "kind": "namespaces"},
            )
        if not _is_terminating(metadata):
            metadata["deletionTimestamp"] = format_time(self._clock.now())
            namespace["status"] = (namespace.get("status") or {}) | {"phase": "Terminating"}
        return False


def _is_terminating(metadata: Manifest) -> bool:
    return bool(metadata.get("deletionTimestamp"))


def _requested_at(metadata: Manifest, now: datetime) -> datetime:
    """When the deletion was first requested: a shorter grace period counts from then."""
    if not _is_terminating(metadata):
        return now
    deletion_time = parse_time(metadata["deletionTimestamp"])
    return deletion_time - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)


def _grace_seconds(kind: Kind, manifest: Manifest, options: DeleteOptions) -> int | None:
    """The new grace period; None if an earlier deletion request has an equal or shorter one."""
    metadata = manifest["metadata"]
    if (kind.group, kind.plural) != ("", "pods"):
        return None if _is_terminating(metadata) else 0
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    grace = options.grace_seconds
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", 30)
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        grace = 0  # no kubelet has to stop it first
    if grace < 0:
        grace = 1
    if _is_terminating(metadata) and grace >= metadata.get("deletionGracePeriodSeconds", 0):
        return None
    return int(grace)


def _finalizers_after(finalizers: list[str], propagation: str) -> list[str]:
    """A propagation policy is stored as a finalizer, which the garbage collector removes after its work."""
    if not propagation:
        return finalizers
    others = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    added = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(propagation, [])
    return others + added


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
        details = {"name": record.key.name, "kind": kind.kind} | ({"group": kind.group} if kind.group else {})
        raise StatusError(
            409, f'Operation cannot be fulfilled on {kind.group_kind} "{record.key.name}": {why}', details=details
        )
