"""Makes and changes objects: create, update, patch, and the same through the status subresource.

Everything between the decoded request and the store is done without a pause, so that no two writes can interleave.
"""

import uuid
from collections.abc import Callable

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import Cause
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.answers import Answer, told
from paddle_operator.local.apiserver.api_errors import Malformed, Refusal
from paddle_operator.local.apiserver.registry.object_meta import (
    changed_metadata_problems,
    check_place,
    check_type,
    kept_metadata,
    metadata_of,
    new_metadata,
    random_name,
)
from paddle_operator.local.apiserver.registry.resource import Resource, Resources
from paddle_operator.local.apiserver.registry.strategy import strategy_of
from paddle_operator.local.apiserver.request_info import WriteOptions
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.storage.sqlite import Store
from paddle_operator.local.apiserver.storage.watch_cache import Record
from paddle_operator.local.apiserver.validation import causes
from paddle_operator.local.apiserver.validation.object import completed, unknown_fields
from paddle_operator.local.apiserver.validation.object import problems as problems_of

NAMES_TRIED = 8

Edit = Callable[[Manifest], Manifest]
"""Makes of an object, which it leaves as it is, what somebody wants it to be."""


class Writer:
    def __init__(self, store: Store, resources: Resources, clock: Clock) -> None:
        self._store = store
        self._resources = resources
        self._clock = clock

    def create(self, resource: Resource, namespace: str, manifest: Manifest, options: WriteOptions) -> Answer:
        """Raises Refusal."""
        kind = resource.kind
        check_type(kind, manifest)
        metadata = metadata_of(manifest)
        check_place(metadata, namespace)
        warnings = _field_warnings(kind, manifest, options)
        name = metadata.get("name") or ""
        if base := not name and metadata.get("generateName"):
            name = self._free_name(resource, namespace, str(base))
        self._check_namespace(resource, namespace, name)
        if not name:
            missing = causes.required("metadata.name", "name or generateName is required")
            raise api_errors.invalid(kind, "", [missing])
        now = self._clock.now()
        metadata = new_metadata({**metadata, "name": name}, namespace, str(uuid.uuid4()), now)
        new = completed(kind, {**manifest, "metadata": metadata})
        strategy = strategy_of(kind)
        _check(kind, new, None, lambda: strategy.refuses(new))
        strategy.make_ready(new, resource.table)
        if strategy.counts_generations:
            new["metadata"]["generation"] = 1
        key = resource.key(namespace, name)
        if resource.table.get(key):
            raise api_errors.already_exists(kind, name)
        stored = resource.stored(new)
        if options.dry_run:
            return told(new, 201, warnings)
        return Answer(resource.body(self._store.put(resource.table, key, stored)), 201, warnings)

    def update(self, resource: Resource, key: Key, manifest: Manifest, options: WriteOptions, part: str = "") -> Answer:
        """Replace an object, or its status. Raises Refusal."""
        kind = resource.kind
        check_type(kind, manifest)
        metadata = metadata_of(manifest)
        check_place(metadata, key.namespace, key.name)
        strategy = strategy_of(kind)
        record = resource.table.get(key)
        if record is None:
            if strategy.made_by_put and not part:
                return self.create(resource, key.namespace, manifest, options)
            raise api_errors.not_found(kind, key.name)
        if strategy.needs_version and not metadata.get("resourceVersion"):
            raise _version_missing(kind, key.name)
        if metadata.get("uid") not in (None, "", record.uid):
            raise api_errors.conflict(
                kind,
                key.name,
                f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {record.uid}",
            )
        return self._change(resource, record, manifest, options, part)

    def edit(self, resource: Resource, key: Key, edit: Edit, options: WriteOptions, part: str = "") -> Answer:
        """Change an object, or its status, as a patch says. Raises Refusal."""
        record = resource.table.get(key)
        if record is None:
            raise api_errors.not_found(resource.kind, key.name)
        wanted = edit(resource.manifest(record))
        check_place(metadata_of(wanted), key.namespace, key.name)
        try:
            check_type(resource.kind, wanted)
            return self._change(resource, record, wanted, options, part)
        except Malformed as problem:  # the fault is the patch's
            cause = causes.invalid("patch", key.name, str(problem))
            raise api_errors.invalid(resource.kind, key.name, [cause]) from None

    def put(self, resource: Resource, record: Record, new: Manifest) -> Record:
        """Write a state that this server itself has decided on."""
        return self._store.put(resource.table, record.key, resource.stored(new))

    def remove(self, resource: Resource, record: Record, last: Manifest) -> Record:
        return self._store.remove(resource.table, record, resource.stored(last))

    def _change(self, resource: Resource, record: Record, wanted: Manifest, options: WriteOptions, part: str) -> Answer:
        kind, name = resource.kind, record.key.name
        if metadata_of(wanted).get("resourceVersion") not in (None, "", str(record.version)):
            raise api_errors.stale(kind, name)
        warnings = _field_warnings(kind, wanted, options)
        old = resource.manifest(record)
        new = completed(kind, {**wanted, "metadata": kept_metadata(metadata_of(wanted), old["metadata"])})
        new = _status_only(kind, new, old) if part == "status" else _all_but_status(kind, new, old)
        strategy = strategy_of(kind)
        strategy.bring_along(new, old)
        _check(
            kind,
            new,
            old,
            lambda: changed_metadata_problems(new["metadata"], old["metadata"]) + strategy.refuses(new),
        )
        if new == old:
            return Answer(resource.body(record), 200, warnings)
        if strategy.counts_generations and part != "status" and _asks_for_more(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if options.dry_run:
            return told(new, 200, warnings)
        if _has_ended(kind, new["metadata"]):
            answer = told(new, 200, warnings)  # before the deletion's version is in it, as kube-apiserver has it
            self.remove(resource, record, new)
            return answer
        return Answer(resource.body(self.put(resource, record, new)), 200, warnings)

    def _free_name(self, resource: Resource, namespace: str, base: str) -> str:
        for _ in range(NAMES_TRIED):
            name = random_name(base)
            if resource.table.get(resource.key(namespace, name)) is None:
                break
        return name

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
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
    """What to say of fields that are not kept. Raises Refusal where the writer wants them refused."""
    if options.validation == "Ignore":
        return ()
    unknown = unknown_fields(kind, manifest)
    if unknown and options.validation == "Strict":
        raise Malformed(kind, kind.kind, f"strict decoding error: {', '.join(unknown)}")
    return tuple(unknown)


def _check(kind: Kind, new: Manifest, old: Manifest | None, more: Callable[[], list[Cause]]) -> None:
    """Raises Refusal. `more` is asked only where the types are right, so that it need not look at them."""
    problems = problems_of(kind, new, old)
    mistyped = [problem for problem in problems if problem.reason == causes.MISTYPED]
    if not mistyped:
        problems += more()
    if not problems:
        return
    if mistyped and not kind.custom:
        raise Malformed(kind, kind.kind, "; ".join(f"{problem.field}: {problem.message}" for problem in mistyped))
    raise api_errors.invalid(kind, new["metadata"].get("name", ""), problems)


def _version_missing(kind: Kind, name: str) -> Refusal:
    problem = causes.invalid("metadata.resourceVersion", 0, "must be specified for an update")
    return Refusal(
        422,
        f'{api_errors.resource_name(kind)} "{name}" is invalid: {problem.field}: {problem.message}',
        details=api_errors.about(kind, name),
        causes=[problem],
    )


def _status_only(kind: Kind, new: Manifest, old: Manifest) -> Manifest:
    """A write of the status leaves all else; of built-in kinds it may change labels and the like, as kubelets do."""
    kept = {name: value for name, value in old.items() if name != "status"}
    if not kind.custom:
        owners = old["metadata"].get("ownerReferences")
        metadata = {name: value for name, value in new["metadata"].items() if name != "ownerReferences"}
        kept["metadata"] = metadata | ({"ownerReferences": owners} if owners else {})
    return kept | ({"status": new["status"]} if "status" in new else {})


def _all_but_status(kind: Kind, new: Manifest, old: Manifest) -> Manifest:
    if not kind.has_status:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return kept | ({"status": old["status"]} if "status" in old else {})


def _asks_for_more(new: Manifest, old: Manifest) -> bool:
    """Whether anything but metadata and status differs."""
    aside = ("metadata", "status")
    return {name: value for name, value in new.items() if name not in aside} != {
        name: value for name, value in old.items() if name not in aside
    }


def _has_ended(kind: Kind, metadata: Manifest) -> bool:
    """Marked for deletion, and nothing holds it any more; a namespace is held by what is in it."""
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds") or kind.plural == "namespaces"
    return bool(metadata.get("deletionTimestamp")) and not held
