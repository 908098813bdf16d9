"""paddlejob logs: what the pods of a job printed, each line behind its pod's name; with --follow, as it comes."""

import asyncio
from contextlib import aclosing
from typing import Annotated

import typer

from paddle_operator.api.paddlejob import Role
from paddle_operator.cli.job_progress import JobProgress
from paddle_operator.cli.live_view import prefix, say, warn
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.cli.tables import natural
from paddle_operator.client.job_watcher import Follower
from paddle_operator.client.manifests import CannotBeUsed
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import Invalid, NotFound
from paddle_operator.kube.objects import PODS, Key, Pod
from paddle_operator.plan.children import Job
from paddle_operator.plan.job_view import PADDLE_JOBS, job_view
from paddle_operator.plan.metadata import JOB_UID_LABEL, ROLE_LABEL, pod_name


@with_target
def logs(
    *,
    target: Target,
    name: JobName,
    role: Annotated[Role | None, typer.Option("--role", help="Only pods of this role.")] = None,
    index: Annotated[int | None, typer.Option("--index", "-i", min=0, help="Only the pod with this index.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has finished.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Only so many of the last lines of a pod.")] = None,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the container before its restart.")] = False,
    container: Annotated[str, typer.Option("--container", "-c", help="Of this container.")] = "",
) -> None:
    """Print the logs of a job.

    paddlejob logs mnist -f · paddlejob logs mnist --role worker --index 0 --tail 20
    """
    asyncio.run(_logs(target, name, role, index, follow=follow, tail=tail, previous=previous, container=container))


async def _logs(
    target: Target,
    name: str,
    role: Role | None,
    index: int | None,
    *,
    follow: bool,
    tail: int | None,
    previous: bool,
    container: str,
) -> None:
    async with target.client() as client:
        job = job_view(await client.get(PADDLE_JOBS, Key(target.namespace_of(client), name)))
        if follow and not job.finished:
            await Follower(client, job, Lines(job, role, index)).until_finished()
            return
        pods = [pod for pod in await pods_of(client, job, role) if index is None or natural(pod.key.name)[1] == index]
        if not pods:
            raise CannotBeUsed(nothing_to_read(job, role, index))
        for pod in pods:
            label = "" if len(pods) == 1 else f"{prefix(JobProgress(job), pod, '')} | "
            await print_log(client, pod, label, tail=tail, previous=previous, container=container)


async def pods_of(client: Client, job: Job, role: Role | None = None) -> list[Pod]:
    labels = f"{JOB_UID_LABEL}={job.uid}" + (f",{ROLE_LABEL}={role}" if role else "")
    found = await client.list_all(PODS, Scope(job.key.namespace, labels=labels))
    return sorted(found, key=lambda pod: natural(pod.key.name))


async def print_log(client: Client, pod: Pod, label: str, *, tail: int | None, previous: bool, container: str) -> None:
    try:
        lines = client.logs(pod.key, container=container, tail=tail, previous=previous)
        async with aclosing(lines) as found:
            async for line in found:
                say(label + line.decode(errors="replace"))
    except (Invalid, NotFound) as error:
        warn(f"{pod.key.name}: {error.words}")  # it has not started yet, or has no such container: the others may


def nothing_to_read(job: Job, role: Role | None, index: int | None) -> str:
    which = f" {pod_name(job.key, role, index)}" if role and index is not None else ""
    if job.finished:
        return (
            f"{job.key.name} has no pod{which} any more: its cleanPodPolicy had them deleted with their logs "
            "(set it to Never to keep them)"
        )
    return f"{job.key.name} has no pod{which} yet: paddlejob describe {job.key.name}"


class Lines:
    """Only the lines, of the pods that were asked for."""

    def __init__(self, job: Job, role: Role | None, index: int | None) -> None:
        self._scene = JobProgress(job)
        self._role, self._index = role, index

    def job(self, job: Job) -> None: ...
    def pod(self, pod: Pod) -> None: ...
    def gone(self, pod: Pod) -> None: ...

    def line(self, pod: Pod, container: str, text: str) -> None:
        if self._role and pod.metadata.labels.get(ROLE_LABEL) != self._role:
            return
        if self._index is None or natural(pod.key.name)[1] == self._index:
            say(f"{prefix(self._scene, pod, container)} | {text}")
