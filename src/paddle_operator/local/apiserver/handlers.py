"""From a request to its answer, with nothing of HTTP but its words: which verb of which kind is asked for.

The list is closed. What is not in it is refused with a sentence that says what is not there and what to do.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.objects import Key
from paddle_operator.local.apiserver import api_errors
from paddle_operator.local.apiserver.answers import Answer, told
from paddle_operator.local.apiserver.api_errors import Refusal, bad_request
from paddle_operator.local.apiserver.garbage_collector import GarbageCollector
from paddle_operator.local.apiserver.patch import json_patch, strategic_merge
from paddle_operator.local.apiserver.printers import table
from paddle_operator.local.apiserver.registry import pod_subresources
from paddle_operator.local.apiserver.registry.create_update import Edit, Writer
from paddle_operator.local.apiserver.registry.delete import Deleter
from paddle_operator.local.apiserver.registry.list import check_list_parameters, list_body, selection_of
from paddle_operator.local.apiserver.registry.list import found as found_in
from paddle_operator.local.apiserver.registry.pod_subresources import LogRequest
from paddle_operator.local.apiserver.registry.resource import Resource, Resources
from paddle_operator.local.apiserver.registry.scale import scale_of, scaled
from paddle_operator.local.apiserver.registry.watch import Watch, wish_of
from paddle_operator.local.apiserver.request_info import (
    UNREADABLE,
    Parameters,
    Target,
    WriteOptions,
    check_parameters,
    delete_options,
    read_json,
    truth,
    version,
    write_options,
)
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.storage.sqlite import Store, decode
from paddle_operator.local.apiserver.storage.watch_cache import Record

NAMESPACES_AT_START = ("default", "paddle-system")
JSON = "application/json"

REFUSED_PARTS = {
    "exec": "commands cannot be run inside the containers of a local cluster: its pods are processes of this machine",
    "attach": "there is no attaching to the containers of a local cluster: see `kubectl logs --follow`",
    "portforward": "ports need no forwarding: every pod's address can be reached on this machine",
    "proxy": "the local cluster has no proxy: every pod's address can be reached on this machine",
    "ephemeralcontainers": "the local cluster cannot add containers to a pod that runs",
    "finalize": "a namespace is finalized by the local cluster itself when it is empty",
    "token": "the local cluster has one token, that of its kubeconfig, and issues no others",
}


@dataclass(frozen=True)
class Request:
    method: str
    target: Target
    parameters: Parameters
    body: bytes = b""
    content_type: str = ""
    accept: str = ""


Outcome = Answer | Watch | LogRequest

WITHOUT_PROTOBUF = (
    "the local cluster reads no protobuf, which kubectl sends where it makes an object of flags: "
    "add --dry-run=client -o yaml and pipe that into kubectl apply -f -"
)


class Api:
    """Everything between HTTP and the store."""

    def __init__(self, directory: Path, kinds: Iterable[Kind], clock: Clock) -> None:
        """Raises StoreError."""
        self.clock = clock
        self.store = Store(directory, clock)
        self.resources = Resources(kinds, self.store)
        self.writer = Writer(self.store, self.resources, clock)
        self.deleter = Deleter(self.writer, clock)
        self.garbage = GarbageCollector(self.store, self.resources, self.writer, self.deleter, clock)
        self._make_namespaces()

    def _make_namespaces(self) -> None:
        namespaces = self.resources.find("", "v1", "namespaces")
        for name in NAMESPACES_AT_START if namespaces else ():
            assert namespaces
            if namespaces.table.get(Key("", name)) is None:
                self.writer.create(namespaces, "", {"metadata": {"name": name}}, WriteOptions())

    def answer(self, request: Request) -> Outcome:
        """Raises Refusal."""
        target = request.target
        resource = self.resources.find(target.group, target.version, target.plural)
        if resource is None or (target.namespace and not resource.kind.namespaced):
            raise _not_served(target)
        if target.subresource in REFUSED_PARTS:  # before its parameters, of which none is known
            raise _not_served(target)
        check_parameters(request.method, request.parameters)
        if target.subresource:
            return self._about_part(request, resource)
        if target.name:
            if resource.kind.namespaced and not target.namespace:
                raise _not_served(target)
            return self._about_one(request, resource)
        return self._about_all(request, resource)

    # A collection

    def _about_all(self, request: Request, resource: Resource) -> Outcome:
        namespace, parameters = request.target.namespace, request.parameters
        if request.method == "GET":
            return self._list_or_watch(request, resource)
        if resource.kind.namespaced and not namespace:
            raise _not_allowed()
        if request.method == "POST":
            options = write_options("CreateOptions", parameters)
            created = self.writer.create(resource, namespace, _object(request, resource.kind.kind), options)
            return self._formed(request, resource, created)
        if request.method == "DELETE" and resource.kind.plural != "namespaces":
            return self._delete_all(request, resource)
        raise _not_allowed()

    def _list_or_watch(self, request: Request, resource: Resource) -> Outcome:
        parameters = request.parameters
        check_list_parameters(parameters)
        selection = selection_of(resource, request.target.namespace, parameters)
        table = wants_table(request.accept)
        if truth(parameters, "watch"):
            form = (lambda body: self._table(request, resource, body)) if table else _as_it_is
            return Watch(self.store, resource, wish_of(selection, parameters), form, self.clock)
        found = found_in(self.store, resource, selection, parameters)
        if table:
            items = [resource.manifest(record) for record in found.records]
            return told(self._tabled(request, resource, items, found.metadata))
        return Answer(list_body(resource, found))

    def _delete_all(self, request: Request, resource: Resource) -> Answer:
        options = delete_options(request.parameters, _options_body(request))
        check_list_parameters(request.parameters)
        selection = selection_of(resource, request.target.namespace, request.parameters)
        found = found_in(self.store, resource, selection, request.parameters)
        for record in found.records:
            if resource.table.get(record.key) is not None:
                self.deleter.end(resource, record, options)
        return Answer(list_body(resource, found))

    # An object

    def _about_one(self, request: Request, resource: Resource) -> Answer:
        target, parameters = request.target, request.parameters
        key = resource.key(target.namespace, target.name)
        if request.method == "GET":
            wanted = version(parameters.get("resourceVersion", ""))
            if wanted > self.store.version:
                raise api_errors.too_large_version(wanted, self.store.version)
            return self._formed(request, resource, Answer(resource.body(self._record(resource, key))))
        if request.method == "PUT":
            options = write_options("UpdateOptions", parameters)
            return self.writer.update(resource, key, _object(request, resource.kind.kind), options)
        if request.method == "PATCH":
            options = write_options("PatchOptions", parameters)
            return self.writer.edit(resource, key, _edit(request, resource.kind), options)
        if request.method == "DELETE":
            options_ = delete_options(parameters, _options_body(request))
            return self.deleter.delete(resource, resource.table.get(key), target.name, options_)
        raise _not_allowed()

    def _record(self, resource: Resource, key: Key) -> Record:
        record = resource.table.get(key)
        if record is None:
            raise api_errors.not_found(resource.kind, key.name)
        return record

    # A part of an object

    def _about_part(self, request: Request, resource: Resource) -> Outcome:
        kind, part = resource.kind, request.target.subresource
        key = resource.key(request.target.namespace, request.target.name)
        if part == "status" and kind.has_status:
            return self._about_status(request, resource, key)
        if part == "scale" and kind.scale:
            return self._about_scale(request, resource, key)
        if (kind.group, kind.plural) == ("", "pods") and part in ("binding", "eviction", "log"):
            return self._about_pod(request, resource, self._record(resource, key))
        raise _not_served(request.target)

    def _about_status(self, request: Request, resource: Resource, key: Key) -> Answer:
        parameters = request.parameters
        if request.method == "GET":
            return self._formed(request, resource, Answer(resource.body(self._record(resource, key))))
        if request.method == "PUT":
            options = write_options("UpdateOptions", parameters)
            return self.writer.update(resource, key, _object(request, resource.kind.kind), options, "status")
        if request.method == "PATCH":
            options = write_options("PatchOptions", parameters)
            return self.writer.edit(resource, key, _edit(request, resource.kind), options, "status")
        raise _not_allowed()

    def _about_scale(self, request: Request, resource: Resource, key: Key) -> Answer:
        kind, scale = resource.kind, resource.kind.scale
        assert scale
        if request.method == "GET":
            return told(scale_of(scale, resource.manifest(self._record(resource, key))))
        if request.method == "PUT":
            wanted = _object(request, "Scale")
            options = write_options("UpdateOptions", request.parameters)

            def edit(manifest: Manifest) -> Manifest:
                return scaled(kind, manifest, wanted)

        elif request.method == "PATCH":
            change = _edit(request, kind)
            options = write_options("PatchOptions", request.parameters)

            def edit(manifest: Manifest) -> Manifest:
                return scaled(kind, manifest, change(scale_of(scale, manifest)))

        else:
            raise _not_allowed()
        done = self.writer.edit(resource, key, edit, options)
        return told(scale_of(scale, decode(done.body)), done.code, done.warnings)

    def _about_pod(self, request: Request, pods: Resource, record: Record) -> Outcome:
        part, parameters = request.target.subresource, request.parameters
        if part == "log" and request.method == "GET":
            return pod_subresources.log_request(pods, record, parameters, self.clock.now()) or Answer(b"", 204)
        if part == "binding" and request.method == "POST":
            options = write_options("CreateOptions", parameters)
            return pod_subresources.bind(self.writer, pods, record, _object(request, "Binding"), options, self.clock)
        if part == "eviction" and request.method == "POST":
            return pod_subresources.evict(self.deleter, pods, record, _object(request, "Eviction"), parameters)
        raise _not_allowed()

    # The form of an answer

    def _formed(self, request: Request, resource: Resource, answer: Answer) -> Answer:
        if not wants_table(request.accept):
            return answer
        return Answer(self._table(request, resource, answer.body), answer.code, answer.warnings)

    def _table(self, request: Request, resource: Resource, body: bytes) -> bytes:
        manifest = decode(body)
        return msgspec.json.encode(self._tabled(request, resource, [manifest], manifest["metadata"]))

    def _tabled(self, request: Request, resource: Resource, items: list[Manifest], metadata: Manifest) -> Manifest:
        include: Any = request.parameters.get("includeObject") or "Metadata"
        if include not in ("Metadata", "Object", "None"):
            raise bad_request(f"includeObject is {include}, but must be Metadata, Object or None")
        return table.table(resource.kind, items, metadata, self.clock.now(), include)


def _as_it_is(body: bytes) -> bytes:
    return body


@lru_cache(maxsize=64)
def wants_table(accept: str) -> bool:
    """Whether a table is what the client would like best. Raises Refusal where it takes nothing that we have."""
    if not accept:
        return False
    for media in accept.split(","):
        kind, *parameters = (part.strip() for part in media.split(";"))
        told_ = dict(parameter.partition("=")[::2] for parameter in parameters)
        if told_.get("as") == "Table" and told_.get("v") == "v1" and told_.get("g") == "meta.k8s.io":
            return True
        if kind in (JSON, "*/*", "application/*") and "as" not in told_:
            return False
    raise Refusal(406, f"406: Not Acceptable\n\nAvailable representations: {JSON}; the client accepts only {accept}")


def _decoded(request: Request, what: str) -> Any:
    if request.content_type not in ("", JSON):
        raise Refusal(
            415,
            f"the body of the request was in an unknown format - accepted media types include: {JSON}"
            + (f"; {WITHOUT_PROTOBUF}" if request.content_type.endswith("protobuf") else ""),
        )
    try:
        return read_json(request.body)
    except UNREADABLE as problem:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {what}): json parse error: {problem}"
        ) from None


def _object(request: Request, kind: str) -> Manifest:
    manifest = _decoded(request, kind)
    if not isinstance(manifest, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): it is no JSON object")
    return manifest


def _options_body(request: Request) -> Manifest | None:
    """DeleteOptions, where there are any."""
    if not request.body:
        return None
    options = _decoded(request, "DeleteOptions")
    if not isinstance(options, dict) or (options.get("kind") or "DeleteOptions") != "DeleteOptions":
        raise bad_request("the body of a deletion must be DeleteOptions, or left out")
    return options


def _edit(request: Request, kind: Kind) -> Edit:
    """What a patch does. Raises Refusal."""
    media = request.content_type
    if media in json_patch.APPLY:
        raise Refusal(
            415,
            "the local cluster has no server-side apply: apply on the client's side, as `kubectl apply` does",
        )
    known = [json_patch.JSON, json_patch.MERGE, *([] if kind.custom else [json_patch.STRATEGIC])]
    if media not in known:
        raise Refusal(
            415,
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}",
        )
    try:
        patch = read_json(request.body)
    except UNREADABLE as problem:
        raise bad_request(f"error decoding patch: {problem}") from None
    if media == json_patch.JSON:
        return lambda manifest: json_patch.patched(manifest, patch)
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a merge patch is a JSON object")
    if media == json_patch.STRATEGIC:
        return lambda manifest: _strategically(kind, manifest, patch)
    return lambda manifest: json_patch.merged(manifest, patch)


def _strategically(kind: Kind, manifest: Manifest, patch: Manifest) -> Manifest:
    try:
        return strategic_merge.merged(kind.schema, manifest, patch)
    except strategic_merge.BadPatch as problem:
        raise bad_request(str(problem)) from None
    except (TypeError, AttributeError):  # nobody has looked at the types of a patch before it is merged
        raise bad_request("error decoding patch: its lists and maps are not where the kind has them") from None


def _not_allowed() -> Refusal:
    return Refusal(405, "the server does not allow this method on the requested resource", details={})


def _not_served(target: Target) -> Refusal:
    if sentence := REFUSED_PARTS.get(target.subresource):
        return Refusal(404, sentence)
    whole = "/".join(filter(None, (target.plural, target.subresource)))
    where = f"{target.group}/{target.version}" if target.group else target.version
    return Refusal(
        404,
        f"the server could not find the requested resource: the local cluster has no {whole} in {where}; "
        "`kubectl api-resources` tells what it has",
        details={},
    )
