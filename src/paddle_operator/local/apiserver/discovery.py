"""Which groups, versions and kinds are served? kubectl's first requests: /version, /api, /apis and the groups below.

kubectl 1.36 requests all of it at once (aggregated discovery, v2); older clients request one document a group.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import msgspec

from paddle_operator.local.apiserver.request_info import JSON_MEDIA_TYPE
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.scheme.openapi_definitions import openapi_data

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS = ("get", "patch", "update")
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
AGGREGATED_VERSIONS = ("v2", "v2beta1")

# The subresources of pods besides status: the kind of their body and their verbs.
POD_SUBRESOURCES: Mapping[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
    "binding": (("", "v1", "Binding"), ("create",)),
    "eviction": (("policy", "v1", "Eviction"), ("create",)),
    "log": (("", "v1", "Pod"), ("get",)),
}


@dataclass(frozen=True)
class APIDocument:
    """A response that describes the API; also used by openapi.py."""

    body: bytes
    media_type: str = JSON_MEDIA_TYPE
    immutable: bool = False  # its URL has its hash, so clients may cache it for good

    @cached_property
    def digest(self) -> str:
        """A hash of the body, for the ETag."""
        return hashlib.sha256(self.body).hexdigest().upper()

    @property
    def headers(self) -> dict[str, str]:
        """How long a client may cache it, and how it revalidates."""
        cache_control = "public, immutable, max-age=31536000" if self.immutable else "no-cache, private"
        return {"Cache-Control": cache_control, "ETag": f'"{self.digest}"', "Vary": "Accept"}


FindDocument = Callable[[str, str, str], APIDocument | None]
"""The document at a path, for a query (`hash=…`) and an Accept header; None if there is none."""


def json_document(content: object, media_type: str = JSON_MEDIA_TYPE) -> APIDocument:
    return APIDocument(msgspec.json.encode(content), media_type)


def discovery_documents(kinds: Iterable[Kind]) -> FindDocument:
    groups = kinds_by_group(kinds)
    plain = {path: json_document(content) for path, content in plain_documents(groups).items()}
    aggregated = {
        (path, version): json_document(content, AGGREGATED.format(version=version))
        for version in AGGREGATED_VERSIONS
        for path, content in aggregated_documents(groups, version).items()
    }

    def find(path: str, _query: str, accept: str) -> APIDocument | None:
        accepted = accept.replace(" ", "")
        for version in AGGREGATED_VERSIONS:
            if (path, version) in aggregated and AGGREGATED.format(version=version) in accepted:
                return aggregated[path, version]
        return plain.get(path)

    return find


def kinds_by_group(kinds: Iterable[Kind]) -> dict[tuple[str, str], list[Kind]]:
    """The kinds by group and version, the core group first."""
    ordered = sorted(kinds, key=lambda kind: (kind.group, kind.version, kind.plural))
    return {key: list(group) for key, group in groupby(ordered, lambda kind: (kind.group, kind.version))}


def plain_documents(groups: Mapping[tuple[str, str], list[Kind]]) -> dict[str, Manifest]:
    documents: dict[str, Manifest] = {
        "/version": version_info(),
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [api_group(name, v) for name, v in groups if name],
        },
    }
    for (name, version), kinds in groups.items():
        if name:
            documents[f"/apis/{name}"] = {"kind": "APIGroup", "apiVersion": "v1"} | api_group(name, version)
        documents[kinds[0].prefix] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": kinds[0].api_version,
            "resources": [resource for kind in kinds for resource in api_resources(kind)],
        }
    return documents


def version_info() -> Manifest:
    """The Kubernetes version of the schemas, for which kubectl takes this server."""
    return openapi_data().version | {
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "paddle-operator/local",
    }


def api_group(name: str, version: str) -> Manifest:
    """Each group has exactly one version."""
    group_version = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [group_version], "preferredVersion": group_version}


def api_resources(kind: Kind) -> Iterator[Manifest]:
    """The entries of a kind and its subresources in an APIResourceList."""
    resource: Manifest = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs(kind),
    }
    for key, names in (("shortNames", kind.short_names), ("categories", kind.categories)):
        if names:
            resource[key] = list(names)
    yield resource
    for name, (group, version, body_kind), body_verbs in served_subresources(kind):
        entry = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        if (group, version) != (kind.group, kind.version):
            entry |= {"group": group, "version": version}
        yield entry | {"kind": body_kind, "verbs": list(body_verbs)}


def verbs(kind: Kind) -> list[str]:
    is_namespace = kind.kind == "Namespace" and not kind.group  # has no deletecollection
    return [verb for verb in VERBS if not (is_namespace and verb == "deletecollection")]


def served_subresources(kind: Kind) -> Iterator[tuple[str, tuple[str, str, str], tuple[str, ...]]]:
    """The subresources of a kind: name, kind of the body, verbs."""
    if kind.kind == "Pod" and not kind.group:
        for name, (body_kind, body_verbs) in POD_SUBRESOURCES.items():
            yield name, body_kind, body_verbs
    if kind.scale:
        yield "scale", ("autoscaling", "v1", "Scale"), SUBRESOURCE_VERBS
    if kind.has_status:
        yield "status", (kind.group, kind.version, kind.kind), SUBRESOURCE_VERBS


def aggregated_documents(groups: Mapping[tuple[str, str], list[Kind]], version: str) -> dict[str, Manifest]:
    """The documents at /api and /apis, each with all of its groups."""
    items_by_path: dict[str, list[Manifest]] = {"/api": [], "/apis": []}
    for (name, group_version), kinds in groups.items():
        served = {
            "version": group_version,
            "resources": [aggregated_resource(kind) for kind in kinds],
            "freshness": "Current",
        }
        metadata = {"name": name} if name else {}
        items_by_path["/apis" if name else "/api"].append({"metadata": metadata, "versions": [served]})
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}}
    return {path: head | {"items": items} for path, items in items_by_path.items()}


def aggregated_resource(kind: Kind) -> Manifest:
    resource: Manifest = {
        "resource": kind.plural,
        "responseKind": group_version_kind(kind.group, kind.version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    }
    for key, names in (("shortNames", kind.short_names), ("categories", kind.categories)):
        if names:
            resource[key] = list(names)
    entries = [
        {"subresource": name, "responseKind": group_version_kind(*body_kind), "verbs": list(body_verbs)}
        for name, body_kind, body_verbs in served_subresources(kind)
    ]
    return resource | ({"subresources": entries} if entries else {})


def group_version_kind(group: str, version: str, kind: str) -> Manifest:
    return {"group": group, "version": version, "kind": kind}
