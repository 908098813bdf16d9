"""What does a request contain? Its path, parameters and options, parsed as kube-apiserver parses them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.api_errors import StatusError, bad_request
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.validation import field_errors

JSON_MEDIA_TYPE = "application/json"

Parameters = Mapping[str, str]

_NAMESPACE_SUBRESOURCES = ("status", "finalize")  # these are not kinds inside a namespace


@dataclass(frozen=True)
class RequestInfo:
    """The resource of a path: a collection, an object if there is a name, or a subresource."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_request_path(path: str) -> RequestInfo | None:
    """None for other paths. `path` is already unquoted."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, segments = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, segments = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if segments[0] == "namespaces" and len(segments) >= 3 and segments[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, segments = segments[1], segments[2:]
    if len(segments) > 3 or "" in segments:
        return None
    plural, name, subresource = (*segments, "", "")[:3]
    return RequestInfo(group, version, plural, namespace, name, subresource)


# Bodies

JSON_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
MAX_JSON_DEPTH = 500  # decoding recurses in C, whose stack overflows at a depth of 20,000
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


def read_json(body: bytes) -> Any:
    """Raises JSON_DECODE_ERRORS if the body is no JSON, StatusError if it is nested too deep."""
    if body.count(b"{") + body.count(b"[") > MAX_JSON_DEPTH and _depth(body) > MAX_JSON_DEPTH:
        raise bad_request(f"the body of the request is nested more than {MAX_JSON_DEPTH} levels deep")
    return msgspec.json.decode(body)


def _depth(body: bytes) -> int:
    depth = max_depth = 0
    for match in _TOKEN.finditer(body):
        token = match[0]
        if token in b"{[":
            depth += 1
            max_depth = max(max_depth, depth)
        elif token in b"}]":
            depth -= 1
    return max_depth


# Parameters: unknown ones are rejected instead of ignored.
_COMMON = {"pretty", "timeout"}
_LIST = {
    *("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch"),
    *("watch", "allowWatchBookmarks", "timeoutSeconds", "sendInitialEvents", "includeObject"),
}
_WRITE = {"dryRun", "fieldManager", "fieldValidation"}
_DELETE = {"dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "fieldManager"}
_LOG = {
    *("container", "follow", "previous", "tailLines", "limitBytes", "sinceSeconds", "sinceTime", "timestamps"),
    *("insecureSkipTLSVerifyBackend", "stream"),
}
KNOWN_PARAMETERS = {
    "GET": _LIST | _LOG,
    "POST": _WRITE,
    "PUT": _WRITE,
    "PATCH": _WRITE | {"force"},
    "DELETE": _DELETE | _LIST,
}


def check_parameters(method: str, parameters: Parameters) -> None:
    """Raises StatusError for an unknown parameter."""
    known = KNOWN_PARAMETERS[method] | _COMMON
    for name in parameters:
        if name not in known:
            raise bad_request(f"the local cluster does not support the parameter {name} of {method}: omit it")


def parse_bool(parameters: Parameters, name: str) -> bool:
    """As kube-apiserver: every value except 0 and false is true."""
    return parameters.get(name, "false").lower() not in ("", "0", "false")


def parse_int(parameters: Parameters, name: str) -> int | None:
    text = parameters.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def parse_version(text: str) -> int:
    """A resourceVersion; 0 for none."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        error = field_errors.invalid("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax')
        raise bad_request(f"invalid resource version: {error.field}: {error.message}")
    return int(text)


def invalid_options(kind: str, *errors: Cause) -> StatusError:
    messages = ", ".join(f"{error.field}: {error.message}" for error in errors)
    message = messages if len(errors) == 1 else f"[{messages}]"
    details = {"group": "meta.k8s.io", "kind": kind}
    return StatusError(422, f'{kind}.meta.k8s.io "" is invalid: {message}', details=details, causes=errors)


@dataclass(frozen=True)
class WriteOptions:
    dry_run: bool = False
    validation: str = "Warn"


def parse_write_options(kind: str, parameters: Parameters) -> WriteOptions:
    """`kind` is that of the options in error messages: CreateOptions, UpdateOptions or PatchOptions."""
    validation = parameters.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Strict", "Warn"):
        known = ("", "Ignore", "Strict", "Warn")
        raise invalid_options(kind, field_errors.not_supported("fieldValidation", validation, known))
    return WriteOptions(_parse_dry_run(kind, parameters.get("dryRun")), validation or "Warn")


def _parse_dry_run(kind: str, text: str | None) -> bool:
    if text not in (None, "", "All"):
        raise invalid_options(kind, field_errors.not_supported("dryRun", [text], ("All",)))
    return text == "All"


@dataclass(frozen=True)
class DeleteOptions:
    dry_run: bool = False
    grace_seconds: int | None = None
    propagation: str = ""  # empty: as the object's finalizers say
    uid: str = ""
    resource_version: str = ""


_POLICIES = ("Foreground", "Background", "Orphan")


def parse_delete_options(parameters: Parameters, body: Manifest | None) -> DeleteOptions:
    """From the body, or from the parameters if there is no body. Both can request a dry run."""
    options: Manifest = body or {}
    for name, expected_type in (("orphanDependents", bool), ("dryRun", list), ("propagationPolicy", str)):
        if not isinstance(options.get(name), expected_type | None):
            raise bad_request(f"{name} of DeleteOptions is {options[name]!r}, but must be {expected_type.__name__}")
    if not body:
        options = {name: parameters[name] for name in ("propagationPolicy", "orphanDependents") if name in parameters}
        options["gracePeriodSeconds"] = parse_int(parameters, "gracePeriodSeconds")
        if "orphanDependents" in options:
            options["orphanDependents"] = parse_bool(parameters, "orphanDependents")
    preconditions = options.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise bad_request("preconditions of DeleteOptions must be an object with uid and resourceVersion")
    return DeleteOptions(
        dry_run=_parse_dry_run("DeleteOptions", parameters.get("dryRun")) or "All" in (options.get("dryRun") or ()),
        grace_seconds=_parse_grace_seconds(options.get("gracePeriodSeconds")),
        propagation=_parse_propagation(options),
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
    )


def _parse_grace_seconds(seconds: Any) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise bad_request(f"gracePeriodSeconds is {seconds!r}, but must be an integer")
    return seconds


def _parse_propagation(options: Manifest) -> str:
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    if policy is not None and orphan is not None:
        error = field_errors.invalid(
            "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
        )
        raise invalid_options("DeleteOptions", error)
    if policy is not None and policy not in _POLICIES:
        raise invalid_options(
            "DeleteOptions", field_errors.not_supported("propagationPolicy", policy, (*_POLICIES, "nil"))
        )
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    return policy or ""
