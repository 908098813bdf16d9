"""Discovery and OpenAPI documents. served/test_kubectl_read.py reads them with kubectl."""

import json
import subprocess
import sys
from typing import Any

from paddle_operator.api.crd import crd
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.local.apiserver import discovery, openapi
from paddle_operator.local.apiserver.patch.json_patch import STRATEGIC_MERGE_PATCH
from paddle_operator.local.apiserver.scheme import builtin, custom_resource
from paddle_operator.local.apiserver.scheme.kind import accept_all

KINDS = (*builtin.BUILTIN_KINDS, custom_resource.kind_from_crd(crd(PADDLE_JOB), accept_all))
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
find_discovery, find_openapi = discovery.discovery_documents(KINDS), openapi.openapi_documents(KINDS)


def content(path: str, accept: str = "application/json", query: str = "") -> Any:
    document = find_discovery(path, query, accept) or find_openapi(path, query, accept)
    assert document, path
    return json.loads(document.body)


def test_aggregated_discovery_is_served_in_newest_version() -> None:
    document = find_discovery("/apis", "", AGGREGATED)
    assert document
    assert document.media_type == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert json.loads(document.body)["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert content("/apis")["kind"] == "APIGroupList"


def test_every_kind_is_in_both_forms_of_discovery() -> None:
    groups = [*content("/api", AGGREGATED)["items"], *content("/apis", AGGREGATED)["items"]]
    aggregated = {
        (group["metadata"].get("name", ""), resource["resource"])
        for group in groups
        for version in group["versions"]
        for resource in version["resources"]
    }
    plain = {
        (kind.group, resource["name"])
        for kind in KINDS
        for resource in content(kind.prefix)["resources"]
        if "/" not in resource["name"]
    }
    assert aggregated == plain == {(kind.group, kind.plural) for kind in KINDS}


def test_unknown_path_has_no_document() -> None:
    assert find_discovery("/apis/apps/v1", "", "") is None
    assert find_openapi("/openapi/v3/apis/apps/v1", "", "") is None


def test_every_indexed_document_is_served_and_cacheable() -> None:
    for path, entry in content("/openapi/v3")["paths"].items():
        address, _, query = entry["serverRelativeURL"].partition("?")
        assert address == f"/openapi/v3/{path}"
        hashed, unhashed = find_openapi(address, query, ""), find_openapi(address, "", "")
        assert hashed
        assert unhashed
        assert "immutable" in hashed.headers["Cache-Control"]
        assert "no-cache" in unhashed.headers["Cache-Control"]
        assert hashed.headers["ETag"] == unhashed.headers["ETag"]


def test_every_reference_resolves() -> None:
    for path in content("/openapi/v3")["paths"]:
        document = content(f"/openapi/v3/{path}")
        schemas = document["components"]["schemas"]
        assert set(openapi.references(document)) <= schemas.keys()
        assert not any(key.startswith("x-definition") for each in schemas.values() for key in each)


def test_only_built_in_kinds_accept_strategic_merge_patches() -> None:
    for kind in KINDS:
        item = f"{kind.prefix}{'/namespaces/{namespace}' if kind.namespaced else ''}/{kind.plural}/{{name}}"
        patch = content(f"/openapi/v3{kind.prefix}")["paths"][item]["patch"]
        assert (STRATEGIC_MERGE_PATCH in patch["requestBody"]["content"]) is not kind.custom
        assert "fieldValidation" in [each["name"] for each in patch["parameters"]]


def test_descriptions_are_read_on_first_use() -> None:
    """They are 3/4 of the data, and most local clusters never serve them."""
    program = (
        "import gzip, sys\n"
        "files = []\n"
        "real = gzip.decompress\n"
        "gzip.decompress = lambda data: files.append(len(data)) or real(data)\n"
        "from paddle_operator.local.apiserver.scheme import builtin\n"
        "from paddle_operator.local.apiserver import discovery, openapi\n"
        "discovery.discovery_documents(builtin.BUILTIN_KINDS); openapi.openapi_documents(builtin.BUILTIN_KINDS)\n"
        "print(len(files))\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "1"
