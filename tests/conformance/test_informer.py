"""Our Informer and Client on both servers: list, watch, resume after a disconnect, list again after 410."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, LEASES, PODS, Key, Object
from testbed.clock import AcceleratedClock
from testbed.faults import FaultProxy
from tests.conformance.objects import make_config_map, make_pod
from tests.conformance.servers import Server

WITHOUT_ROOT_CA = "metadata.name!=kube-root-ca.crt"


def config_map_in_namespace(server: Server, name: str) -> dict[str, object]:
    return make_config_map(name, namespace=server.namespace)


@asynccontextmanager
async def run_informer(client: Client, server: Server) -> AsyncIterator[Informer[Object, Object]]:
    scope = Scope(server.namespace, fields=WITHOUT_ROOT_CA)
    informer: Informer[Object, Object] = Informer(client, CONFIG_MAPS, scope, page_size=2, clock=AcceleratedClock(20))
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), 100)
        yield informer
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def wait_until_equal(informer: Informer[Object, Object], server: Server) -> None:
    """Wait until the cache equals the server's list."""
    listed = await server.client.list_all(CONFIG_MAPS, Scope(server.namespace, fields=WITHOUT_ROOT_CA))
    versions = {each.key: each.version for each in listed}
    async with asyncio.timeout(100):
        while {each.key: each.version for each in informer.store} != versions:
            await asyncio.sleep(0.01)


async def test_informer_follows_changes(server: Server) -> None:
    for number in range(5):
        await server.client.create(CONFIG_MAPS, config_map_in_namespace(server, f"old{number}"))
    async with run_informer(server.client, server) as informer:
        assert len(informer.store) == 5
        await server.client.create(CONFIG_MAPS, config_map_in_namespace(server, "new"))
        await server.client.delete(CONFIG_MAPS, Key(server.namespace, "old0"))
        await server.client.merge(CONFIG_MAPS, Key(server.namespace, "new"), {"data": {"x": "y"}})
        await wait_until_equal(informer, server)


async def test_informer_recovers_from_disconnects_and_410(server: Server) -> None:
    connection = server.client.config
    assert isinstance(connection, StaticServerConfig)
    token = server.headers["Authorization"].removeprefix("Bearer ")
    async with (
        FaultProxy(connection) as proxy,
        Client(proxy.connection(token)) as proxied,
        run_informer(proxied, server) as informer,
    ):
        proxy.when(verb="watch").reset_watch(times=1)
        await server.client.create(CONFIG_MAPS, config_map_in_namespace(server, "a"))
        await server.client.create(CONFIG_MAPS, config_map_in_namespace(server, "b"))
        await wait_until_equal(informer, server)
        proxy.when(verb="watch").expire_watch(after_events=0, times=1)
        await server.client.delete(CONFIG_MAPS, Key(server.namespace, "a"))
        await server.client.create(CONFIG_MAPS, config_map_in_namespace(server, "c"))
        await wait_until_equal(informer, server)


async def test_errors_have_their_types(server: Server) -> None:
    client, key = server.client, Key(server.namespace, "a")
    created = await client.create(CONFIG_MAPS, config_map_in_namespace(server, "a"))
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map_in_namespace(server, "a"))
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, Key(server.namespace, "nobody"))
    with pytest.raises(Conflict):
        await client.merge(CONFIG_MAPS, key, {"metadata": {"resourceVersion": "1"}})
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, key, uid="another")
    with pytest.raises(Invalid):
        await client.create(CONFIG_MAPS, config_map_in_namespace(server, "Bad_Name"))
    await client.delete(CONFIG_MAPS, key, uid=created.uid, resource_version=created.metadata.resource_version)


async def test_client_writes_of_a_pod(server: Server) -> None:
    client, key = server.client, Key(server.namespace, "a")
    created = await client.create(PODS, make_pod("a", node="n1", namespace=server.namespace))
    assert created.status.phase == "Pending"
    running = await client.merge_status(PODS, key, {"phase": "Running", "podIP": "10.0.0.1"})
    assert (running.status.phase, running.spec.node_name) == ("Running", "n1")
    terminating = await client.delete(PODS, key, uid=created.uid)
    assert terminating is not None
    assert terminating.metadata.deletion_timestamp
    await client.evict(key, grace_seconds=1)
    await client.delete(PODS, key, grace_seconds=0)
    assert await client.list_all(PODS, Scope(server.namespace)) == []


async def test_lease_update_of_a_stale_version_gets_409(server: Server) -> None:
    client = server.client
    lease = {"metadata": {"namespace": server.namespace, "name": "a"}, "spec": {"holderIdentity": "one"}}
    created = await client.create(LEASES, lease)
    lease["metadata"]["resourceVersion"] = created.metadata.resource_version
    lease["spec"]["holderIdentity"] = "two"
    assert (await client.replace(LEASES, lease)).spec.holder_identity == "two"
    with pytest.raises(Conflict):
        await client.replace(LEASES, lease)


async def test_client_pages_have_one_version(server: Server) -> None:
    for number in range(4):
        await server.client.create(CONFIG_MAPS, config_map_in_namespace(server, f"m{number}"))
    pages = server.client.list_pages(CONFIG_MAPS, Scope(server.namespace, fields=WITHOUT_ROOT_CA), size=2)
    first = await anext(pages)
    await server.client.delete(CONFIG_MAPS, Key(server.namespace, "m3"))
    second = await anext(pages)
    assert (second.version, [item.key.name for item in second.items]) == (first.version, ["m2", "m3"])
