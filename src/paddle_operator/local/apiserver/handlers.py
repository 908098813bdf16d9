"""Which code handles a request? Dispatch by resource, subresource and method, without HTTP.

The list of resources is closed. The error for anything else names what is not supported and what to do instead.
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
from paddle_operator.local.apiserver.api_errors import StatusError, bad_request
from paddle_operator.local.apiserver.garbage_collector import GarbageCollector
from paddle_operator.local.apiserver.patch import json_patch, strategic_merge
from paddle_operator.local.apiserver.printers.table import build_table
from paddle_operator.local.apiserver.registry import pod_subresources
from paddle_operator.local.apiserver.registry.create_update import Mutation, ObjectWriter
from paddle_operator.local.apiserver.registry.delete import ObjectDeleter
from paddle_operator.local.apiserver.registry.list import (
    check_list_parameters,
    list_body,
    list_records,
    parse_selection,
)
from paddle_operator.local.apiserver.registry.pod_subresources import PodLogRequest
from paddle_operator.local.apiserver.registry.resource import APIResource, APIResponse, ResourceRegistry, json_response
from paddle_operator.local.apiserver.registry.scale import apply_scale, scale_of
from paddle_operator.local.apiserver.registry.watch import Watch, parse_watch_request
from paddle_operator.local.apiserver.request_info import (
    JSON_DECODE_ERRORS,
    JSON_MEDIA_TYPE,
    Parameters,
    RequestInfo,
    WriteOptions,
    check_parameters,
    parse_bool,
    parse_delete_options,
    parse_version,
    parse_write_options,
    read_json,
)
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.storage.sqlite import ObjectStore, decode
from paddle_operator.local.apiserver.storage.watch_cache import Record

INITIAL_NAMESPACES = ("default", "paddle-system")

UNSUPPORTED_SUBRESOURCES = {
    "exec": "the local cluster does not support exec: its containers are processes of this machine",
    "attach": "the local cluster does not support attach: use `kubectl logs --follow`",
    "portforward": "the local cluster needs no port forwarding: every pod's address is reachable on this machine",
    "proxy": "the local cluster has no proxy: every pod's address is reachable on this machine",
    "ephemeralcontainers": "the local cluster does not support ephemeral containers",
    "finalize": "the local cluster finalizes a namespace itself when it is empty",
    "token": "the local cluster issues no tokens: use the one in its kubeconfig",
}


@dataclass(frozen=True)
class APIRequest:
    method: str
    info: RequestInfo
    parameters: Parameters
    body: bytes = b""
    content_type: str = ""
    accept: str = ""


HandlerResult = APIResponse | Watch | PodLogRequest

PROTOBUF_HINT = (
    "the local cluster reads no protobuf, which kubectl sends when it builds an object from flags: "
    "add --dry-run=client -o yaml and pipe the output into kubectl apply -f -"
)


class Handlers:
    """Everything between the HTTP server and the store."""

    def __init__(self, directory: Path, kinds: Iterable[Kind], clock: Clock) -> None:
        """Raises StorageError."""
        self.clock = clock
        self.store = ObjectStore(directory, clock)
        self.resources = ResourceRegistry(kinds, self.store)
        self.writer = ObjectWriter(self.store, self.resources, clock)
        self.deleter = ObjectDeleter(self.writer, clock)
        self.garbage_collector = GarbageCollector(self.store, self.resources, self.writer, self.deleter, clock)
        self._create_namespaces()

    def _create_namespaces(self) -> None:
        namespaces = self.resources.find("", "v1", "namespaces")
        for name in INITIAL_NAMESPACES if namespaces else ():
            assert namespaces
            if namespaces.table.get(Key("", name)) is None:
                self.writer.create(namespaces, "", {"metadata": {"name": name}}, WriteOptions())

    def handle(self, request: APIRequest) -> HandlerResult:
        """Raises StatusError."""
        info = request.info
        resource = self.resources.find(info.group, info.version, info.plural)
        if resource is None or (info.namespace and not resource.kind.namespaced):
            raise _not_served(info)
        if info.subresource in UNSUPPORTED_SUBRESOURCES:  # first, since their parameters are all unknown
            raise _not_served(info)
        check_parameters(request.method, request.parameters)
        if info.subresource:
            return self._handle_subresource(request, resource)
        if info.name:
            if resource.kind.namespaced and not info.namespace:
                raise _not_served(info)
            return self._handle_object(request, resource)
        return self._handle_collection(request, resource)

    # Collections

    def _handle_collection(self, request: APIRequest, resource: APIResource) -> HandlerResult:
        namespace, parameters = request.info.namespace, request.parameters
        if request.method == "GET":
            return self._list_or_watch(request, resource)
        if resource.kind.namespaced and not namespace:
            raise _method_not_allowed()
        if request.method == "POST":
            options = parse_write_options("CreateOptions", parameters)
            created = self.writer.create(resource, namespace, _decode_object(request, resource.kind.kind), options)
            return self._represent(request, resource, created)
        if request.method == "DELETE" and resource.kind.plural != "namespaces":
            return self._delete_all(request, resource)
        raise _method_not_allowed()

    def _list_or_watch(self, request: APIRequest, resource: APIResource) -> HandlerResult:
        parameters = request.parameters
        check_list_parameters(parameters)
        selection = parse_selection(resource, request.info.namespace, parameters)
        as_table = wants_table(request.accept)
        if parse_bool(parameters, "watch"):
            render = (lambda body: self._render_table(request, resource, body)) if as_table else _unchanged
            return Watch(self.store, resource, parse_watch_request(selection, parameters), render, self.clock)
        result = list_records(self.store, resource, selection, parameters)
        if as_table:
            items = [resource.manifest(record) for record in result.records]
            return json_response(self._build_table(request, resource, items, result.metadata))
        return APIResponse(list_body(resource, result))

    def _delete_all(self, request: APIRequest, resource: APIResource) -> APIResponse:
        options = parse_delete_options(request.parameters, _decode_delete_options(request))
        check_list_parameters(request.parameters)
        selection = parse_selection(resource, request.info.namespace, request.parameters)
        result = list_records(self.store, resource, selection, request.parameters)
        for record in result.records:
            if resource.table.get(record.key) is not None:
                self.deleter.start_deletion(resource, record, options)
        return APIResponse(list_body(resource, result))

    # Objects

    def _handle_object(self, request: APIRequest, resource: APIResource) -> APIResponse:
        info, parameters = request.info, request.parameters
        key = resource.key(info.namespace, info.name)
        if request.method == "GET":
            requested = parse_version(parameters.get("resourceVersion", ""))
            if requested > self.store.version:
                raise api_errors.too_large_version(requested, self.store.version)
            return self._represent(request, resource, APIResponse(resource.body(self._record(resource, key))))
        if request.method == "PUT":
            options = parse_write_options("UpdateOptions", parameters)
            return self.writer.update(resource, key, _decode_object(request, resource.kind.kind), options)
        if request.method == "PATCH":
            options = parse_write_options("PatchOptions", parameters)
            return self.writer.patch(resource, key, _parse_patch(request, resource.kind), options)
        if request.method == "DELETE":
            deletion = parse_delete_options(parameters, _decode_delete_options(request))
            return self.deleter.delete(resource, resource.table.get(key), info.name, deletion)
        raise _method_not_allowed()

    def _record(self, resource: APIResource, key: Key) -> Record:
        record = resource.table.get(key)
        if record is None:
            raise api_errors.not_found(resource.kind, key.name)
        return record

    # Subresources

    def _handle_subresource(self, request: APIRequest, resource: APIResource) -> HandlerResult:
        kind, subresource = resource.kind, request.info.subresource
        key = resource.key(request.info.namespace, request.info.name)
        if subresource == "status" and kind.has_status:
            return self._handle_status(request, resource, key)
        if subresource == "scale" and kind.scale:
            return self._handle_scale(request, resource, key)
        if (kind.group, kind.plural) == ("", "pods") and subresource in ("binding", "eviction", "log"):
            return self._handle_pod_subresource(request, resource, self._record(resource, key))
        raise _not_served(request.info)

    def _handle_status(self, request: APIRequest, resource: APIResource, key: Key) -> APIResponse:
        parameters = request.parameters
        if request.method == "GET":
            return self._represent(request, resource, APIResponse(resource.body(self._record(resource, key))))
        if request.method == "PUT":
            options = parse_write_options("UpdateOptions", parameters)
            return self.writer.update(resource, key, _decode_object(request, resource.kind.kind), options, "status")
        if request.method == "PATCH":
            options = parse_write_options("PatchOptions", parameters)
            return self.writer.patch(resource, key, _parse_patch(request, resource.kind), options, "status")
        raise _method_not_allowed()

    def _handle_scale(self, request: APIRequest, resource: APIResource, key: Key) -> APIResponse:
        kind, scale = resource.kind, resource.kind.scale
        assert scale
        if request.method == "GET":
            return json_response(scale_of(scale, resource.manifest(self._record(resource, key))))
        if request.method == "PUT":
            new_scale = _decode_object(request, "Scale")
            options = parse_write_options("UpdateOptions", request.parameters)

            def mutate(manifest: Manifest) -> Manifest:
                return apply_scale(kind, manifest, new_scale)

        elif request.method == "PATCH":
            patch_scale = _parse_patch(request, kind)
            options = parse_write_options("PatchOptions", request.parameters)

            def mutate(manifest: Manifest) -> Manifest:
                return apply_scale(kind, manifest, patch_scale(scale_of(scale, manifest)))

        else:
            raise _method_not_allowed()
        response = self.writer.patch(resource, key, mutate, options)
        return json_response(scale_of(scale, decode(response.body)), response.code, response.warnings)

    def _handle_pod_subresource(self, request: APIRequest, pods: APIResource, record: Record) -> HandlerResult:
        subresource, parameters = request.info.subresource, request.parameters
        if subresource == "log" and request.method == "GET":
            return pod_subresources.parse_log_request(pods, record, parameters, self.clock.now()) or APIResponse(
                b"", 204
            )
        if subresource == "binding" and request.method == "POST":
            options = parse_write_options("CreateOptions", parameters)
            return pod_subresources.bind(
                self.writer, pods, record, _decode_object(request, "Binding"), options, self.clock
            )
        if subresource == "eviction" and request.method == "POST":
            return pod_subresources.evict(self.deleter, pods, record, _decode_object(request, "Eviction"), parameters)
        raise _method_not_allowed()

    # Representations

    def _represent(self, request: APIRequest, resource: APIResource, response: APIResponse) -> APIResponse:
        if not wants_table(request.accept):
            return response
        return APIResponse(self._render_table(request, resource, response.body), response.code, response.warnings)

    def _render_table(self, request: APIRequest, resource: APIResource, body: bytes) -> bytes:
        manifest = decode(body)
        return msgspec.json.encode(self._build_table(request, resource, [manifest], manifest["metadata"]))

    def _build_table(
        self, request: APIRequest, resource: APIResource, items: list[Manifest], metadata: Manifest
    ) -> Manifest:
        include: Any = request.parameters.get("includeObject") or "Metadata"
        if include not in ("Metadata", "Object", "None"):
            raise bad_request(f"includeObject is {include}, but must be Metadata, Object or None")
        return build_table(resource.kind, items, metadata, self.clock.now(), include)


def _unchanged(body: bytes) -> bytes:
    return body


@lru_cache(maxsize=64)
def wants_table(accept: str) -> bool:
    """Whether the client prefers a Table. Raises StatusError if it accepts no available representation."""
    if not accept:
        return False
    for media in accept.split(","):
        kind, *parameters = (part.strip() for part in media.split(";"))
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        if options.get("as") == "Table" and options.get("v") == "v1" and options.get("g") == "meta.k8s.io":
            return True
        if kind in (JSON_MEDIA_TYPE, "*/*", "application/*") and "as" not in options:
            return False
    raise StatusError(
        406, f"406: Not Acceptable\n\nAvailable representations: {JSON_MEDIA_TYPE}; the client accepts only {accept}"
    )


def _decode_body(request: APIRequest, kind: str) -> Any:
    if request.content_type not in ("", JSON_MEDIA_TYPE):
        raise StatusError(
            415,
            f"the body of the request was in an unknown format - accepted media types include: {JSON_MEDIA_TYPE}"
            + (f"; {PROTOBUF_HINT}" if request.content_type.endswith("protobuf") else ""),
        )
    try:
        return read_json(request.body)
    except JSON_DECODE_ERRORS as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): json parse error: {error}"
        ) from None


def _decode_object(request: APIRequest, kind: str) -> Manifest:
    manifest = _decode_body(request, kind)
    if not isinstance(manifest, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): the body is no JSON object")
    return manifest


def _decode_delete_options(request: APIRequest) -> Manifest | None:
    """The DeleteOptions in the body; None without a body."""
    if not request.body:
        return None
    options = _decode_body(request, "DeleteOptions")
    if not isinstance(options, dict) or (options.get("kind") or "DeleteOptions") != "DeleteOptions":
        raise bad_request("the body of a deletion must be DeleteOptions or empty")
    return options


def _parse_patch(request: APIRequest, kind: Kind) -> Mutation:
    """The mutation that a patch describes. Raises StatusError."""
    media_type = request.content_type
    if media_type in json_patch.SERVER_SIDE_APPLY:
        raise StatusError(
            415,
            "the local cluster does not support server-side apply: use client-side apply, as `kubectl apply` does",
        )
    supported = [json_patch.JSON_PATCH, json_patch.MERGE_PATCH]
    if not kind.custom:
        supported.append(json_patch.STRATEGIC_MERGE_PATCH)
    if media_type not in supported:
        raise StatusError(
            415,
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(supported)}",
        )
    try:
        patch = read_json(request.body)
    except JSON_DECODE_ERRORS as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if media_type == json_patch.JSON_PATCH:
        return lambda manifest: json_patch.apply_json_patch(manifest, patch)
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a merge patch must be a JSON object")
    if media_type == json_patch.STRATEGIC_MERGE_PATCH:
        return lambda manifest: _apply_strategic_merge_patch(kind, manifest, patch)
    return lambda manifest: json_patch.apply_merge_patch(manifest, patch)


def _apply_strategic_merge_patch(kind: Kind, manifest: Manifest, patch: Manifest) -> Manifest:
    try:
        return strategic_merge.apply_strategic_merge_patch(kind.schema, manifest, patch)
    except strategic_merge.InvalidPatch as error:
        raise bad_request(str(error)) from None
    except (TypeError, AttributeError):  # the patch is not validated before it is merged
        raise bad_request("error decoding patch: its lists and maps do not match the schema of the kind") from None


def _method_not_allowed() -> StatusError:
    return StatusError(405, "the server does not allow this method on the requested resource", details={})


def _not_served(info: RequestInfo) -> StatusError:
    if message := UNSUPPORTED_SUBRESOURCES.get(info.subresource):
        return StatusError(404, message)
    resource = "/".join(filter(None, (info.plural, info.subresource)))
    group_version = f"{info.group}/{info.version}" if info.group else info.version
    return StatusError(
        404,
        f"the server could not find the requested resource: the local cluster has no {resource} in {group_version}; "
        "`kubectl api-resources` lists its resources",
        details={},
    )
