"""Brings what the user wrote into a cluster, and says in one sentence what became of it."""

import asyncio
from typing import Any

from paddle_operator.client.manifests import CannotBeUsed, Document
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import AlreadyExists, Conflict, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Object, Resource
from paddle_operator.plan.children import Job
from paddle_operator.plan.job_view import PADDLE_JOBS, StoredJob, job_view

CLUSTER_WIDE = frozenset({"PersistentVolume", "Namespace", "Node"})
UNDER_WAY = "is under way already: following it"
PLURALS = {"PodGroup": "podgroups"}


def resource_of(document: Document) -> Resource[Object]:
    """Where objects of this kind are; plurals are regular in the kinds that stand beside a job."""
    version, kind = str(document["apiVersion"]), str(document["kind"])
    prefix = f"apis/{version}" if "/" in version else f"api/{version}"
    plural = PLURALS.get(kind) or kind.lower() + "s"
    return Resource(prefix, plural, Object, namespaced=kind not in CLUSTER_WIDE)


def placed(document: Document, namespace: str) -> Document:
    """With the namespace that is meant where the document names none."""
    if document["kind"] in CLUSTER_WIDE:
        return document
    metadata = {**document["metadata"], "namespace": document["metadata"].get("namespace") or namespace}
    return {**document, "metadata": metadata}


async def apply_beside(client: Client, documents: list[Document], *, dry_run: bool = False) -> None:
    """What stands beside the job: made where it is missing, changed where it differs."""
    for document in documents:
        kind = resource_of(document)
        try:
            await client.create(kind, document, strict=True, dry_run=dry_run)
        except AlreadyExists:
            if not dry_run:
                metadata = document["metadata"]
                key = Key(metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])
                await client.merge(kind, key, document)


async def submit(client: Client, job: Document) -> tuple[Job, str]:
    """The job in the cluster, and what was done. One that has finished makes way; one that runs is not touched.

    Raises CannotBeUsed where another one of the same name is under way.
    """
    key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
    try:
        return job_view(await client.create(PADDLE_JOBS, job, strict=True)), "created"
    except AlreadyExists:
        pass
    try:
        stored = await client.manifest(PADDLE_JOBS, key)
        found = job_view(await client.get(PADDLE_JOBS, key))
    except NotFound:  # it was just about to be deleted, as one that has finished and whose time to live is over
        return job_view(await client.create(PADDLE_JOBS, job, strict=True)), "created"
    if found.finished:
        await removed(client, found)
        return job_view(await client.create(PADDLE_JOBS, job, strict=True)), "run again: the one before had finished"
    if found.metadata.deletion_timestamp is None and within(but_suspended(job.get("spec")), stored.get("spec")):
        return found, UNDER_WAY
    raise CannotBeUsed(
        f"{key} is {found.status.phase or 'Pending'} with another spec: "
        f"delete it first (paddlejob delete {key.name}), or give this one another name (--name)"
    )


def but_suspended(spec: Any) -> Any:
    """Without `suspend`, which others change while the job is there: it is the same job all the time."""
    return {name: value for name, value in spec.items() if name != "suspend"} if isinstance(spec, dict) else spec


def within(wanted: Any, stored: Any) -> bool:
    """Everything that is wanted is stored; the server may have added defaults."""
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(within(each, stored.get(name)) for name, each in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(stored, list)
            and len(wanted) == len(stored)
            and all(within(one, other) for one, other in zip(wanted, stored, strict=True))
        )
    return bool(wanted == stored)


async def removed(client: Client, job: Job, *, grace_seconds: int | None = None) -> None:
    """Delete the job and wait until it and its pods are gone."""
    async with gone(client, job.key, job.uid) as waiting:
        try:
            await client.delete(
                PADDLE_JOBS, job.key, uid=job.uid, propagation="Foreground", grace_seconds=grace_seconds
            )
        except (NotFound, Conflict):
            return
        await waiting


class gone:  # noqa: N801  # reads as what it waits for
    """Follows a job from before its deletion, so that its end is not missed."""

    def __init__(self, client: Client, key: Key, uid: str) -> None:
        self._informer: Informer[StoredJob, Job] = Informer(
            client, PADDLE_JOBS, Scope(key.namespace, fields=f"metadata.name={key.name}"), project=job_view
        )
        self._key, self._uid = key, uid

    async def __aenter__(self) -> "asyncio.Future[None]":
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._informer.store.listen(lambda _old, new, _lane: self._look(new))
        self._task = asyncio.ensure_future(self._informer.run())
        await self._informer.wait_synced()
        self._look(self._informer.store.get(self._key))
        return self._done

    def _look(self, job: Job | None) -> None:
        if (job is None or job.uid != self._uid) and not self._done.done():
            self._done.set_result(None)

    async def __aexit__(self, *_: object) -> None:
        self._done.cancel()
        self._task.cancel()
        await asyncio.wait((self._task,))
