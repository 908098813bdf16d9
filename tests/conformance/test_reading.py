"""One object, lists, selectors, pages and versions."""

import pytest

from tests.conformance.objects import a_config_map, a_job, a_pod
from tests.conformance.servers import Server


@pytest.fixture
async def labelled(server: Server) -> Server:
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
async def test_labels_select(labelled: Server, selector: str, names: list[str]) -> None:
    assert (await labelled.list_("core/secrets", labelSelector=selector)).names == names


@pytest.mark.parametrize(
    "selector", ["a=b=c", "=", "n in 1", "!n=1", "n,", "x y", "n=a b", "-bad", "n=bad_", "a/b/c", "n>x", "n=%zz", "(n)"]
)
async def test_a_label_selector_that_cannot_be_read_is_a_bad_request(server: Server, selector: str) -> None:
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
async def test_fields_select(labelled: Server, selector: str, names: list[str]) -> None:
    assert (await labelled.list_("core/secrets", fieldSelector=selector)).names == names


@pytest.mark.parametrize("selector", ["bogus=1", "metadata.name", "type in (a)", r"metadata.name=s1\z", "data.a=b"])
async def test_a_field_selector_that_cannot_be_read_is_a_bad_request(server: Server, selector: str) -> None:
    reply = await server.list_("core/secrets", fieldSelector=selector)
    assert (reply.code, reply.reason) == (400, "BadRequest")


async def test_pods_are_selected_by_node_phase_and_address(server: Server) -> None:
    await server.create("core/pods", a_pod("bound", node="n1"))
    await server.create("core/pods", a_pod("free"))
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


async def test_namespaces_and_nodes_are_selected_by_their_fields(server: Server) -> None:
    name = f"metadata.name={server.namespace}"
    active = await server.list_("/api/v1/namespaces", fieldSelector=f"{name},status.phase=Active")
    assert active.names == [server.namespace]
    assert (await server.list_("/api/v1/namespaces", fieldSelector=f"{name},status.phase=Terminating")).names == []
    node = f"node-{server.namespace}"
    await server.create("/api/v1/nodes", {"metadata": {"name": node}, "spec": {"unschedulable": True}})
    found = await server.list_("/api/v1/nodes", fieldSelector=f"metadata.name={node},spec.unschedulable=true")
    assert found.names == [node]
    assert (await server.ask("DELETE", f"/api/v1/nodes/{node}")).code == 200


async def test_a_list_comes_in_pages_of_one_version(labelled: Server) -> None:
    first = await labelled.list_("core/secrets", limit="2")
    assert first.names == ["plain", "s0"]
    assert first.body["metadata"]["remainingItemCount"] == 4
    await labelled.ask("DELETE", "core/secrets/s1")
    await labelled.create("core/secrets", {"metadata": {"name": "s2b"}})
    await labelled.patch("core/secrets/s3", {"metadata": {"labels": {"n": "changed"}}})
    token = first.body["metadata"]["continue"]
    second = await labelled.list_("core/secrets", limit="3", **{"continue": token})
    assert second.names == ["s1", "s2", "s3"], "as it was when the first page was read"
    assert second.body["items"][2]["metadata"]["labels"] == {"n": "3"}
    assert second.version == first.version
    last = await labelled.list_("core/secrets", **{"continue": second.body["metadata"]["continue"]})
    assert last.names == ["s4"]
    assert "continue" not in last.body["metadata"]


async def test_pages_of_a_selection_do_not_count_what_remains(labelled: Server) -> None:
    page = await labelled.list_("core/secrets", limit="2", labelSelector="n")
    assert page.names == ["s0", "s1"]
    assert "remainingItemCount" not in page.body["metadata"]
    rest = await labelled.list_("core/secrets", labelSelector="n", **{"continue": page.body["metadata"]["continue"]})
    assert rest.names == ["s2", "s3", "s4"]


async def test_a_list_over_all_namespaces_goes_on_in_the_order_of_paths(server: Server) -> None:
    other = f"{server.namespace}-b"
    await server.create("/api/v1/namespaces", {"metadata": {"name": other}})
    mark = {"labels": {"of": server.namespace}}
    for namespace, name in ((server.namespace, "z"), (other, "a"), (server.namespace, "y")):
        await server.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": name, **mark}})
    names, token = [], ""
    while True:
        more = {"continue": token} if token else {}
        page = await server.list_("/api/v1/secrets", limit="1", labelSelector=f"of={server.namespace}", **more)
        names += page.names
        token = page.body["metadata"].get("continue", "")
        if not token:
            break
    assert names == ["a", "y", "z"], "`x-b/…` comes before `x/…`"
    await server.ask("DELETE", f"/api/v1/namespaces/{other}")


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
async def test_what_can_be_asked_of_a_list(server: Server, parameters: dict[str, str], code: int) -> None:
    assert (await server.list_("core/secrets", **parameters)).code == code


async def test_an_earlier_version_can_be_listed_exactly(server: Server) -> None:
    await server.create("core/configmaps", a_config_map("a"))
    then = (await server.list_("core/configmaps")).version
    await server.create("core/configmaps", a_config_map("b"))
    exact = await server.list_("core/configmaps", resourceVersion=str(then), resourceVersionMatch="Exact")
    assert [name for name in exact.names if name != "kube-root-ca.crt"] == ["a"]
    assert exact.version == then
    newer = await server.list_("core/configmaps", resourceVersion=str(then), resourceVersionMatch="NotOlderThan")
    assert [name for name in newer.names if name != "kube-root-ca.crt"] == ["a", "b"]


async def test_a_version_of_the_future_is_waited_for_in_vain(server: Server) -> None:
    reply = await server.list_("core/configmaps", resourceVersion="999999999")
    assert (reply.code, reply.reason) == (504, "Timeout")
    assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert reply.body["details"]["retryAfterSeconds"] == 1


async def test_items_of_built_in_kinds_do_not_repeat_their_kind_and_custom_ones_do(server: Server) -> None:
    await server.create("core/configmaps", a_config_map("a"))
    await server.create("jobs", a_job("a"))
    maps, jobs = await server.read("core/configmaps"), await server.read("jobs")
    assert (maps["kind"], maps["apiVersion"]) == ("ConfigMapList", "v1")
    assert {"kind", "apiVersion"}.isdisjoint(maps["items"][0])
    assert (jobs["kind"], jobs["apiVersion"]) == ("PaddleJobList", "batch.paddlepaddle.org/v1")
    assert jobs["items"][0]["kind"] == "PaddleJob"


async def test_what_is_not_there_is_not_found(server: Server) -> None:
    for path in ("core/pods/nobody", "jobs/nobody", "core/configmaps/nobody", "core/pods/nobody/log"):
        reply = await server.ask("GET", path)
        assert (reply.code, reply.reason) == (404, "NotFound")
        assert reply.message.endswith('"nobody" not found')
        assert reply.body["details"]["name"] == "nobody"


async def test_a_wrong_token_is_unauthorized(server: Server) -> None:
    reply = await server.ask("GET", "core/pods", Authorization="Bearer wrong")
    assert (reply.code, reply.reason, reply.message) == (401, "Unauthorized", "Unauthorized")


async def test_only_what_can_be_given_is_accepted(server: Server) -> None:
    assert (await server.ask("GET", "core/pods", Accept="text/html")).code == 406
    assert (await server.ask("GET", "core/pods", Accept="application/xml,application/json")).code == 200
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    assert (await server.ask("GET", "core/pods", Accept=table)).body["kind"] == "Table"
    assert (await server.ask("HEAD", "core/pods")).code == 405
