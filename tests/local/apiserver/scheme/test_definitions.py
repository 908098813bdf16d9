"""What the server tells of itself: discovery and OpenAPI. What kubectl makes of it: served/test_kubectl_read.py."""

import json
import subprocess
import sys
from typing import Any

from paddle_operator.api.crd import crd
from paddle_operator.local.apiserver import discovery, openapi
from paddle_operator.local.apiserver.scheme import builtin, custom_resource
from paddle_operator.local.apiserver.scheme.kind import nothing_more

KINDS = (*builtin.KINDS, custom_resource.kind_of(crd(), nothing_more))
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
find_kinds, find_schemas = discovery.documents(KINDS), openapi.documents(KINDS)


def content(path: str, accept: str = "application/json", query: str = "") -> Any:
    found = find_kinds(path, query, accept) or find_schemas(path, query, accept)
    assert found, path
    return json.loads(found.body)


def test_who_asks_for_everything_at_once_gets_the_newest_form() -> None:
    found = find_kinds("/apis", "", AGGREGATED)
    assert found
    assert found.media_type == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert json.loads(found.body)["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert content("/apis")["kind"] == "APIGroupList"


def test_every_kind_is_in_every_form_of_discovery() -> None:
    everything = [*content("/api", AGGREGATED)["items"], *content("/apis", AGGREGATED)["items"]]
    at_once = {
        (group["metadata"].get("name", ""), resource["resource"])
        for group in everything
        for version in group["versions"]
        for resource in version["resources"]
    }
    one_by_one = {
        (kind.group, resource["name"])
        for kind in KINDS
        for resource in content(kind.prefix)["resources"]
        if "/" not in resource["name"]
    }
    assert at_once == one_by_one == {(kind.group, kind.plural) for kind in KINDS}


def test_what_is_not_there_is_nothing() -> None:
    assert find_kinds("/apis/apps/v1", "", "") is None
    assert find_schemas("/openapi/v3/apis/apps/v1", "", "") is None


def test_every_document_of_the_index_is_there_and_may_be_kept() -> None:
    for path, entry in content("/openapi/v3")["paths"].items():
        address, _, query = entry["serverRelativeURL"].partition("?")
        assert address == f"/openapi/v3/{path}"
        kept, asked = find_schemas(address, query, ""), find_schemas(address, "", "")
        assert kept
        assert asked
        assert "immutable" in kept.headers["Cache-Control"]
        assert "no-cache" in asked.headers["Cache-Control"]
        assert kept.headers["ETag"] == asked.headers["ETag"]


def test_every_reference_leads_somewhere() -> None:
    for path in content("/openapi/v3")["paths"]:
        document = content(f"/openapi/v3/{path}")
        schemas = document["components"]["schemas"]
        assert set(openapi.references(document)) <= schemas.keys()
        assert not any(key.startswith("x-definition") for each in schemas.values() for key in each)


def test_only_built_in_kinds_take_strategic_patches() -> None:
    for kind in KINDS:
        item = f"{kind.prefix}{'/namespaces/{namespace}' if kind.namespaced else ''}/{kind.plural}/{{name}}"
        patch = content(f"/openapi/v3{kind.prefix}")["paths"][item]["patch"]
        assert (openapi.STRATEGIC in patch["requestBody"]["content"]) is not kind.custom
        assert "fieldValidation" in [each["name"] for each in patch["parameters"]]


def test_the_texts_are_not_read_before_somebody_asks() -> None:
    """They are three quarters of the data, and the budget of a local cluster is small."""
    program = (
        "import gzip, sys\n"
        "read = []\n"
        "real = gzip.decompress\n"
        "gzip.decompress = lambda data: read.append(len(data)) or real(data)\n"
        "from paddle_operator.local.apiserver.scheme import builtin\n"
        "from paddle_operator.local.apiserver import discovery, openapi\n"
        "discovery.documents(builtin.KINDS); openapi.documents(builtin.KINDS)\n"
        "print(len(read))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
