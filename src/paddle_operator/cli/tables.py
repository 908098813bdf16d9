"""Formats jobs and pods as tables, YAML and JSON. Pure: the time is an argument."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import yaml

from paddle_operator.cli.job_progress import format_pod_state, status_message
from paddle_operator.client.job_watcher import name_and_index
from paddle_operator.kube.durations import human_duration
from paddle_operator.kube.objects import Pod
from paddle_operator.plan.children import pod_view
from paddle_operator.plan.job_view import Job

Manifest = dict[str, Any]

JOB_HEADERS = ("NAME", "STATUS", "MODE", "READY", "AGE")
WIDE_JOB_HEADERS = (*JOB_HEADERS, "RETRIES", "STARTED", "FINISHED", "WHY")
POD_HEADERS = ("POD", "STATE", "ADDRESS", "NODE", "RESTARTS", "AGE")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns three spaces apart, as kubectl prints them."""
    lines = [[*map(str, columns)], *([*map(str, row)] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def jobs_table(jobs: Sequence[Job], now: datetime, *, wide: bool = False, with_namespace: bool = False) -> str:
    columns = WIDE_JOB_HEADERS if wide else JOB_HEADERS
    rows = [_job_row(job, now, wide=wide, with_namespace=with_namespace) for job in jobs]
    return table((*(["NAMESPACE"] if with_namespace else []), *columns), rows)


def _job_row(job: Job, now: datetime, *, wide: bool, with_namespace: bool) -> list[str]:
    status = job.status
    cells = [
        *([job.key.namespace] if with_namespace else []),
        job.key.name,
        status.phase or "<unknown>",
        status.mode or "<unknown>",
        status.ready or "<unknown>",
        age(job.metadata.creation_timestamp, now),
    ]
    if wide:
        limit = job.spec.backoff_limit if job.spec else None
        retries = "<none>" if limit is None else f"{status.restarts}/{limit}"
        cells += [retries, age(status.start_time, now), age(status.completion_time, now), status_message(job)]
    return cells


def pods_table(pods: Sequence[Pod], now: datetime) -> str:
    rows = [
        (
            pod.key.name,
            format_pod_state(pod_view(pod)),
            pod.status.pod_ip or "<none>",
            pod.spec.node_name or "<none>",
            sum(each.restart_count for each in pod.status.container_statuses),
            age(pod.metadata.creation_timestamp, now),
        )
        for pod in sorted(pods, key=lambda pod: name_and_index(pod.key.name))
    ]
    return table(POD_HEADERS, rows)


def age(time: datetime | None, now: datetime) -> str:
    """How long ago, as kubectl prints it."""
    return human_duration((now - time).total_seconds()) if time else "<none>"


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def as_yaml(manifest: Manifest) -> str:
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120).rstrip("\n")


def as_json(manifest: Manifest) -> str:
    return json.dumps(manifest, indent=4, ensure_ascii=False)


def as_list(manifests: Sequence[Manifest]) -> Manifest:
    """One object as it is, several as a List, as kubectl does."""
    if len(manifests) == 1:
        return manifests[0]
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(manifests)}
