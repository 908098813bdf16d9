"""Creates a job and the objects beside it in a cluster, and deletes a job."""

import asyncio
from typing import Any

from paddle_operator.client.manifests import Document, UsageError
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import AlreadyExists, Conflict, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Object, Resource, StoredObject
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, job_view

CLUSTER_SCOPED_KINDS = frozenset({"PersistentVolume", "Namespace", "Node"})
CREATED = "created"
RECREATED = "created again: the previous job of this name had finished"
UNCHANGED = "unchanged: a job with this spec already exists"


def resource_of(document: Document) -> Resource[Object]:
    """The resource of a manifest. The plurals of all kinds that are used beside a job are regular."""
    version, kind = str(document["apiVersion"]), str(document["kind"])
    prefix = f"apis/{version}" if "/" in version else f"api/{version}"
    return Resource(prefix, kind.lower() + "s", Object, namespaced=kind not in CLUSTER_SCOPED_KINDS)


def with_namespace(document: Document, namespace: str) -> Document:
    """The manifest with this namespace, unless it names one or its kind is cluster-scoped."""
    if document["kind"] in CLUSTER_SCOPED_KINDS:
        return document
    metadata = {**document["metadata"], "namespace": document["metadata"].get("namespace") or namespace}
    return {**document, "metadata": metadata}


async def apply_other_objects(client: Client, documents: list[Document], *, dry_run: bool = False) -> None:
    """Create the objects beside the job; merge those that exist."""
    for document in documents:
        resource = resource_of(document)
        try:
            await client.create(resource, document, strict=True, dry_run=dry_run)
        except AlreadyExists:
            if not dry_run:
                metadata = document["metadata"]
                key = Key(metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
                await client.merge(resource, key, document)


async def submit(client: Client, job: Document) -> tuple[Job, str]:
    """Create the job; returns it with CREATED, RECREATED or UNCHANGED. A finished job of its name is deleted first.

    Raises UsageError where another job of this name has not finished.
    """
    key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
    try:
        return await _create(client, job), CREATED
    except AlreadyExists:
        pass
    try:
        manifest = await client.get_manifest(PADDLE_JOBS, key)
        stored = job_view(await client.get(PADDLE_JOBS, key))
    except NotFound:  # deleted meanwhile, for instance by its ttlSecondsAfterFinished
        return await _create(client, job), CREATED
    if stored.finished:
        await delete_and_wait(client, stored)
        return await _create(client, job), RECREATED
    is_terminating = stored.metadata.deletion_timestamp is not None
    if not is_terminating and is_subset(without_suspend(job.get("spec")), manifest.get("spec")):
        return stored, UNCHANGED
    raise UsageError(
        f"{key} is {stored.status.phase or 'Pending'} with another spec: "
        f"delete it first (paddlejob delete {key.name}), or choose another name (--name)"
    )


async def _create(client: Client, job: Document) -> Job:
    return job_view(await client.create(PADDLE_JOBS, job, strict=True))


def without_suspend(spec: Any) -> Any:
    """The spec without `suspend`, which may change while the job exists: it remains the same job."""
    return {name: value for name, value in spec.items() if name != "suspend"} if isinstance(spec, dict) else spec


def is_subset(desired: Any, stored: Any) -> bool:
    """Whether every desired field is stored; the server may have added defaults."""
    if isinstance(desired, dict):
        return isinstance(stored, dict) and all(is_subset(each, stored.get(name)) for name, each in desired.items())
    if isinstance(desired, list):
        return (
            isinstance(stored, list)
            and len(desired) == len(stored)
            and all(is_subset(one, other) for one, other in zip(desired, stored, strict=True))
        )
    return bool(desired == stored)


async def delete_and_wait(client: Client, job: Job, *, grace_seconds: int | None = None) -> None:
    """Delete the job, and return when it and its pods no longer exist."""
    async with DeletionWatch(client, job.key, job.uid) as deleted:
        try:
            await client.delete(
                PADDLE_JOBS, job.key, uid=job.uid, propagation="Foreground", grace_seconds=grace_seconds
            )
        except (NotFound, Conflict):
            return
        await deleted


class DeletionWatch:
    """Watches a job from before its deletion, so that the deletion is not missed. Entering it gives a future."""

    def __init__(self, client: Client, key: Key, uid: str) -> None:
        self._informer: Informer[StoredObject, Job] = Informer(
            client, PADDLE_JOBS, Scope(key.namespace, fields=f"metadata.name={key.name}"), project=job_view
        )
        self._key, self._uid = key, uid

    async def __aenter__(self) -> "asyncio.Future[None]":
        self._deleted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._informer.store.listen(lambda _old, new, _priority: self._check(new))
        self._task = asyncio.ensure_future(self._informer.run())
        await self._informer.wait_synced()
        self._check(self._informer.store.get(self._key))
        return self._deleted

    def _check(self, job: Job | None) -> None:
        if (job is None or job.uid != self._uid) and not self._deleted.done():
            self._deleted.set_result(None)

    async def __aexit__(self, *_: object) -> None:
        self._deleted.cancel()
        self._task.cancel()
        await asyncio.wait((self._task,))
