"""How are objects created, updated and patched, also through the status subresource?

There is no await between the decoded request and the store, so writes cannot interleave.
"""

import uuid
from collections.abc import Callable

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import Cause
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.api_errors import MalformedObject, StatusError
from paddle_operator.local.apiserver.registry.object_meta import (
    check_name,
    check_type,
    metadata_of,
    new_metadata,
    random_name,
    updated_metadata,
    validate_metadata_update,
)
from paddle_operator.local.apiserver.registry.resource import APIResource, APIResponse, ResourceRegistry, json_response
from paddle_operator.local.apiserver.registry.strategy import strategy_of
from paddle_operator.local.apiserver.request_info import WriteOptions
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.storage.sqlite import ObjectStore
from paddle_operator.local.apiserver.storage.watch_cache import Record
from paddle_operator.local.apiserver.validation import field_errors
from paddle_operator.local.apiserver.validation.object import (
    finalizer_warnings,
    normalize,
    unknown_fields,
    validate,
)

MAX_NAME_ATTEMPTS = 8

Mutation = Callable[[Manifest], Manifest]
"""Returns the changed copy of an object."""


class ObjectWriter:
    def __init__(self, store: ObjectStore, resources: ResourceRegistry, clock: Clock) -> None:
        self._store = store
        self._resources = resources
        self._clock = clock

    def create(self, resource: APIResource, namespace: str, manifest: Manifest, options: WriteOptions) -> APIResponse:
        """Raises StatusError."""
        kind = resource.kind
        check_type(kind, manifest)
        metadata = metadata_of(manifest)
        check_name(metadata, namespace)
        warnings = _field_warnings(kind, manifest, options)
        name = metadata.get("name") or ""
        if base := not name and metadata.get("generateName"):
            name = self._free_name(resource, namespace, str(base))
        self._check_namespace(resource, namespace, name)
        if not name:
            error = field_errors.required("metadata.name", "name or generateName is required")
            raise api_errors.invalid(kind, "", [error])
        now = self._clock.now()
        metadata = new_metadata({**metadata, "name": name}, namespace, str(uuid.uuid4()), now)
        new = normalize(kind, {**manifest, "metadata": metadata})
        strategy = strategy_of(kind)
        _check(kind, new, None, lambda: strategy.validate(new))
        warnings += finalizer_warnings(kind, metadata, {})
        strategy.prepare_for_create(new, resource.table)
        if strategy.tracks_generation:
            new["metadata"]["generation"] = 1
        key = resource.key(namespace, name)
        if resource.table.get(key):
            raise api_errors.already_exists(kind, name)
        stored = resource.to_storage(new)
        if options.dry_run:
            return json_response(new, 201, warnings)
        return APIResponse(resource.body(self._store.put(resource.table, key, stored)), 201, warnings)

    def update(
        self, resource: APIResource, key: Key, manifest: Manifest, options: WriteOptions, subresource: str = ""
    ) -> APIResponse:
        """Replace an object, or its status. Raises StatusError."""
        kind = resource.kind
        check_type(kind, manifest)
        metadata = metadata_of(manifest)
        check_name(metadata, key.namespace, key.name)
        strategy = strategy_of(kind)
        record = resource.table.get(key)
        if record is None:
            if strategy.allow_create_on_update and not subresource:
                return self.create(resource, key.namespace, manifest, options)
            raise api_errors.not_found(kind, key.name)
        if not strategy.allow_unconditional_update and not metadata.get("resourceVersion"):
            raise _missing_version(kind, key.name)
        if metadata.get("uid") not in (None, "", record.uid):
            raise api_errors.conflict(
                kind,
                key.name,
                f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {record.uid}",
            )
        return self._update(resource, record, manifest, options, subresource)

    def patch(
        self, resource: APIResource, key: Key, mutate: Mutation, options: WriteOptions, subresource: str = ""
    ) -> APIResponse:
        """Apply a mutation to an object or its status. Raises StatusError."""
        record = resource.table.get(key)
        if record is None:
            raise api_errors.not_found(resource.kind, key.name)
        new = mutate(resource.manifest(record))
        check_name(metadata_of(new), key.namespace, key.name)
        try:
            check_type(resource.kind, new)
            return self._update(resource, record, new, options, subresource)
        except MalformedObject as error:  # caused by the patch
            cause = field_errors.invalid("patch", key.name, str(error))
            raise api_errors.invalid(resource.kind, key.name, [cause]) from None

    def put(self, resource: APIResource, record: Record, new: Manifest) -> Record:
        """Write an object without validation, for changes by the server itself."""
        return self._store.put(resource.table, record.key, resource.to_storage(new))

    def delete(self, resource: APIResource, record: Record, last: Manifest) -> Record:
        return self._store.delete(resource.table, record, resource.to_storage(last))

    def _update(
        self, resource: APIResource, record: Record, requested: Manifest, options: WriteOptions, subresource: str
    ) -> APIResponse:
        kind, name = resource.kind, record.key.name
        if metadata_of(requested).get("resourceVersion") not in (None, "", str(record.version)):
            raise api_errors.modified_conflict(kind, name)
        warnings = _field_warnings(kind, requested, options)
        old = resource.manifest(record)
        new = normalize(kind, {**requested, "metadata": updated_metadata(metadata_of(requested), old["metadata"])})
        new = _replace_status(kind, new, old) if subresource == "status" else _keep_status(kind, new, old)
        strategy = strategy_of(kind)
        strategy.prepare_for_update(new, old)
        _check(
            kind,
            new,
            old,
            lambda: validate_metadata_update(new["metadata"], old["metadata"]) + strategy.validate(new),
        )
        warnings += finalizer_warnings(kind, new["metadata"], old["metadata"])
        if new == old:
            return APIResponse(resource.body(record), 200, warnings)
        if strategy.tracks_generation and subresource != "status" and _has_spec_change(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if options.dry_run:
            return json_response(new, 200, warnings)
        if _is_deletable(kind, new["metadata"]):
            response = json_response(new, 200, warnings)  # with the old version, as kube-apiserver responds
            self.delete(resource, record, new)
            return response
        return APIResponse(resource.body(self.put(resource, record, new)), 200, warnings)

    def _free_name(self, resource: APIResource, namespace: str, base: str) -> str:
        for _ in range(MAX_NAME_ATTEMPTS):
            name = random_name(base)
            if resource.table.get(resource.key(namespace, name)) is None:
                break
        return name

    def _check_namespace(self, resource: APIResource, namespace: str, name: str) -> None:
        if not resource.kind.namespaced:
            return
        namespaces = self._resources.find("", "v1", "namespaces")
        if namespaces is None:
            return
        record = namespaces.table.get(Key("", namespace))
        if record is None:
            raise api_errors.not_found(namespaces.kind, namespace)
        if record.fields["status.phase"] == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("metadata.namespace", f"namespace {namespace} is being terminated", "NamespaceTerminating")
            raise api_errors.forbidden(resource.kind, name, why, [cause])


def _field_warnings(kind: Kind, manifest: Manifest, options: WriteOptions) -> tuple[str, ...]:
    """A warning for each unknown field. Raises StatusError if fieldValidation is Strict."""
    if options.validation == "Ignore":
        return ()
    unknown = unknown_fields(kind, manifest)
    if unknown and options.validation == "Strict":
        raise MalformedObject(kind, kind.kind, f"strict decoding error: {', '.join(unknown)}")
    return tuple(unknown)


def _check(kind: Kind, new: Manifest, old: Manifest | None, validate_rules: Callable[[], list[Cause]]) -> None:
    """Raises StatusError. `validate_more` runs only if all types are right, so it need not check them."""
    errors = validate(kind, new, old)
    type_errors = [error for error in errors if error.reason == field_errors.TYPE_INVALID]
    if not type_errors:
        errors += validate_rules()
    if not errors:
        return
    if type_errors and not kind.custom:
        raise MalformedObject(kind, kind.kind, "; ".join(f"{error.field}: {error.message}" for error in type_errors))
    raise api_errors.invalid(kind, new["metadata"].get("name", ""), errors)


def _missing_version(kind: Kind, name: str) -> StatusError:
    error = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
    return StatusError(
        422,
        f'{kind.group_resource} "{name}" is invalid: {error.field}: {error.message}',
        details=api_errors.status_details(kind, name),
        causes=[error],
    )


def _replace_status(kind: Kind, new: Manifest, old: Manifest) -> Manifest:
    """The old object with the new status; of built-in kinds also with new metadata, which kubelets write."""
    updated = {name: value for name, value in old.items() if name != "status"}
    if not kind.custom:
        owners = old["metadata"].get("ownerReferences")
        metadata = {name: value for name, value in new["metadata"].items() if name != "ownerReferences"}
        updated["metadata"] = metadata | ({"ownerReferences": owners} if owners else {})
    return updated | ({"status": new["status"]} if "status" in new else {})


def _keep_status(kind: Kind, new: Manifest, old: Manifest) -> Manifest:
    if not kind.has_status:
        return new
    updated = {name: value for name, value in new.items() if name != "status"}
    return updated | ({"status": old["status"]} if "status" in old else {})


def _has_spec_change(new: Manifest, old: Manifest) -> bool:
    """Whether anything except metadata and status differs."""
    names = (new.keys() | old.keys()) - {"metadata", "status"}
    return any(name not in new or name not in old or new[name] != old[name] for name in names)


def _is_deletable(kind: Kind, metadata: Manifest) -> bool:
    """Terminating without finalizers and grace period. A namespace is deleted by the garbage collector when empty."""
    is_blocked = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds") or kind.plural == "namespaces"
    return bool(metadata.get("deletionTimestamp")) and not is_blocked
