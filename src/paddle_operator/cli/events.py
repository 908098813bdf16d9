"""paddlejob events: what happened to a job and to its pods, oldest first."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from paddle_operator.api.paddlejob import KIND
from paddle_operator.cli import tables
from paddle_operator.cli.live_view import say, warn
from paddle_operator.cli.options import with_target
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import EVENTS, Key
from paddle_operator.plan.job_view import PADDLE_JOBS

SECOND = len("2026-05-04T12:00:01")


@with_target
def events(
    *,
    target: Target,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only of this job and its pods.")] = None,
) -> None:
    """Show what happened.

    paddlejob events · paddlejob events mnist
    """
    asyncio.run(_events(target, name))


async def _events(target: Target, name: str | None) -> None:
    async with target.client() as client:
        namespace = target.namespace_of(client)
        if name:
            await client.get(PADDLE_JOBS, Key(namespace, name))  # so that a slip of the pen is told as one
        found = await events_about(client, namespace, name)
    if found:
        say(tables.events_table(found, datetime.now(UTC)))
    else:
        warn("No events: they are kept for an hour.")


async def events_about(client: Client, namespace: str, job: str | None, since: str = "") -> list[tables.Manifest]:
    """Of one job or of all; `since` its creation, where another of the same name was there before."""
    found = [dict(each) for each in await client.manifests(EVENTS, Scope(namespace))]
    return [each for each in found if (job is None or is_about(each, job)) and not is_older(each, since)]


def is_older(event: tables.Manifest, than: str) -> bool:
    """By whole seconds: that is how exact a creation is told, and an event's fractions would sort before its Z."""
    return (tables.last_seen(event) or than)[:SECOND] < than[:SECOND]


def is_about(event: tables.Manifest, job: str) -> bool:
    """The job itself, or something that is named after it as its children are."""
    regarding = event.get("regarding") or {}
    name = str(regarding.get("name", ""))
    return name == job if regarding.get("kind") == KIND else name.startswith(f"{job}-")
