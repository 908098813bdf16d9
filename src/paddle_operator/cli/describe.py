"""paddlejob describe: everything about one job on one page: what it is, where its pods are, why it is as it is."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from paddle_operator.api.paddlejob import Role
from paddle_operator.cli import tables
from paddle_operator.cli.deadline_text import facts_ahead
from paddle_operator.cli.events import events_about
from paddle_operator.cli.live_view import say
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, Key, Pod
from paddle_operator.plan.children import pod_view
from paddle_operator.plan.job_view import PADDLE_JOBS, StoredJob, job_view
from paddle_operator.plan.metadata import JOB_UID_LABEL

ENDPOINTS = ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_MASTER", "PADDLE_GLOO_HTTP_ENDPOINT")


@with_target
def describe(*, target: Target, name: JobName) -> None:
    """Show everything about a job: its pods and their addresses, its conditions, what happened.

    paddlejob describe mnist
    """
    asyncio.run(_describe(target, name))


async def _describe(target: Target, name: str) -> None:
    async with target.client() as client:
        key = Key(target.namespace_of(client), name)
        job = dict(await client.manifest(PADDLE_JOBS, key))
        labels = f"{JOB_UID_LABEL}={job['metadata']['uid']}"
        pods = [dict(each) for each in await client.manifests(PODS, Scope(key.namespace, labels=labels))]
        events = await events_about(client, key.namespace, name, since=job["metadata"]["creationTimestamp"])
        contract = await _contract(client, key)
        target.tell_if_asleep((job.get("status") or {}).get("phase", ""))
    say("\n".join(page(job, pods, events, contract, datetime.now(UTC))))


async def _contract(client: Client, key: Key) -> dict[str, str]:
    try:
        found = dict(await client.manifest(CONFIG_MAPS, key))
    except NotFound:
        return {}
    return found.get("data") or {}


def page(
    job: tables.Manifest,
    pods: list[tables.Manifest],
    events: list[tables.Manifest],
    contract: dict[str, str],
    now: datetime,
) -> Iterator[str]:
    """The page, line by line."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    yield from facts(
        {
            "Name": metadata["name"],
            "Namespace": metadata["namespace"],
            "Created": f"{tables.age(metadata.get('creationTimestamp'), now)} ago",
            "Status": status.get("phase") or "<unknown>",
            "Why": tables.why(job),
            "Mode": status.get("mode", ""),
            "Network": spec.get("intranet", "PodIP"),
            "Attempt": status.get("attempt") or "",
            **ahead(job, pods, now),
        }
    )
    for role in Role:
        if wanted := spec.get(role):
            yield f"{role + ':':<12} {counts(wanted, status.get(role) or {})}"
    yield from section("Pods", [tables.pods_table(pods, now)] if pods else ["  none"])
    known = {name: contract[name] for name in ENDPOINTS if name in contract}
    yield from section("Addresses", facts(known) if known else ["  not all known yet"])
    conditions = status.get("conditions") or ()
    yield from section(
        "Conditions", (f"  {each['type']}={each['status']}  {each['reason']}: {each['message']}" for each in conditions)
    )
    yield from section("Events", [tables.events_table(events, now)] if events else ["  none within the last hour"])


def ahead(job: tables.Manifest, pods: list[tables.Manifest], now: datetime) -> dict[str, str]:
    """Tries and deadlines, as the operator sees them; nothing of a job that breaks the rules."""
    view = job_view(msgspec.json.decode(msgspec.json.encode(job), type=StoredJob))
    if view.spec is None:
        return {}
    return facts_ahead(view, [pod_view(msgspec.convert(pod, Pod)) for pod in pods], now)


def facts(known: dict[str, object] | dict[str, str]) -> Iterator[str]:
    width = max(len(name) for name in known) + 1
    return (f"{name + ':':<{max(width, 12)}} {value}" for name, value in known.items() if value not in ("", None))


def counts(wanted: tables.Manifest, seen: tables.Manifest) -> str:
    state_counts = [
        f"{seen[name]} {name}"
        for name in ("pending", "starting", "running", "succeeded", "failed", "unknown")
        if seen.get(name)
    ]
    return f"{wanted.get('replicas')} wanted" + (f": {', '.join(state_counts)}" if state_counts else "")


def section(title: str, lines: "Iterator[str] | list[str]") -> Iterator[str]:
    yield ""
    yield f"{title}:"
    yield from lines
