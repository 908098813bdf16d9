"""Which kinds are there? What kubectl asks first: /version, /api, /apis and what stands below, group by group.

kubectl 1.36 asks for everything at once (aggregated discovery, v2); older programs ask for a document a group.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from paddle_operator.local.apiserver.documents import Document, Finder, as_document
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.scheme.openapi_definitions import data

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CHANGE = ("get", "patch", "update")
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
AGGREGATED_VERSIONS = ("v2", "v2beta1")

# The parts of pods that are served beside /status: who binds and who evicts them, and their logs.
POD_PARTS: Mapping[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
    "binding": (("", "v1", "Binding"), ("create",)),
    "eviction": (("policy", "v1", "Eviction"), ("create",)),
    "log": (("", "v1", "Pod"), ("get",)),
}


def documents(kinds: Iterable[Kind]) -> Finder:
    groups = by_group(kinds)
    plain = {path: as_document(content) for path, content in plain_documents(groups).items()}
    whole = {
        (path, version): as_document(content, AGGREGATED.format(version=version))
        for version in AGGREGATED_VERSIONS
        for path, content in aggregated_documents(groups, version).items()
    }

    def find(path: str, _query: str, accept: str) -> Document | None:
        wanted = accept.replace(" ", "")
        for version in AGGREGATED_VERSIONS:
            if (path, version) in whole and AGGREGATED.format(version=version) in wanted:
                return whole[path, version]
        return plain.get(path)

    return find


def by_group(kinds: Iterable[Kind]) -> dict[tuple[str, str], list[Kind]]:
    """The kinds by group and version, the core first."""
    ordered = sorted(kinds, key=lambda kind: (kind.group, kind.version, kind.plural))
    return {key: list(each) for key, each in groupby(ordered, lambda kind: (kind.group, kind.version))}


def plain_documents(groups: Mapping[tuple[str, str], list[Kind]]) -> dict[str, Manifest]:
    found: dict[str, Manifest] = {
        "/version": version(),
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(name, v) for name, v in groups if name]},
    }
    for (name, number), kinds in groups.items():
        if name:
            found[f"/apis/{name}"] = {"kind": "APIGroup", "apiVersion": "v1"} | group(name, number)
        found[kinds[0].prefix] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": kinds[0].api_version,
            "resources": [each for kind in kinds for each in resources(kind)],
        }
    return found


def version() -> Manifest:
    """Of the Kubernetes whose schemas these are, and that kubectl should take us for."""
    return data().version | {
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "paddle-operator/local",
    }


def group(name: str, number: str) -> Manifest:
    """Each group has one version here."""
    told = {"groupVersion": f"{name}/{number}", "version": number}
    return {"name": name, "versions": [told], "preferredVersion": told}


def resources(kind: Kind) -> Iterator[Manifest]:
    """A kind and its subresources, as an APIResourceList has them."""
    found: Manifest = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs(kind),
    }
    for key, names in (("shortNames", kind.short_names), ("categories", kind.categories)):
        if names:
            found[key] = list(names)
    yield found
    for name, of, can in parts(kind):
        told = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        elsewhere = {"group": of[0], "version": of[1]} if of[:2] != (kind.group, kind.version) else {}
        yield told | elsewhere | {"kind": of[2], "verbs": list(can)}


def verbs(kind: Kind) -> list[str]:
    alone = kind.kind == "Namespace" and not kind.group  # nobody deletes all namespaces at once
    return [verb for verb in VERBS if not (alone and verb == "deletecollection")]


def parts(kind: Kind) -> Iterator[tuple[str, tuple[str, str, str], tuple[str, ...]]]:
    """The subresources of a kind: name, the kind of what they hold, verbs."""
    if kind.kind == "Pod" and not kind.group:
        for name, (of, can) in POD_PARTS.items():
            yield name, of, can
    if kind.scale:
        yield "scale", ("autoscaling", "v1", "Scale"), CHANGE
    if kind.has_status:
        yield "status", (kind.group, kind.version, kind.kind), CHANGE


def aggregated_documents(groups: Mapping[tuple[str, str], list[Kind]], version: str) -> dict[str, Manifest]:
    """Everything below /api, and everything below /apis."""
    listed: dict[str, list[Manifest]] = {"/api": [], "/apis": []}
    for (name, number), kinds in groups.items():
        served = {"version": number, "resources": [aggregated(kind) for kind in kinds], "freshness": "Current"}
        metadata = {"name": name} if name else {}
        listed["/apis" if name else "/api"].append({"metadata": metadata, "versions": [served]})
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}}
    return {path: head | {"items": items} for path, items in listed.items()}


def aggregated(kind: Kind) -> Manifest:
    found: Manifest = {
        "resource": kind.plural,
        "responseKind": named(kind.group, kind.version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    }
    for key, names in (("shortNames", kind.short_names), ("categories", kind.categories)):
        if names:
            found[key] = list(names)
    if below := [{"subresource": n, "responseKind": named(*of), "verbs": list(can)} for n, of, can in parts(kind)]:
        found["subresources"] = below
    return found


def named(group: str, version: str, kind: str) -> Manifest:
    return {"group": group, "version": version, "kind": kind}
