"""What does `kubectl get` print? A meta.k8s.io/v1 Table: the server formats columns and cells."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from paddle_operator.kube.durations import human_duration
from paddle_operator.local.apiserver.scheme.canonical import parse_time
from paddle_operator.local.apiserver.scheme.kind import Column, Kind, Manifest

UNKNOWN_AGE = "<unknown>"

IncludeObject = Literal["Metadata", "Object", "None"]

FINISHED_POD_CONDITIONS = {
    "Succeeded": {"type": "Completed", "status": "True", "reason": "Succeeded", "message": "The pod has completed."},
    "Failed": {"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."},
}


def build_table(
    kind: Kind, items: Iterable[Manifest], metadata: Manifest, now: datetime, include: IncludeObject = "Metadata"
) -> Manifest:
    """A Table of these objects; `metadata` is that of their list or of the single object.

    It has all columns: kubectl hides the wide ones. `include` is the request's includeObject.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {key: metadata[key] for key in LIST_METADATA_FIELDS if key in metadata},
        "columnDefinitions": [column_definition(column) for column in kind.columns],
        "rows": [build_row(kind, item, now, include) for item in items],
    }


LIST_METADATA_FIELDS = ("resourceVersion", "continue", "remainingItemCount")


def column_definition(column: Column) -> Manifest:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": "",
        "priority": 1 if column.wide else 0,
    }


def build_row(kind: Kind, item: Manifest, now: datetime, include: IncludeObject) -> Manifest:
    row: Manifest = {"cells": [column.cell(item, now) for column in kind.columns]}
    if (
        kind.kind == "Pod"
        and not kind.group
        and (phase := item.get("status", {}).get("phase")) in FINISHED_POD_CONDITIONS
    ):
        row["conditions"] = [FINISHED_POD_CONDITIONS[phase]]
    if include == "Metadata":
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        row["object"] = partial | {"metadata": item["metadata"]}
    elif include == "Object":
        row["object"] = item
    else:
        row["object"] = None
    return row


def format_age(since: object, now: datetime) -> str:
    """The age of a time in an object, as kubectl prints it: `5s`, `3m20s`; <unknown> if it is no time."""
    if not isinstance(since, str):
        return UNKNOWN_AGE
    try:
        return human_duration((now - parse_time(since)).total_seconds())
    except ValueError:
        return UNKNOWN_AGE


def latest_time(times: Iterable[object]) -> str | None:
    """The latest of the times that are set. In canonical form they sort as strings."""
    return max((time for time in times if isinstance(time, str)), default=None)
