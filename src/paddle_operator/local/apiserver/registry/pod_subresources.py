"""What can be asked of a pod beside the object itself: to be bound to a node, to be evicted, to show its log."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver.answers import Answer, success
from paddle_operator.local.apiserver.api_errors import Refusal, bad_request
from paddle_operator.local.apiserver.registry.create_update import Writer
from paddle_operator.local.apiserver.registry.delete import Deleter
from paddle_operator.local.apiserver.registry.object_meta import metadata_of, told_time
from paddle_operator.local.apiserver.registry.resource import Resource
from paddle_operator.local.apiserver.request_info import Parameters, WriteOptions, delete_options, number, truth
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.storage.watch_cache import Record
from paddle_operator.local.apiserver.validation import causes
from paddle_operator.local.container_logs import LogOptions


class PodLogs(Protocol):
    def stream(self, pod: Key, uid: str, options: LogOptions) -> AsyncIterator[bytes]:
        """Yield what a container has printed, in chunks. Raises LogError with the message for the client."""


@dataclass(frozen=True)
class LogRequest:
    """A validated request for a log, which may still not exist."""

    pod: Key
    uid: str
    options: LogOptions


def bind(
    writer: Writer, pods: Resource, record: Record, binding: Manifest, options: WriteOptions, clock: Clock
) -> Answer:
    """Give a pod to a node, once. Raises Refusal."""
    name = record.key.name
    target = binding.get("target")
    node = target.get("name") if isinstance(target, dict) else None
    if not node or not isinstance(node, str):
        problem = causes.required("target.name")
        details = {"name": name, "kind": "Binding"}
        sentence = f'Binding "{name}" is invalid: target.name: Required value'
        raise Refusal(422, sentence, details=details, causes=[problem])
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
        sentence = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
        raise Refusal(409, sentence, details={"name": name, "kind": "pods/binding"})
    pod["spec"]["nodeName"] = node
    for part in ("annotations", "labels"):
        added = metadata_of(binding).get(part)
        if isinstance(added, dict) and all(isinstance(value, str) for value in added.values()):
            metadata[part] = (metadata.get(part) or {}) | added
    status = pod.setdefault("status", {})
    others = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    status["conditions"] = [*others, scheduled | {"lastTransitionTime": told_time(clock.now())}]
    if not options.dry_run:
        writer.put(pods, record, pod)
    return success(201)


def evict(deleter: Deleter, pods: Resource, record: Record, eviction: Manifest, parameters: Parameters) -> Answer:
    """A deletion like any other: there are no disruption budgets here. Raises Refusal."""
    options = eviction.get("deleteOptions")
    if options is not None and not isinstance(options, dict):
        raise bad_request("deleteOptions of an Eviction are an object")
    deleter.end(pods, record, delete_options(parameters, options))
    return success(201)


def log_request(pods: Resource, record: Record, parameters: Parameters, now: datetime) -> LogRequest | None:
    """None where no node has the pod yet, so that there is no log. Raises Refusal."""
    name, pod = record.key.name, pods.manifest(record)
    spec = pod.get("spec") or {}
    tail, limit = number(parameters, "tailLines"), number(parameters, "limitBytes")
    _check_number(name, "tailLines", tail, 0)
    _check_number(name, "limitBytes", limit, 1)
    container = _container(name, spec, parameters.get("container", ""))
    if not spec.get("nodeName"):
        return None
    options = LogOptions(
        container=container,
        follow=truth(parameters, "follow"),
        previous=truth(parameters, "previous"),
        tail_lines=tail,
        limit_bytes=limit,
        since=_since(name, parameters, now),
        timestamps=truth(parameters, "timestamps"),
    )
    return LogRequest(record.key, record.uid, options)


def _container(pod: str, spec: Manifest, wanted: str) -> str:
    own: list[str] = [container["name"] for container in spec.get("containers") or ()]
    every: list[str] = [*own, *(container["name"] for container in spec.get("initContainers") or ())]
    if wanted:
        if wanted not in every:
            raise bad_request(f"container {wanted} is not valid for pod {pod}")
        return wanted
    if len(every) == 1:
        return every[0]
    raise bad_request(f"a container name must be specified for pod {pod}, choose one of: [{' '.join(own)}]")


def _since(pod: str, parameters: Parameters, now: datetime) -> datetime | None:
    seconds, instant = number(parameters, "sinceSeconds"), parameters.get("sinceTime", "")
    _check_number(pod, "sinceSeconds", seconds, 1)
    if seconds is not None:
        return now - timedelta(seconds=seconds)
    if not instant:
        return None
    try:
        return datetime.fromisoformat(instant).astimezone(UTC)
    except ValueError:
        raise bad_request(f'sinceTime is "{instant}", but must be an instant such as 2026-01-31T12:00:00Z') from None


def _check_number(pod: str, parameter: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        problem = causes.invalid(parameter, value, f"must be greater than or equal to {least}")
        raise Refusal(
            422,
            f'PodLogOptions "{pod}" is invalid: {parameter}: {problem.message}',
            details={"name": pod, "kind": "PodLogOptions"},
            causes=[problem],
        )
