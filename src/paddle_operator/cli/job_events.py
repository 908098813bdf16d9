"""The events of a job and of its children."""

from typing import Any

from paddle_operator.api.paddlejob import KIND
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import EVENTS

Event = dict[str, Any]

WHOLE_SECONDS = len("2026-05-04T12:00:01")


async def list_events(
    client: Client, namespace: str, job: str | None, *, uid: str = "", since: str = ""
) -> list[Event]:
    """Events of one job or of all. UID and creation of the job leave out events of an earlier job of its name."""
    events = [dict(each) for each in await client.list_manifests(EVENTS, Scope(namespace))]
    return [each for each in events if (job is None or is_about(each, job, uid)) and not is_older(each, since)]


def is_older(event: Event, than: str) -> bool:
    """By whole seconds: a creation time has no fractions, and `01.2Z` sorts before `01Z`."""
    return (last_seen(event) or than)[:WHOLE_SECONDS] < than[:WHOLE_SECONDS]


def is_about(event: Event, job: str, uid: str = "") -> bool:
    """About the job itself, or about an object named like its children."""
    regarding = event.get("regarding") or {}
    name = str(regarding.get("name", ""))
    if regarding.get("kind") == KIND:
        return name == job and uid in ("", regarding.get("uid"))
    return name.startswith(f"{job}-")


def last_seen(event: Event) -> str | None:
    series = event.get("series") or {}
    return series.get("lastObservedTime") or event.get("eventTime") or event.get("deprecatedLastTimestamp")
