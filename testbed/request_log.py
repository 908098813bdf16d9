"""Parses an HTTP request into verb, resource and name, and matches requests against patterns.

The parsing rules are those of the server's RequestInfoFactory (k8s.io/apiserver, pkg/endpoints/request/requestinfo.go).
"""

import hashlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

import msgspec

VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestTarget(NamedTuple):
    """What a URL names; for a non-resource path only the HTTP method is set."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class ProxiedRequest(msgspec.Struct, frozen=True):
    """One request as rules see it; `user` is the digest of its token."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    query: Mapping[str, str]
    body: bytes

    @property
    def streams(self) -> bool:
        return self.verb == "watch" or (self.subresource == "log" and is_true(self.query.get("follow")))


class RequestRecord(msgspec.Struct, frozen=True):
    """The record of one request, or of a rejected connection (verb "connect").

    `at` is in monotonic seconds; `code` is None if no response was sent.
    """

    at: float
    verb: str
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    code: int | None = None


class RequestPattern(NamedTuple):
    """Shell patterns (`mnist-*`) on the fields of a request; an omitted one matches everything."""

    verb: str | None = None
    resource: str | None = None
    subresource: str | None = None
    namespace: str | None = None
    name: str | None = None
    user: str | None = None

    def matches(self, request: ProxiedRequest | RequestRecord) -> bool:
        found = (request.verb, request.resource, request.subresource, request.namespace, request.name, request.user)
        return all(wanted is None or fnmatchcase(value, wanted) for wanted, value in zip(self, found, strict=True))


def parse_request(method: str, path: str, query: Mapping[str, str], token: str, body: bytes) -> ProxiedRequest:
    """The request as the server parses it; a create also has the name in its body."""
    verb, group, resource, subresource, namespace, name = parse_target(method, path, query)
    if verb == "create" and not name:
        name = name_in_body(body)
    return ProxiedRequest(verb, group, resource, subresource, namespace, name, token_digest(token), query, body)


def parse_target(method: str, path: str, query: Mapping[str, str]) -> RequestTarget:
    """Parse an unescaped path and a query."""
    match path.strip("/").split("/"):
        case ["api", _, first, *rest]:
            group = ""
        case ["apis", group, _, first, *rest]:
            pass
        case _:
            return RequestTarget(method.lower())
    verb = VERBS.get(method, "")
    if first == "watch" and rest:  # the deprecated form of ?watch=1, which servers still accept
        verb, (first, *rest) = "watch", rest
    namespace = ""
    if first == "namespaces" and rest:
        namespace = rest[0]
        if len(rest) > 1 and rest[1] not in {"status", "finalize"}:
            first, *rest = rest[1:]
    name, subresource = (*rest[:2], "", "")[:2]
    if not name:
        verb = collection_verb(verb, query)
        if verb in {"list", "watch"}:
            name = selected_name(query.get("fieldSelector", ""))
    return RequestTarget(verb, group, first, subresource, namespace, name)


def collection_verb(verb: str, query: Mapping[str, str]) -> str:
    match verb:
        case "get":
            return "watch" if is_true(query.get("watch")) else "list"
        case "delete":
            return "deletecollection"
    return verb


def is_true(value: str | None) -> bool:
    """Parse a boolean parameter as the server does: any value but false and 0 is true."""
    return value is not None and value.lower() not in {"false", "0"}


def selected_name(field_selector: str) -> str:
    for term in field_selector.split(","):
        field, _, value = term.partition("=")
        if field == "metadata.name":
            return value.removeprefix("=")
    return ""


class _Meta(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta


_NAMED = msgspec.json.Decoder(_Named)


def name_in_body(body: bytes) -> str:
    try:
        return _NAMED.decode(body).metadata.name
    except msgspec.DecodeError:
        return ""


@lru_cache(maxsize=1024)
def token_digest(token: str) -> str:
    """Identifies a bearer token in records, so that a failing test prints no token."""
    return hashlib.sha256(token.encode()).hexdigest()[:12] if token else ""


def peak_per_second(requests: Iterable[RequestRecord]) -> int:
    """The maximum number of requests in any interval of one second."""
    instants = sorted(request.at for request in requests)
    peak = first = 0
    for last, at in enumerate(instants):
        while at - instants[first] >= 1:
            first += 1
        peak = max(peak, last - first + 1)
    return peak
