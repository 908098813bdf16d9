"""paddlejob delete: deletes jobs with their pods and other children."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from paddle_operator.cli.options import with_target
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.client.job_watcher import list_pods
from paddle_operator.client.manifests import UsageError, is_job, read_documents
from paddle_operator.client.submit import delete_and_wait
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import PODS, Key
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, job_view


@with_target
def delete(
    *,
    target: Target,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="The jobs.")] = None,
    file: Annotated[Path | None, typer.Option("--filename", "-f", help="The jobs in this YAML.")] = None,
    all_jobs: Annotated[bool, typer.Option("--all", help="Every job of the namespace.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until the pods are gone, too.")] = True,
    ignore_not_found: Annotated[bool, typer.Option("--ignore-not-found", help="Skip jobs that do not exist.")] = False,
) -> None:
    """Delete jobs; their pods get their grace period.

    paddlejob delete mnist · paddlejob delete -f job.yaml · paddlejob delete --all
    """
    requested = [*(names or []), *(_names_in(file) if file else [])]
    if bool(requested) == all_jobs:
        raise UsageError("no jobs given, or names together with --all: give names, -f FILE, or --all")
    asyncio.run(_delete(target, requested, wait=wait, ignore_not_found=ignore_not_found))


def _names_in(file: Path) -> list[str]:
    return [each["metadata"]["name"] for each in read_documents(file.read_text(), str(file)) if is_job(each)]


async def _delete(target: Target, names: list[str], *, wait: bool, ignore_not_found: bool) -> None:
    async with target.client() as client:
        namespace = target.namespace_of(client)
        if not names:
            names = [each.key.name for each in await client.list_all(PADDLE_JOBS, Scope(namespace))]
        for name in names:
            try:
                job = job_view(await client.get(PADDLE_JOBS, Key(namespace, name)))
            except NotFound:
                if not ignore_not_found:
                    raise
                echo_error(f"{name} not found")
                continue
            if not target.is_running:
                await _delete_pods(client, job)
            if wait:
                await delete_and_wait(client, job)
            else:
                await client.delete(PADDLE_JOBS, job.key, uid=job.uid, propagation="Background")
            echo(f"{name} deleted")


async def _delete_pods(client: Client, job: Job) -> None:
    """Without grace: no node runs that could confirm their end, and they have no process."""
    for pod in await list_pods(client, job):
        await client.delete(PODS, pod.key, uid=pod.uid, grace_seconds=0)
