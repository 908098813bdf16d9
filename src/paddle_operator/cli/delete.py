"""paddlejob delete: ends jobs, with their pods and everything that was made for them."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from paddle_operator.cli.live_view import say, warn
from paddle_operator.cli.logs import pods_of
from paddle_operator.cli.options import with_target
from paddle_operator.client.manifests import CannotBeUsed, is_job, read
from paddle_operator.client.submit import removed
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import PODS, Key
from paddle_operator.plan.children import Job
from paddle_operator.plan.job_view import PADDLE_JOBS, job_view


@with_target
def delete(
    *,
    target: Target,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="The jobs.")] = None,
    file: Annotated[Path | None, typer.Option("--filename", "-f", help="The jobs of this YAML.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every job of the namespace.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until their pods are gone, too.")] = True,
    missing_is_fine: Annotated[
        bool, typer.Option("--ignore-not-found", help="A job that is not there is fine.")
    ] = False,
) -> None:
    """Delete jobs; their pods are told to stop and get their grace period.

    paddlejob delete mnist · paddlejob delete -f job.yaml · paddlejob delete --all
    """
    wanted = [*(names or []), *(_named_in(file) if file else [])]
    if bool(wanted) == everything:
        raise CannotBeUsed("say which jobs to delete: their names, -f FILE, or --all")
    asyncio.run(_delete(target, wanted, wait=wait, missing_is_fine=missing_is_fine))


def _named_in(file: Path) -> list[str]:
    return [each["metadata"]["name"] for each in read(file.read_text(), str(file)) if is_job(each)]


async def forget_pods(client: Client, job: Job) -> None:
    """Where no node runs, there is nobody to say that a pod has ended; and none of them has a process."""
    for pod in await pods_of(client, job):
        await client.delete(PODS, pod.key, uid=pod.uid, grace_seconds=0)


async def _delete(target: Target, names: list[str], *, wait: bool, missing_is_fine: bool) -> None:
    async with target.client() as client:
        namespace = target.namespace_of(client)
        if not names:
            names = [each.key.name for each in await client.list_all(PADDLE_JOBS, Scope(namespace))]
        for name in names:
            try:
                job = job_view(await client.get(PADDLE_JOBS, Key(namespace, name)))
            except NotFound:
                if not missing_is_fine:
                    raise
                warn(f"{name} is not there")
                continue
            if target.is_asleep:
                await forget_pods(client, job)
            if wait:
                await removed(client, job)
            else:
                await client.delete(PADDLE_JOBS, job.key, uid=job.uid, propagation="Background")
            say(f"{name} deleted")
