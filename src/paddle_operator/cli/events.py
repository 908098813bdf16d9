"""paddlejob events: what happened to a job and to its pods, oldest first; also for the other verbs that show events."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from paddle_operator.api.paddlejob import KIND
from paddle_operator.cli import tables
from paddle_operator.cli.options import with_target
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import EVENTS, Key
from paddle_operator.plan.job_view import PADDLE_JOBS

Event = dict[str, Any]

EVENT_HEADERS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
WHOLE_SECONDS_LENGTH = len("2026-05-04T12:00:01")


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
        echo(events_table(listed, datetime.now(UTC)))
    else:
        echo_error("No events found; the API server keeps them for an hour.")


async def list_events(
    client: Client, namespace: str, job: str | None, *, uid: str = "", since: str = ""
) -> list[Event]:
    """Events of one job or of all. UID and creation of the job leave out events of an earlier job of its name."""
    events = [dict(each) for each in await client.list_manifests(EVENTS, Scope(namespace))]
    return [each for each in events if (job is None or is_about(each, job, uid)) and not is_older(each, since)]


def is_older(event: Event, than: str) -> bool:
    """By whole seconds: a creation time has no fractions, and `01.2Z` sorts before `01Z`."""
    return (last_seen_time(event) or than)[:WHOLE_SECONDS_LENGTH] < than[:WHOLE_SECONDS_LENGTH]


def is_about(event: Event, job: str, uid: str = "") -> bool:
    """About the job itself, or about an object named like its children."""
    regarding = event.get("regarding") or {}
    name = str(regarding.get("name", ""))
    if regarding.get("kind") == KIND:
        return name == job and uid in ("", regarding.get("uid"))
    return name.startswith(f"{job}-")


def last_seen_time(event: Event) -> str | None:
    series = event.get("series") or {}
    return series.get("lastObservedTime") or event.get("eventTime") or event.get("deprecatedLastTimestamp")


def events_table(events: Sequence[Event], now: datetime) -> str:
    rows = [
        (
            _last_seen_age(event, now) + _format_count(event),
            event.get("type") or "",
            event.get("reason") or "",
            _format_object(event),
            " ".join(str(event.get("note") or "").split()),
        )
        for event in sorted(events, key=lambda event: last_seen_time(event) or "")
    ]
    return tables.table(EVENT_HEADERS, rows)


def _last_seen_age(event: Event, now: datetime) -> str:
    time = last_seen_time(event)
    return tables.age(datetime.fromisoformat(time).astimezone(UTC) if time else None, now)


def _format_count(event: Event) -> str:
    count = (event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1
    return f" (x{count})" if count > 1 else ""


def _format_object(event: Event) -> str:
    regarding: Mapping[str, str] = event.get("regarding") or {}
    return f"{regarding.get('kind', '').lower()}/{regarding.get('name', '')}"
