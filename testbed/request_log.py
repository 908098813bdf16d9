"""What does an HTTP request mean to an API server, and which requests does a pattern mean?

The rules are those of the server's own RequestInfoFactory (k8s.io/apiserver, pkg/endpoints/request/requestinfo.go).
"""

import hashlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

import msgspec

VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Target(NamedTuple):
    """What a URL names; a path that is no resource has only its HTTP method as verb."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class Asked(msgspec.Struct, frozen=True):
    """One request as rules see it; `user` is `user_of` its token."""

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


class Seen(msgspec.Struct, frozen=True):
    """The record of one request, or of a connection turned away (verb "connect").

    `at` is in monotonic seconds; `code` is what the client was told, None where it was told nothing.
    """

    at: float
    verb: str
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    code: int | None = None


class Pattern(NamedTuple):
    """Shell patterns (`mnist-*`) on a request's words; a word left out fits everything."""

    verb: str | None = None
    resource: str | None = None
    subresource: str | None = None
    namespace: str | None = None
    name: str | None = None
    user: str | None = None

    def fits(self, one: Asked | Seen) -> bool:
        found = (one.verb, one.resource, one.subresource, one.namespace, one.name, one.user)
        return all(wanted is None or fnmatchcase(word, wanted) for wanted, word in zip(self, found, strict=True))


def asked(method: str, path: str, query: Mapping[str, str], token: str, body: bytes) -> Asked:
    """The request as the server understands it, but a create also has the name that stands in its body."""
    verb, group, resource, subresource, namespace, name = target(method, path, query)
    if verb == "create" and not name:
        name = name_in(body)
    return Asked(verb, group, resource, subresource, namespace, name, user_of(token), query, body)


def target(method: str, path: str, query: Mapping[str, str]) -> Target:
    """What the path, unescaped, and the query name."""
    match path.strip("/").split("/"):
        case ["api", _, first, *rest]:
            group = ""
        case ["apis", group, _, first, *rest]:
            pass
        case _:
            return Target(method.lower())
    verb = VERBS.get(method, "")
    if first == "watch" and rest:  # the old spelling of ?watch=1, which servers still understand
        verb, (first, *rest) = "watch", rest
    namespace = ""
    if first == "namespaces" and rest:
        namespace = rest[0]
        if len(rest) > 1 and rest[1] not in {"status", "finalize"}:
            first, *rest = rest[1:]
    name, subresource = (*rest[:2], "", "")[:2]
    if not name:
        verb = of_collection(verb, query)
        if verb in {"list", "watch"}:
            name = name_selected(query.get("fieldSelector", ""))
    return Target(verb, group, first, subresource, namespace, name)


def of_collection(verb: str, query: Mapping[str, str]) -> str:
    match verb:
        case "get":
            return "watch" if is_true(query.get("watch")) else "list"
        case "delete":
            return "deletecollection"
    return verb


def is_true(word: str | None) -> bool:
    """The server's reading of a boolean parameter: whatever is there and does not say no."""
    return word is not None and word.lower() not in {"false", "0"}


def name_selected(field_selector: str) -> str:
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


def name_in(body: bytes) -> str:
    try:
        return _NAMED.decode(body).metadata.name
    except msgspec.DecodeError:
        return ""


@lru_cache(maxsize=1024)
def user_of(token: str) -> str:
    """What stands for a bearer token in records, so that no token is printed by a failing test."""
    return hashlib.sha256(token.encode()).hexdigest()[:12] if token else ""


def peak_per_second(requests: Iterable[Seen]) -> int:
    """The most requests in any one second, wherever it begins."""
    instants = sorted(one.at for one in requests)
    peak = first = 0
    for last, at in enumerate(instants):
        while at - instants[first] >= 1:
            first += 1
        peak = max(peak, last - first + 1)
    return peak
