"""paddlejob describe: everything about one job on one page: its state and why, its pods, their addresses, events."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from paddle_operator.api.paddlejob import Role, RoleStatus
from paddle_operator.cli import tables
from paddle_operator.cli.deadline_text import upcoming_deadlines
from paddle_operator.cli.events import Event, events_table, list_events
from paddle_operator.cli.job_progress import status_message
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.cli.output import echo
from paddle_operator.client.job_watcher import list_pods
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Pod
from paddle_operator.plan.children import pod_view
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, job_view

ENDPOINT_VARIABLES = (
    "PADDLE_PSERVERS_IP_PORT_LIST",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_MASTER",
    "PADDLE_GLOO_HTTP_ENDPOINT",
)
MIN_LABEL_WIDTH = 12


@with_target
def describe(*, target: Target, name: JobName) -> None:
    """Show everything about a job: its pods and their addresses, its conditions and events.

    paddlejob describe mnist
    """
    asyncio.run(_describe(target, name))


async def _describe(target: Target, name: str) -> None:
    async with target.client() as client:
        key = Key(target.namespace_of(client), name)
        job = job_view(await client.get(PADDLE_JOBS, key))
        pods = await list_pods(client, job)
        created = job.metadata.creation_timestamp
        since = created.isoformat() if created else ""
        events = await list_events(client, key.namespace, name, uid=job.uid, since=since)
        rendezvous = await _rendezvous_env(client, key)
        target.warn_if_stopped(job.status.phase)
    echo("\n".join(page(job, pods, events, rendezvous, datetime.now(UTC))))


async def _rendezvous_env(client: Client, key: Key) -> dict[str, str]:
    """The variables of the ConfigMap that all pods share; empty before their addresses are known."""
    try:
        return dict(await client.get_manifest(CONFIG_MAPS, key)).get("data") or {}
    except NotFound:
        return {}


def page(job: Job, pods: list[Pod], events: list[Event], rendezvous: Mapping[str, str], now: datetime) -> Iterator[str]:
    """The page, line by line."""
    status, spec = job.status, job.spec
    yield from _labelled(
        {
            "Name": job.key.name,
            "Namespace": job.key.namespace,
            "Created": f"{tables.age(job.metadata.creation_timestamp, now)} ago",
            "Status": status.phase or "<unknown>",
            "Why": status_message(job),
            "Mode": status.mode,
            "Network": spec.intranet if spec else "",
            "Attempt": str(status.attempt or ""),
            **upcoming_deadlines(job, map(pod_view, pods), now),
        }
    )
    for role in Role:
        if spec and (role_spec := spec.roles.get(role)):
            counts = _format_counts(role_spec.replicas, status.roles.get(role))
            yield f"{role + ':':<{MIN_LABEL_WIDTH}} {counts}"
    yield from _section("Pods", [tables.pods_table(pods, now)] if pods else ["  none"])
    endpoints = {name: rendezvous[name] for name in ENDPOINT_VARIABLES if name in rendezvous}
    yield from _section("Addresses", _labelled(endpoints) if endpoints else ["  not all known yet"])
    conditions = (f"  {each.type}={each.status}  {each.reason}: {each.message}" for each in status.conditions)
    yield from _section("Conditions", conditions)
    yield from _section("Events", [events_table(events, now)] if events else ["  none in the last hour"])


def _labelled(values: Mapping[str, str]) -> Iterator[str]:
    width = max(MIN_LABEL_WIDTH, max(len(label) for label in values) + 1)
    return (f"{label + ':':<{width}} {value}" for label, value in values.items() if value)


def _format_counts(replicas: int, counted: RoleStatus | None) -> str:
    names = ("pending", "starting", "running", "succeeded", "failed", "unknown")
    counts = [f"{number} {name}" for name in names if (number := getattr(counted, name, 0))]
    return f"{replicas} desired" + (f": {', '.join(counts)}" if counts else "")


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield ""
    yield f"{title}:"
    yield from lines
