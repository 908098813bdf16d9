"""What does a request ask for? Its path, parameters and options, read as kube-apiserver reads them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.api_errors import Refusal, bad_request
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.validation import causes

Parameters = Mapping[str, str]

_NAMESPACE_PARTS = ("status", "finalize")  # subresources of a namespace, and no kinds within it


@dataclass(frozen=True)
class Target:
    """What a path names: a collection, an object where there is a name, or a part of it."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target_of(path: str) -> Target | None:
    """None for a path of another form. `path` has no escapes any more."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in _NAMESPACE_PARTS:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or "" in rest:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return Target(group, version, plural, namespace, name, subresource)


# Bodies

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
DEEPEST = 500  # decoding is recursive, and the C stack of a process that has raised Python's limit ends at 20,000
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


def read_json(body: bytes) -> Any:
    """Raises one of UNREADABLE for what is no JSON, Refusal for what is nested too deep."""
    if body.count(b"{") + body.count(b"[") > DEEPEST and _depth(body) > DEEPEST:
        raise bad_request(f"the body of the request is nested more than {DEEPEST} deep: nobody could read it")
    return msgspec.json.decode(body)


def _depth(body: bytes) -> int:
    depth = deepest = 0
    for found in _TOKEN.finditer(body):
        token = found[0]
        if token in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif token in b"}]":
            depth -= 1
    return deepest


# Parameters: what is not read somewhere is refused, rather than obeyed by half.
_EVERYWHERE = {"pretty", "timeout"}
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
    """Raises Refusal for one that means nothing here."""
    known = KNOWN_PARAMETERS[method] | _EVERYWHERE
    for name in parameters:
        if name not in known:
            raise bad_request(f"the local cluster does not know the parameter {name} of {method}: leave it out")


def truth(parameters: Parameters, name: str) -> bool:
    """As Go's converter: anything but a no is a yes."""
    return parameters.get(name, "false").lower() not in ("", "0", "false")


def number(parameters: Parameters, name: str) -> int | None:
    text = parameters.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def version(text: str) -> int:
    """A resourceVersion; 0 for none."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        told = causes.invalid("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax')
        raise bad_request(f"invalid resource version: {told.field}: {told.message}")
    return int(text)


def invalid_options(kind: str, *problems: Cause) -> Refusal:
    told = ", ".join(f"{problem.field}: {problem.message}" for problem in problems)
    words = told if len(problems) == 1 else f"[{told}]"
    details = {"group": "meta.k8s.io", "kind": kind}
    return Refusal(422, f'{kind}.meta.k8s.io "" is invalid: {words}', details=details, causes=problems)


@dataclass(frozen=True)
class WriteOptions:
    dry_run: bool = False
    validation: str = "Warn"


def write_options(kind: str, parameters: Parameters) -> WriteOptions:
    """`kind` is how a refusal calls the options: CreateOptions, UpdateOptions, PatchOptions."""
    validation = parameters.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Strict", "Warn"):
        known = ("", "Ignore", "Strict", "Warn")
        raise invalid_options(kind, causes.unsupported("fieldValidation", validation, known))
    return WriteOptions(_dry_run(kind, parameters.get("dryRun")), validation or "Warn")


def _dry_run(kind: str, text: str | None) -> bool:
    if text not in (None, "", "All"):
        raise invalid_options(kind, causes.unsupported("dryRun", [text], ("All",)))
    return text == "All"


@dataclass(frozen=True)
class DeleteOptions:
    dry_run: bool = False
    grace_seconds: int | None = None
    propagation: str = ""  # empty leaves it to the object's finalizers
    uid: str = ""
    resource_version: str = ""


_POLICIES = ("Foreground", "Background", "Orphan")


def delete_options(parameters: Parameters, body: Manifest | None) -> DeleteOptions:
    """From the body, or from the parameters where there is none. A dry run is one whoever asks for it."""
    told: Manifest = body or {}
    for name, form in (("orphanDependents", bool), ("dryRun", list), ("propagationPolicy", str)):
        if not isinstance(told.get(name), form | None):
            raise bad_request(f"{name} of DeleteOptions is {told[name]!r}, which is of another type")
    if not body:
        told = {name: parameters[name] for name in ("propagationPolicy", "orphanDependents") if name in parameters}
        told["gracePeriodSeconds"] = number(parameters, "gracePeriodSeconds")
        if "orphanDependents" in told:
            told["orphanDependents"] = truth(parameters, "orphanDependents")
    preconditions = told.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise bad_request("preconditions of a deletion are an object with uid and resourceVersion")
    return DeleteOptions(
        dry_run=_dry_run("DeleteOptions", parameters.get("dryRun")) or "All" in (told.get("dryRun") or ()),
        grace_seconds=_grace(told.get("gracePeriodSeconds")),
        propagation=_propagation(told),
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
    )


def _grace(seconds: Any) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise bad_request(f"gracePeriodSeconds is {seconds!r}, but must be a whole number of seconds")
    return seconds


def _propagation(told: Manifest) -> str:
    policy, orphan = told.get("propagationPolicy"), told.get("orphanDependents")
    if policy is not None and orphan is not None:
        problem = causes.invalid(
            "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
        )
        raise invalid_options("DeleteOptions", problem)
    if policy is not None and policy not in _POLICIES:
        raise invalid_options("DeleteOptions", causes.unsupported("propagationPolicy", policy, (*_POLICIES, "nil")))
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    return policy or ""
