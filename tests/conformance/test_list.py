"""Get and list: selectors, pages and versions."""

import pytest

from tests.conformance.objects import make_config_map, make_job, make_pod
from tests.conformance.servers import Server


@pytest.fixture
async def labelled_server(server: Server) -> Server:
    """Five Secrets, s0 to s4, each with its number as a label."""
    for number in range(5):
        await server.create("core/secrets", {"metadata": {"name": f"s{number}", "labels": {"n": str(number)}}})
    await server.create("core/secrets", {"metadata": {"name": "plain"}})
    return server


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("n=1", ["s1"]),
        ("n==1", ["s1"]),
        ("n!=1", ["plain", "s0", "s2", "s3", "s4"]),
        ("n", ["s0", "s1", "s2", "s3", "s4"]),
        ("!n", ["plain"]),
        ("n in (1,2)", ["s1", "s2"]),
        ("n notin (1, 2)", ["plain", "s0", "s3", "s4"]),
        ("n>2", ["s3", "s4"]),
        ("n<2", ["s0", "s1"]),
        ("n in ()", []),
        ("n=", []),
        ("n,n!=0", ["s1", "s2", "s3", "s4"]),
        (" n = 1 ", ["s1"]),
        ("", ["plain", "s0", "s1", "s2", "s3", "s4"]),
    ],
)
async def test_label_selector(labelled_server: Server, selector: str, names: list[str]) -> None:
    assert (await labelled_server.list_("core/secrets", labelSelector=selector)).names == names


@pytest.mark.parametrize(
    "selector", ["a=b=c", "=", "n in 1", "!n=1", "n,", "x y", "n=a b", "-bad", "n=bad_", "a/b/c", "n>x", "n=%zz", "(n)"]
)
async def test_invalid_label_selector_gets_400(server: Server, selector: str) -> None:
    reply = await server.list_("core/secrets", labelSelector=selector)
    assert (reply.code, reply.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=s1", ["s1"]),
        ("metadata.name!=s1", ["plain", "s0", "s2", "s3", "s4"]),
        ("metadata.name==s1,type=Opaque", ["s1"]),
        ("type!=Opaque", []),
        ("metadata.name=", []),
        (r"metadata.name=s1\,", []),
    ],
)
async def test_field_selector(labelled_server: Server, selector: str, names: list[str]) -> None:
    assert (await labelled_server.list_("core/secrets", fieldSelector=selector)).names == names


@pytest.mark.parametrize("selector", ["bogus=1", "metadata.name", "type in (a)", r"metadata.name=s1\z", "data.a=b"])
async def test_invalid_field_selector_gets_400(server: Server, selector: str) -> None:
    reply = await server.list_("core/secrets", fieldSelector=selector)
    assert (reply.code, reply.reason) == (400, "BadRequest")


async def test_field_selectors_of_pods(server: Server) -> None:
    await server.create("core/pods", make_pod("bound", node="n1"))
    await server.create("core/pods", make_pod("free"))
    await server.patch("core/pods/bound/status", {"status": {"phase": "Running", "podIP": "10.1.2.3"}})

    async def names(selector: str) -> list[str]:
        return (await server.list_("core/pods", fieldSelector=selector)).names

    assert await names("spec.nodeName=n1") == ["bound"]
    assert await names("spec.nodeName=") == ["free"]
    assert await names("status.phase=Running") == ["bound"]
    assert await names("status.phase!=Running,spec.nodeName!=n1") == ["free"]
    assert await names("spec.schedulerName=nobody") == ["bound", "free"]
    assert await names("spec.restartPolicy=Always,spec.hostNetwork=false") == ["bound", "free"]
    assert await names("spec.serviceAccountName=default") == ["bound", "free"]
    assert await names("status.podIP=10.1.2.3") == ["bound"]
    assert (await server.list_("core/pods", fieldSelector="spec.containers=x")).code == 400


async def test_field_selectors_of_namespaces_and_nodes(server: Server) -> None:
    name = f"metadata.name={server.namespace}"
    active = await server.list_("/api/v1/namespaces", fieldSelector=f"{name},status.phase=Active")
    assert active.names == [server.namespace]
    assert (await server.list_("/api/v1/namespaces", fieldSelector=f"{name},status.phase=Terminating")).names == []
    node = f"node-{server.namespace}"
    await server.create("/api/v1/nodes", {"metadata": {"name": node}, "spec": {"unschedulable": True}})
    nodes = await server.list_("/api/v1/nodes", fieldSelector=f"metadata.name={node},spec.unschedulable=true")
    assert nodes.names == [node]
    assert (await server.request("DELETE", f"/api/v1/nodes/{node}")).code == 200


async def test_pages_of_a_list_have_one_version(labelled_server: Server) -> None:
    first = await labelled_server.list_("core/secrets", limit="2")
    assert first.names == ["plain", "s0"]
    assert first.body["metadata"]["remainingItemCount"] == 4
    await labelled_server.request("DELETE", "core/secrets/s1")
    await labelled_server.create("core/secrets", {"metadata": {"name": "s2b"}})
    await labelled_server.patch("core/secrets/s3", {"metadata": {"labels": {"n": "changed"}}})
    token = first.body["metadata"]["continue"]
    second = await labelled_server.list_("core/secrets", limit="3", **{"continue": token})
    assert second.names == ["s1", "s2", "s3"], "the state of the first page"
    assert second.body["items"][2]["metadata"]["labels"] == {"n": "3"}
    assert second.version == first.version
    last = await labelled_server.list_("core/secrets", **{"continue": second.body["metadata"]["continue"]})
    assert last.names == ["s4"]
    assert "continue" not in last.body["metadata"]


async def test_pages_of_a_selection_have_no_remaining_count(labelled_server: Server) -> None:
    page = await labelled_server.list_("core/secrets", limit="2", labelSelector="n")
    assert page.names == ["s0", "s1"]
    assert "remainingItemCount" not in page.body["metadata"]
    last = await labelled_server.list_(
        "core/secrets", labelSelector="n", **{"continue": page.body["metadata"]["continue"]}
    )
    assert last.names == ["s2", "s3", "s4"]


async def test_pages_over_all_namespaces_are_in_path_order(server: Server) -> None:
    other = f"{server.namespace}-b"
    await server.create("/api/v1/namespaces", {"metadata": {"name": other}})
    metadata = {"labels": {"of": server.namespace}}
    for namespace, name in ((server.namespace, "z"), (other, "a"), (server.namespace, "y")):
        await server.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": name, **metadata}})
    names, token = [], ""
    while True:
        continuation = {"continue": token} if token else {}
        page = await server.list_("/api/v1/secrets", limit="1", labelSelector=f"of={server.namespace}", **continuation)
        names += page.names
        token = page.body["metadata"].get("continue", "")
        if not token:
            break
    assert names == ["a", "y", "z"], "`x-b/…` comes before `x/…`"
    await server.request("DELETE", f"/api/v1/namespaces/{other}")


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"continue": "garbage"}, 400),
        ({"limit": "x"}, 400),
        ({"limit": "-1"}, 200),
        ({"resourceVersion": "x"}, 400),
        ({"resourceVersion": "0"}, 200),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Bogus", "resourceVersion": "1"}, 422),
        ({"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"}, 200),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"watch": "true", "sendInitialEvents": "true", "timeoutSeconds": "1"}, 422),
        ({"watch": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "1", "timeoutSeconds": "1"}, 422),
    ],
    ids=str,
)
async def test_list_parameters(server: Server, parameters: dict[str, str], code: int) -> None:
    assert (await server.list_("core/secrets", **parameters)).code == code


async def test_list_at_an_exact_earlier_version(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    version = (await server.list_("core/configmaps")).version
    await server.create("core/configmaps", make_config_map("b"))
    exact = await server.list_("core/configmaps", resourceVersion=str(version), resourceVersionMatch="Exact")
    assert [name for name in exact.names if name != "kube-root-ca.crt"] == ["a"]
    assert exact.version == version
    newer = await server.list_("core/configmaps", resourceVersion=str(version), resourceVersionMatch="NotOlderThan")
    assert [name for name in newer.names if name != "kube-root-ca.crt"] == ["a", "b"]


async def test_list_at_a_future_version_times_out(server: Server) -> None:
    reply = await server.list_("core/configmaps", resourceVersion="999999999")
    assert (reply.code, reply.reason) == (504, "Timeout")
    assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert reply.body["details"]["retryAfterSeconds"] == 1


async def test_only_items_of_custom_kinds_have_a_kind(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    await server.create("jobs", make_job("a"))
    maps, jobs = await server.read("core/configmaps"), await server.read("jobs")
    assert (maps["kind"], maps["apiVersion"]) == ("ConfigMapList", "v1")
    assert {"kind", "apiVersion"}.isdisjoint(maps["items"][0])
    assert (jobs["kind"], jobs["apiVersion"]) == ("PaddleJobList", "batch.paddlepaddle.org/v1")
    assert jobs["items"][0]["kind"] == "PaddleJob"


async def test_missing_object_gets_404(server: Server) -> None:
    for path in ("core/pods/nobody", "jobs/nobody", "core/configmaps/nobody", "core/pods/nobody/log"):
        reply = await server.request("GET", path)
        assert (reply.code, reply.reason) == (404, "NotFound")
        assert reply.message.endswith('"nobody" not found')
        assert reply.body["details"]["name"] == "nobody"


async def test_wrong_token_gets_401(server: Server) -> None:
    reply = await server.request("GET", "core/pods", Authorization="Bearer wrong")
    assert (reply.code, reply.reason, reply.message) == (401, "Unauthorized", "Unauthorized")


async def test_unsupported_accept_header_gets_406(server: Server) -> None:
    assert (await server.request("GET", "core/pods", Accept="text/html")).code == 406
    assert (await server.request("GET", "core/pods", Accept="application/xml,application/json")).code == 200
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    assert (await server.request("GET", "core/pods", Accept=table)).body["kind"] == "Table"
    assert (await server.request("HEAD", "core/pods")).code == 405
