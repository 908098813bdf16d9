"""paddlejob get: jobs as a table, YAML or JSON; with --watch, a line for each change."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from paddle_operator.cli import tables
from paddle_operator.cli.options import with_target
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, StoredObject
from paddle_operator.kube.work_queue import Priority
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, job_view


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"

    @property
    def is_table(self) -> bool:
        return self in (Format.TABLE, Format.WIDE)


@with_target
def get(
    *,
    target: Target,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these jobs.")] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="The output format.")] = Format.TABLE,
    selector: Annotated[str, typer.Option("--selector", "-l", help="Only jobs with these labels.")] = "",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="In every namespace.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then print a line for each change.")] = False,
) -> None:
    """List PaddleJobs.

    paddlejob get · paddlejob get mnist -o yaml · paddlejob get -w
    """
    asyncio.run(_get(target, names or [], output, selector, all_namespaces, watch))


async def _get(
    target: Target, names: list[str], output: Format, selector: str, all_namespaces: bool, watch: bool
) -> None:
    async with target.client() as client:
        scope = Scope("" if all_namespaces else target.namespace_of(client), labels=selector)
        if output.is_table:
            jobs = await _list_jobs(client, scope, names)
            if not jobs and not watch:
                echo_error("No PaddleJobs found" + (f" in namespace {scope.namespace}." if scope.namespace else "."))
                return
            target.warn_if_stopped(*(job.status.phase for job in jobs))
            echo(_table(jobs, output, scope))
            printed = {job.metadata.resource_version for job in jobs}
        else:
            manifests = await _list_manifests(client, scope, names)
            target.warn_if_stopped(*((each.get("status") or {}).get("phase", "") for each in manifests))
            echo(format_manifests(manifests, output))
            printed = {each["metadata"]["resourceVersion"] for each in manifests}
        if watch:
            await _watch(client, scope, set(names), output, printed)


async def _list_jobs(client: Client, scope: Scope, names: list[str]) -> list[Job]:
    if names:
        return [job_view(await client.get(PADDLE_JOBS, Key(scope.namespace, name))) for name in names]
    return [job_view(each) for each in await client.list_all(PADDLE_JOBS, scope)]


async def _list_manifests(client: Client, scope: Scope, names: list[str]) -> list[tables.Manifest]:
    if names:
        return [dict(await client.get_manifest(PADDLE_JOBS, Key(scope.namespace, name))) for name in names]
    return [dict(each) for each in await client.list_manifests(PADDLE_JOBS, scope)]


def _table(jobs: Sequence[Job], output: Format, scope: Scope) -> str:
    now = datetime.now(UTC)
    return tables.jobs_table(jobs, now, wide=output is Format.WIDE, with_namespace=not scope.namespace)


def format_manifests(manifests: list[tables.Manifest], output: Format) -> str:
    match output:
        case Format.YAML:
            return tables.as_yaml(tables.as_list(manifests))
        case Format.JSON:
            return tables.as_json(tables.as_list(manifests))
        case _:
            return "\n".join(f"paddlejob.batch.paddlepaddle.org/{each['metadata']['name']}" for each in manifests)


async def _watch(client: Client, scope: Scope, names: set[str], output: Format, printed: set[str]) -> None:
    """Print a line for each change below the header, until Ctrl-C."""
    changed: asyncio.Queue[StoredObject] = asyncio.Queue()

    def on_change(_old: StoredObject | None, new: StoredObject | None, _priority: Priority) -> None:
        if new and new.metadata.resource_version not in printed and (not names or new.key.name in names):
            changed.put_nowait(new)

    jobs: Informer[StoredObject, StoredObject] = Informer(client, PADDLE_JOBS, scope)
    jobs.store.listen(on_change)
    async with asyncio.TaskGroup() as group:
        group.create_task(jobs.run())
        while True:
            stored = await changed.get()
            if output.is_table:
                echo(_table([job_view(stored)], output, scope).partition("\n")[2])
                continue
            try:
                manifest = dict(await client.get_manifest(PADDLE_JOBS, stored.key))
            except NotFound:
                continue  # deleted since
            echo(format_manifests([manifest], output))
