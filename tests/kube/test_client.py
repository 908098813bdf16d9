"""The client against a real API server, and against one that misbehaves."""

import asyncio
from contextlib import aclosing

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Fenced,
    Forbidden,
    Invalid,
    NotFound,
    ServerFault,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    Untrusted,
)
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, Added, Deleted, Error, Key, Modified
from testbed.clock import FakeClock
from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.kube.fake_kubelet import FakeKubelet
from tests.kube.objects import POD_TEMPLATES, make_config_map, make_pod, make_pod_template


async def test_an_object_is_created_read_changed_and_deleted(client: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    created = await client.create(CONFIG_MAPS, make_config_map(key, colour="red"))
    assert created == await client.get(CONFIG_MAPS, key)
    merged = await client.merge(CONFIG_MAPS, key, {"metadata": {"labels": {"x": "1"}}})
    assert merged.metadata.labels == {"x": "1"}
    assert await client.delete(CONFIG_MAPS, key, uid=created.uid) is None
    with pytest.raises(NotFound, match=f'get configmaps {namespace}/a: configmaps "a" not found'):
        await client.get(CONFIG_MAPS, key)


def _labelled(key: Key, **labels: str) -> dict[str, object]:
    metadata = {"namespace": key.namespace, "name": key.name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def test_refusals_are_told_apart_by_reason(client: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    await client.create(CONFIG_MAPS, make_config_map(key))
    with pytest.raises(AlreadyExists, match=f"create configmaps {namespace}/a"):
        await client.create(CONFIG_MAPS, make_config_map(key))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, key, uid="another")
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "Not_A_Name")))
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"a": "b"}}
    with pytest.raises(Conflict, match=f"patch configmaps {namespace}/a"):
        await client.merge(CONFIG_MAPS, key, stale)
    assert (await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "b")), dry_run=True)).key.name == "b"
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, Key(namespace, "b"))


async def test_replace_is_compare_and_swap(client: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    created = await client.create(CONFIG_MAPS, make_config_map(key))
    manifest = make_config_map(key, colour="blue")
    manifest["metadata"]["resourceVersion"] = created.metadata.resource_version
    await client.replace(CONFIG_MAPS, manifest)
    with pytest.raises(Conflict, match=f"update configmaps {namespace}/a"):
        await client.replace(CONFIG_MAPS, manifest)


async def test_a_list_comes_in_pages_of_one_version(client: Client, namespace: str) -> None:
    for number in range(5):
        await client.create(CONFIG_MAPS, _labelled(Key(namespace, f"a{number}"), parity=str(number % 2)))
    scope = Scope(namespace, labels="parity=0")
    pages = [page async for page in client.list_pages(CONFIG_MAPS, scope, size=2)]
    assert [[item.key.name for item in page.items] for page in pages] == [["a0", "a2"], ["a4"]]
    assert len({page.version for page in pages}) == 1
    by_field = await client.list_all(CONFIG_MAPS, Scope(namespace, fields="metadata.name=a3"))
    assert [item.key.name for item in by_field] == ["a3"]


async def test_a_list_whose_pages_were_compacted_away_says_so(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    for number in range(3):
        await client.create(POD_TEMPLATES, make_pod_template(Key(namespace, f"a{number}")))
    async with aclosing(client.list_pages(POD_TEMPLATES, Scope(namespace), size=2)) as pages:
        await anext(pages)
        await client.create(POD_TEMPLATES, make_pod_template(Key(namespace, "later")))
        await control_plane.compact()
        with pytest.raises(Expired, match="list podtemplates"):
            await anext(pages)


async def test_a_watch_tells_every_change_in_order(client: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    created = await client.create(CONFIG_MAPS, make_config_map(key))
    since = created.metadata.resource_version
    await client.merge(CONFIG_MAPS, key, {"data": {"colour": "red"}})
    await client.delete(CONFIG_MAPS, key)
    await client.create(CONFIG_MAPS, make_config_map(key))
    changes: list[object] = []
    async with aclosing(client.watch(CONFIG_MAPS, Scope(namespace, fields="metadata.name=a"), since=since)) as batches:
        async for batch in batches:
            changes += batch
            if len(changes) >= 3:
                break
    assert [type(change) for change in changes] == [Modified, Deleted, Added]


async def test_watch_from_a_compacted_version_is_a_410(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    since = (await client.create(POD_TEMPLATES, make_pod_template(Key(namespace, "a")))).metadata.resource_version
    for name in "bc":
        await client.create(POD_TEMPLATES, make_pod_template(Key(namespace, name)))
    await control_plane.compact()
    async with aclosing(client.watch(POD_TEMPLATES, Scope(namespace), since=since)) as batches:
        changes = [change async for batch in batches for change in batch]
    assert [change.object.code for change in changes if isinstance(change, Error)] == [410]


async def test_deleting_a_pod_with_grace_tells_what_is_left(client: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    manifest = make_pod(key, node="nowhere")
    manifest["spec"]["terminationGracePeriodSeconds"] = 30
    created = await client.create(PODS, manifest)
    left = await client.delete(PODS, key, uid=created.uid, propagation="Background")
    assert left
    assert left.metadata.deletion_timestamp
    assert left.version > created.version
    await client.delete(PODS, key, grace_seconds=0)
    with pytest.raises(NotFound):
        await client.get(PODS, key)


async def test_an_eviction_ends_a_pod(client: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    await client.create(PODS, make_pod(key))
    await client.evict(key)
    with pytest.raises(NotFound):
        await client.get(PODS, key)
    with pytest.raises(NotFound):
        await client.evict(key)


async def test_the_log_of_a_pod_is_followed_line_by_line(client: Client, namespace: str, kubelet: FakeKubelet) -> None:
    key = Key(namespace, "a")
    await client.create(PODS, make_pod(key, node=kubelet.node))
    async with aclosing(client.read_log(key, container="paddle", follow=True, tail=2)) as lines:
        kubelet.write_log(b"epoch 1, lo")
        kubelet.write_log(b"ss 0.5\nepoch 2, loss 0.4\n")
        assert [await anext(lines), await anext(lines)] == [b"epoch 1, loss 0.5", b"epoch 2, loss 0.4"]
        kubelet.write_log(b"no end of line")
        kubelet.end_log()
        assert [line async for line in lines] == [b"no end of line"]
    assert kubelet.last_query == {"follow": "true", "tailLines": "2"}


async def test_unavailable_log_is_refused_by_the_server(client: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    with pytest.raises(NotFound, match=f"get the log of {namespace}/a"):
        await anext(client.read_log(key))
    await client.create(PODS, make_pod(key))
    with pytest.raises(Invalid, match=f"get the log of {namespace}/a: container nosuch is not valid for pod a"):
        await anext(client.read_log(key, container="nosuch"))


async def test_a_busy_server_is_obeyed_and_any_call_may_be_sent_again(
    proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    rule = proxy.when(verb="create").respond_with(429, retry_after=1, times=2)
    began_at = asyncio.get_running_loop().time()
    await proxied.create(CONFIG_MAPS, make_config_map(Key(namespace, "a")))
    assert rule.fire_count == 2
    assert asyncio.get_running_loop().time() - began_at >= 2


async def test_a_server_that_is_busy_for_long_is_told_to_the_caller(
    proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    proxy.when(verb="create").respond_with(429, retry_after=120)
    with pytest.raises(TooManyRequests) as refused:
        await proxied.create(CONFIG_MAPS, make_config_map(Key(namespace, "a")))
    assert refused.value.retry_after == 120
    assert len(proxy.find_requests(verb="create")) == 1


async def test_reads_are_retried_and_creates_are_not(proxy: FaultProxy, proxied: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    proxy.when(verb="create").reset_after_server(times=1)
    with pytest.raises(Unreachable, match=f"create configmaps {namespace}/a: lost the connection"):
        await proxied.create(CONFIG_MAPS, make_config_map(key))
    assert len(proxy.find_requests(verb="create")) == 1
    proxy.when(verb="get").respond_with(500, times=1)
    proxy.when(verb="get").reset_before_server(times=1)
    assert (await proxied.get(CONFIG_MAPS, key)).key == key
    proxy.when(verb="create").respond_with(500)
    with pytest.raises(ServerFault, match="500"):
        await proxied.create(CONFIG_MAPS, make_config_map(Key(namespace, "b")))


async def test_a_merge_whose_answer_was_lost_is_sent_again(proxy: FaultProxy, proxied: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    await proxied.create(CONFIG_MAPS, make_config_map(key))
    proxy.when(verb="patch").reset_after_server(times=1)
    assert (await proxied.merge(CONFIG_MAPS, key, {"metadata": {"labels": {"x": "1"}}})).metadata.labels == {"x": "1"}


async def test_retries_are_bounded(proxy: FaultProxy, proxied: Client, namespace: str) -> None:
    rule = proxy.when(verb="get").respond_with(503)
    with pytest.raises(ServerFault):
        await proxied.get(CONFIG_MAPS, Key(namespace, "a"))
    assert rule.fire_count == 4


async def test_no_more_requests_are_in_flight_than_allowed(
    control_plane: ControlPlane, proxy: FaultProxy, namespace: str
) -> None:
    go = asyncio.Event()
    rule = proxy.when(verb="get").hold(go)
    async with Client(proxy.connection(control_plane.credentials.token_of("tester-1")), max_in_flight=3) as client:
        calls = [asyncio.ensure_future(client.get(CONFIG_MAPS, Key(namespace, f"a{n}"))) for n in range(9)]
        await rule.wait_fired(3)
        await asyncio.sleep(0.05)
        assert rule.fire_count == 3
        go.set()
        assert all(isinstance(end, NotFound) for end in await asyncio.gather(*calls, return_exceptions=True))


async def test_a_write_behind_a_closed_fence_is_not_sent(
    control_plane: ControlPlane, proxy: FaultProxy, namespace: str
) -> None:
    def closed() -> None:
        raise Fenced("not the leader")

    connection = proxy.connection(control_plane.credentials.token_of("tester-1"))
    async with Client(connection, fence=closed, clock=FakeClock()) as client:
        with pytest.raises(Fenced):
            await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "a")))
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, Key(namespace, "a"))
    assert [seen.verb for seen in proxy.requests] == ["get"]


async def test_strangers_and_those_without_rights_are_told_what_to_do(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with Client(StaticServerConfig(control_plane.server, "no such token", control_plane.trust)) as stranger:
        with pytest.raises(Unauthorized, match="renew the token"):
            await stranger.get(CONFIG_MAPS, Key(namespace, "a"))
    async with Client(control_plane.connection("nobody-0")) as nobody:
        with pytest.raises(Forbidden, match=r'User "nobody-0" cannot get resource "configmaps".*ask for a Role'):
            await nobody.get(CONFIG_MAPS, Key(namespace, "a"))


async def test_unreachable_or_untrusted_server_is_named(control_plane: ControlPlane) -> None:
    clock = FakeClock()
    async with Client(StaticServerConfig("https://127.0.0.1:1"), clock=clock) as nowhere:
        call = asyncio.ensure_future(nowhere.get(CONFIG_MAPS, Key("default", "a")))
        while not call.done():
            await clock.advance(1)
        with pytest.raises(
            Unreachable, match=r"cannot reach https://127\.0\.0\.1:1: Connection refused; check the address"
        ):
            await call
    async with Client(StaticServerConfig(control_plane.server)) as trusting_nobody:
        with pytest.raises(Untrusted, match="check the certificate authority"):
            await trusting_nobody.get(CONFIG_MAPS, Key("default", "a"))
