"""paddlejob events: what happened to a job and to its pods, oldest first."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from paddle_operator.cli import tables
from paddle_operator.cli.job_events import list_events
from paddle_operator.cli.options import with_target
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.embedded.target import Target
from paddle_operator.kube.objects import Key
from paddle_operator.plan.job_view import PADDLE_JOBS


@with_target
def events(
    *,
    target: Target,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this job and its pods.")] = None,
) -> None:
    """Show events.

    paddlejob events · paddlejob events mnist
    """
    asyncio.run(_events(target, name))


async def _events(target: Target, name: str | None) -> None:
    async with target.client() as client:
        namespace = target.namespace_of(client)
        if name:
            await client.get(PADDLE_JOBS, Key(namespace, name))  # raises NotFound for a misspelt name
        listed = await list_events(client, namespace, name)
    if listed:
        echo(tables.events_table(listed, datetime.now(UTC)))
    else:
        echo_error("No events found; the API server keeps them for an hour.")
