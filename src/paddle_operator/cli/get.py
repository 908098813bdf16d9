"""paddlejob get: the jobs that there are, as a table, YAML or JSON; with --watch, as they change."""

import asyncio
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from paddle_operator.api.paddlejob import API_VERSION, KIND
from paddle_operator.cli import tables
from paddle_operator.cli.live_view import say, warn
from paddle_operator.cli.options import with_target
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key
from paddle_operator.kube.work_queue import Priority
from paddle_operator.plan.job_view import PADDLE_JOBS, StoredJob


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"


@with_target
def get(
    *,
    target: Target,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these jobs.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to show them.")] = Output.TABLE,
    selector: Annotated[str, typer.Option("--selector", "-l", help="Only jobs with these labels.")] = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="In every namespace.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, a line for each change.")] = False,
) -> None:
    """List PaddleJobs.

    paddlejob get · paddlejob get mnist -o yaml · paddlejob get -w
    """
    asyncio.run(_get(target, names or [], output, selector, everywhere, watch))


async def _get(target: Target, names: list[str], output: Output, selector: str, everywhere: bool, watch: bool) -> None:
    async with target.client() as client:
        scope = Scope("" if everywhere else target.namespace_of(client), labels=selector)
        found = await _found(client, scope, names)
        if not found and not watch and output in (Output.TABLE, Output.WIDE):
            warn("No PaddleJobs found" + (f" in namespace {scope.namespace}." if scope.namespace else "."))
            return
        target.tell_if_asleep(*((each.get("status") or {}).get("phase", "") for each in found))
        say(shown(found, output, everywhere=everywhere))
        if watch:
            await _watch(client, scope, set(names), output, {each["metadata"]["resourceVersion"] for each in found})


async def _found(client: Client, scope: Scope, names: list[str]) -> list[tables.Manifest]:
    if names:
        return [dict(await client.manifest(PADDLE_JOBS, Key(scope.namespace, name))) for name in names]
    return [dict(each) for each in await client.manifests(PADDLE_JOBS, scope)]


def shown(found: list[tables.Manifest], output: Output, *, everywhere: bool) -> str:
    match output:
        case Output.YAML:
            return tables.as_yaml(tables.several(found))
        case Output.JSON:
            return tables.as_json(tables.several(found))
        case Output.NAME:
            return "\n".join(f"paddlejob.batch.paddlepaddle.org/{each['metadata']['name']}" for each in found)
        case _:
            wide = output is Output.WIDE
            return tables.jobs_table(found, datetime.now(UTC), wide=wide, with_namespace=everywhere)


async def _watch(client: Client, scope: Scope, names: set[str], output: Output, known: set[str]) -> None:
    """Until Ctrl-C: each change as one more line, under the head that is there already."""
    changed: asyncio.Queue[StoredJob] = asyncio.Queue()

    def hear(_old: StoredJob | None, new: StoredJob | None, _lane: Priority) -> None:
        if new and new.metadata.resource_version not in known and (not names or new.key.name in names):
            changed.put_nowait(new)

    jobs: Informer[StoredJob, StoredJob] = Informer(client, PADDLE_JOBS, scope)
    jobs.store.listen(hear)
    async with asyncio.TaskGroup() as group:
        group.create_task(jobs.run())
        while True:
            line = shown([as_manifest(await changed.get())], output, everywhere=not scope.namespace)
            say(line if output in (Output.YAML, Output.JSON, Output.NAME) else line.partition("\n")[2])


def as_manifest(job: StoredJob) -> tables.Manifest:
    """As far as a line of the table reads it."""
    meta = job.metadata
    created = meta.creation_timestamp.isoformat() if meta.creation_timestamp else None
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": meta.name, "namespace": meta.namespace, "creationTimestamp": created},
        "spec": msgspec.json.decode(job.spec),
        "status": msgspec.json.decode(job.status),
    }
