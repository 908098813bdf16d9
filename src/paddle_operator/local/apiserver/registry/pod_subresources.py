"""What do the pod subresources binding, eviction and log do?"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.api_errors import StatusError, bad_request
from paddle_operator.local.apiserver.registry.create_update import ObjectWriter
from paddle_operator.local.apiserver.registry.delete import ObjectDeleter
from paddle_operator.local.apiserver.registry.object_meta import metadata_of
from paddle_operator.local.apiserver.registry.resource import APIResource, APIResponse, success_response
from paddle_operator.local.apiserver.request_info import (
    Parameters,
    WriteOptions,
    parse_bool,
    parse_delete_options,
    parse_int,
)
from paddle_operator.local.apiserver.scheme.canonical import format_time
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.storage.watch_cache import Record
from paddle_operator.local.apiserver.validation import field_errors
from paddle_operator.local.container_logs import PodLogOptions


class PodLogs(Protocol):
    def stream(self, pod: Key, uid: str, options: PodLogOptions) -> AsyncIterator[bytes]:
        """Yield the output of a container in chunks. Raises LogError with the message for the client."""


@dataclass(frozen=True)
class PodLogRequest:
    """A validated request for the log of a container; the log may not exist."""

    pod: Key
    uid: str
    options: PodLogOptions


def bind(
    writer: ObjectWriter, pods: APIResource, record: Record, binding: Manifest, options: WriteOptions, clock: Clock
) -> APIResponse:
    """Bind a pod to a node, once. Raises StatusError."""
    name = record.key.name
    target = binding.get("target")
    node = target.get("name") if isinstance(target, dict) else None
    if not node or not isinstance(node, str):
        error = field_errors.required("target.name")
        details = {"name": name, "kind": "Binding"}
        message = f'Binding "{name}" is invalid: target.name: Required value'
        raise StatusError(422, message, details=details, causes=[error])
    if metadata_of(binding).get("name") not in (None, "", name):
        raise bad_request("name in URL does not match name in Binding object")
    pod = pods.manifest(record)
    metadata = pod["metadata"]
    why = ""
    if metadata_of(binding).get("uid") not in (None, "", record.uid):
        why = (
            f"Precondition failed: UID in precondition: {metadata_of(binding)['uid']}, UID in object meta: {record.uid}"
        )
    elif metadata.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif bound_to := pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{bound_to}"'
    if why:
        message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
        raise StatusError(409, message, details={"name": name, "kind": "pods/binding"})
    pod["spec"]["nodeName"] = node
    for field in ("annotations", "labels"):
        added = metadata_of(binding).get(field)
        if isinstance(added, dict) and all(isinstance(value, str) for value in added.values()):
            metadata[field] = (metadata.get(field) or {}) | added
    status = pod.setdefault("status", {})
    others = [condition for condition in status.get("conditions") or () if condition.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    status["conditions"] = [*others, scheduled | {"lastTransitionTime": format_time(clock.now())}]
    if not options.dry_run:
        writer.put(pods, record, pod)
    return success_response(201)


def evict(
    deleter: ObjectDeleter, pods: APIResource, record: Record, eviction: Manifest, parameters: Parameters
) -> APIResponse:
    """Delete the pod: the local cluster has no disruption budgets. Raises StatusError."""
    options = eviction.get("deleteOptions")
    if options is not None and not isinstance(options, dict):
        raise bad_request("deleteOptions of an Eviction must be an object")
    deleter.start_deletion(pods, record, parse_delete_options(parameters, options))
    return success_response(201)


def parse_log_request(pods: APIResource, record: Record, parameters: Parameters, now: datetime) -> PodLogRequest | None:
    """None if the pod is not bound to a node, so it has no log. Raises StatusError."""
    name, pod = record.key.name, pods.manifest(record)
    spec = pod.get("spec") or {}
    tail, limit = parse_int(parameters, "tailLines"), parse_int(parameters, "limitBytes")
    _check_minimum(name, "tailLines", tail, 0)
    _check_minimum(name, "limitBytes", limit, 1)
    container = _container_name(name, spec, parameters.get("container", ""))
    if not spec.get("nodeName"):
        return None
    options = PodLogOptions(
        container=container,
        follow=parse_bool(parameters, "follow"),
        previous=parse_bool(parameters, "previous"),
        tail_lines=tail,
        limit_bytes=limit,
        since=_since(name, parameters, now),
        timestamps=parse_bool(parameters, "timestamps"),
    )
    return PodLogRequest(record.key, record.uid, options)


def _container_name(pod: str, spec: Manifest, requested: str) -> str:
    regular: list[str] = [container["name"] for container in spec.get("containers") or ()]
    names: list[str] = [*regular, *(container["name"] for container in spec.get("initContainers") or ())]
    if requested:
        if requested not in names:
            raise bad_request(f"container {requested} is not valid for pod {pod}")
        return requested
    if len(names) == 1:
        return names[0]
    raise bad_request(f"a container name must be specified for pod {pod}, choose one of: [{' '.join(regular)}]")


def _since(pod: str, parameters: Parameters, now: datetime) -> datetime | None:
    seconds, since_time = parse_int(parameters, "sinceSeconds"), parameters.get("sinceTime", "")
    _check_minimum(pod, "sinceSeconds", seconds, 1)
    if seconds is not None:
        return now - timedelta(seconds=seconds)
    if not since_time:
        return None
    try:
        return datetime.fromisoformat(since_time).astimezone(UTC)
    except ValueError:
        raise bad_request(f'sinceTime is "{since_time}", but must be a time such as 2026-01-31T12:00:00Z') from None


def _check_minimum(pod: str, parameter: str, value: int | None, minimum: int) -> None:
    if value is not None and value < minimum:
        error = field_errors.invalid(parameter, value, f"must be greater than or equal to {minimum}")
        raise StatusError(
            422,
            f'PodLogOptions "{pod}" is invalid: {parameter}: {error.message}',
            details={"name": pod, "kind": "PodLogOptions"},
            causes=[error],
        )
