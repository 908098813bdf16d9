"""Turns jobs, pods and events into text: tables, YAML, JSON. Pure: what it is given is what it shows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

from paddle_operator.kube.durations import human_duration

Manifest = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns three spaces apart, as kubectl prints them."""
    every = [[*map(str, head)], *([*map(str, row)] for row in rows)]
    widths = [max(len(row[place]) for row in every) for place in range(len(head))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every
    )


JOB_HEAD = ("NAME", "STATUS", "MODE", "READY", "AGE")
WIDE_JOB_HEAD = (*JOB_HEAD, "TRIES", "STARTED", "FINISHED", "WHY")


def job_row(job: Manifest, now: datetime, *, wide: bool, with_namespace: bool) -> list[str]:
    status, metadata = job.get("status") or {}, job["metadata"]
    cells = [
        *([metadata.get("namespace", "")] if with_namespace else []),
        metadata["name"],
        status.get("phase") or "<unknown>",
        status.get("mode") or "<unknown>",
        status.get("ready") or "<unknown>",
        age(metadata.get("creationTimestamp"), now),
    ]
    if wide:
        cells += [tries(job), age(status.get("startTime"), now), age(status.get("completionTime"), now), why(job)]
    return cells


def tries(job: Manifest) -> str:
    """`1/3`: how many tries of backoffLimit are used up."""
    limit = (job.get("spec") or {}).get("backoffLimit")
    return "<none>" if limit is None else f"{(job.get('status') or {}).get('restarts', 0)}/{limit}"


def jobs_table(jobs: Sequence[Manifest], now: datetime, *, wide: bool = False, with_namespace: bool = False) -> str:
    head = WIDE_JOB_HEAD if wide else JOB_HEAD
    rows = [job_row(job, now, wide=wide, with_namespace=with_namespace) for job in jobs]
    return table((*(["NAMESPACE"] if with_namespace else []), *head), rows)


def why(job: Manifest) -> str:
    """The operator's own words about where the job stands."""
    conditions = {each["type"]: each for each in (job.get("status") or {}).get("conditions") or ()}
    for kind in ("Failed", "Completed"):
        if conditions.get(kind, {}).get("status") == "True":
            return str(conditions[kind]["message"])
    for kind in ("Accepted", "Running"):
        if conditions.get(kind, {}).get("status") == "False":
            return str(conditions[kind]["message"])
    return ""


def age(moment: str | None, now: datetime) -> str:
    """How long ago, as kubectl writes it."""
    when = parsed(moment)
    return human_duration((now - when).total_seconds()) if when else "<none>"


def parsed(moment: str | None) -> datetime | None:
    return datetime.fromisoformat(moment).astimezone(UTC) if moment else None


def pod_state(pod: Manifest) -> str:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = each.get("state") or {}
        if "waiting" in state:
            return str(state["waiting"].get("reason") or "Waiting")
        if (ended := state.get("terminated")) and ended.get("exitCode"):
            return f"exited {ended['exitCode']}" + (
                f" ({ended['reason']})" if ended.get("reason") not in (None, "Error") else ""
            )
    return {"Succeeded": "Completed"}.get(status.get("phase", ""), status.get("phase") or "Pending")


def pods_table(pods: Sequence[Manifest], now: datetime) -> str:
    head = ("POD", "STATE", "ADDRESS", "NODE", "RESTARTS", "AGE")
    rows = [
        (
            pod["metadata"]["name"],
            pod_state(pod),
            (pod.get("status") or {}).get("podIP") or "<none>",
            pod["spec"].get("nodeName") or "<none>",
            sum(each.get("restartCount", 0) for each in (pod.get("status") or {}).get("containerStatuses") or ()),
            age(pod["metadata"].get("creationTimestamp"), now),
        )
        for pod in sorted(pods, key=lambda each: natural(each["metadata"]["name"]))
    ]
    return table(head, rows)


def natural(name: str) -> tuple[str, int]:
    """worker-10 behind worker-9."""
    head, _, index = name.rpartition("-")
    return (head, int(index)) if index.isdigit() else (name, 0)


def events_table(events: Sequence[Manifest], now: datetime) -> str:
    head = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
    ordered = sorted(events, key=lambda event: last_seen(event) or "")
    rows = [
        (
            age(last_seen(event), now) + times(event),
            event.get("type") or "",
            event.get("reason") or "",
            about(event),
            " ".join(str(event.get("note") or "").split()),
        )
        for event in ordered
    ]
    return table(head, rows)


def last_seen(event: Manifest) -> str | None:
    series = event.get("series") or {}
    return series.get("lastObservedTime") or event.get("eventTime") or event.get("deprecatedLastTimestamp")


def times(event: Manifest) -> str:
    count = (event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1
    return f" (x{count})" if count > 1 else ""


def about(event: Manifest) -> str:
    regarding: Mapping[str, str] = event.get("regarding") or {}
    return f"{regarding.get('kind', '').lower()}/{regarding.get('name', '')}"


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def as_yaml(found: Manifest) -> str:
    return yaml.dump(found, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120).rstrip("\n")


def as_json(found: Manifest) -> str:
    return json.dumps(found, indent=4, ensure_ascii=False)


def several(found: Sequence[Manifest]) -> Manifest:
    """One object as it is, several as a List, as kubectl does."""
    return found[0] if len(found) == 1 else {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(found)}
