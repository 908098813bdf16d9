"""What `kubectl get` asks for: a meta.k8s.io/v1 Table of objects, with the columns and cells that a server chooses."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from paddle_operator.local.apiserver.scheme.kind import Column, Kind, Manifest

Included = Literal["Metadata", "Object", "None"]

FINISHED = {
    "Succeeded": {"type": "Completed", "status": "True", "reason": "Succeeded", "message": "The pod has completed."},
    "Failed": {"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."},
}


def table(
    kind: Kind, items: Iterable[Manifest], metadata: Manifest, now: datetime, include: Included = "Metadata"
) -> Manifest:
    """A Table of these objects; `metadata` is that of their list, or of the one object.

    All columns are always there: it is kubectl that hides the wide ones. `include` is the request's includeObject.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {key: metadata[key] for key in LIST_FIELDS if key in metadata},
        "columnDefinitions": [definition(column) for column in kind.columns],
        "rows": [row(kind, item, now, include) for item in items],
    }


LIST_FIELDS = ("resourceVersion", "continue", "remainingItemCount")


def definition(column: Column) -> Manifest:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": "",
        "priority": 1 if column.wide else 0,
    }


def row(kind: Kind, item: Manifest, now: datetime, include: Included) -> Manifest:
    found: Manifest = {"cells": [column.of(item, now) for column in kind.columns]}
    if kind.kind == "Pod" and not kind.group and (phase := item.get("status", {}).get("phase")) in FINISHED:
        found["conditions"] = [FINISHED[phase]]
    if include == "Metadata":
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        found["object"] = partial | {"metadata": item["metadata"]}
    elif include == "Object":
        found["object"] = item
    else:
        found["object"] = None
    return found
