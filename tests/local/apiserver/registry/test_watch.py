"""Watches: bookmarks, timeouts, slow and disconnected clients, expired versions."""

import asyncio

import aiohttp
import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Object
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.registry import watch
from paddle_operator.local.apiserver.storage.watch_cache import History
from testbed.clock import AcceleratedClock, FakeClock
from tests.local.apiserver.helpers import HEADERS, SECRETS, make_config_map, read_event, send_request, wait_until

MAPS = "/api/v1/namespaces/default/configmaps"


def compact(server: ApiServer) -> None:
    """Drop all history: every version read before the next write gets 410."""
    for table in server.api.store.tables.values():
        table.history.discard_until(server.api.store.version)


async def test_bookmark_has_the_newest_version_of_all_kinds(
    server: ApiServer, client: Client, clock: FakeClock
) -> None:
    config_map = await client.create(CONFIG_MAPS, make_config_map("a"))
    async with send_request(
        server, f"{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={config_map.version}"
    ) as reply:
        await wait_until(lambda: clock.pending >= 3)
        other = await client.create(SECRETS, {"metadata": {"name": "b", "namespace": "default"}})
        for _ in range(3):
            await clock.advance(watch.BOOKMARK_SECONDS)
            line = await read_event(reply)
            assert line["type"] == "BOOKMARK"
            assert line["object"]["kind"] == "ConfigMap"
            assert line["object"]["metadata"] == {"resourceVersion": str(other.version)}


async def test_bookmarks_are_only_sent_on_request(server: ApiServer, client: Client, clock: FakeClock) -> None:
    config_map = await client.create(CONFIG_MAPS, make_config_map("a"))
    async with send_request(server, f"{MAPS}?watch=true&resourceVersion={config_map.version}") as reply:
        await wait_until(lambda: clock.pending >= 2)
        await clock.advance(10 * watch.BOOKMARK_SECONDS)
        await client.create(CONFIG_MAPS, make_config_map("b"))
        assert (await read_event(reply))["type"] == "ADDED"


async def test_watch_times_out_within_an_hour(server: ApiServer, client: Client, clock: FakeClock) -> None:
    async with send_request(server, f"{MAPS}?watch=true") as reply:
        await wait_until(lambda: clock.pending >= 2)
        await clock.advance(3600)
        assert await asyncio.wait_for(reply.content.read(), 60) == b""


async def test_disconnected_watch_is_removed_at_once(server: ApiServer) -> None:
    resource = server.api.resources.find("", "v1", "configmaps")
    assert resource
    async with send_request(server, f"{MAPS}?watch=true"):
        await wait_until(lambda: len(resource.table.listeners) == 1)
    await wait_until(lambda: len(resource.table.listeners) == 0)


async def test_disconnect_during_a_write_is_not_logged(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def raise_connection_reset(_: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(server, "_dispatch", raise_connection_reset)
    async with send_request(server, f"{MAPS}?watch=true"):
        pass
    assert caplog.messages == []


async def test_slow_watch_is_closed(server: ApiServer, client: Client) -> None:
    resource = server.api.resources.find("", "v1", "configmaps")
    assert resource
    resource.table.history = History(server.api.store.version, max_changes=50)
    connector = aiohttp.TCPConnector()
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1024) as http:
        url = f"{server.url}{MAPS}?watch=true&resourceVersion={server.api.store.version}"
        async with http.get(url, headers=HEADERS) as slow:
            await client.create(CONFIG_MAPS, make_config_map("a"))
            for number in range(120):
                change = {"data": {"a": f"{number}" + "x" * 100_000}}
                await client.merge(CONFIG_MAPS, Key("default", "a"), change)
            lines = (await asyncio.wait_for(slow.content.read(), 100)).splitlines()
            assert 1 <= len(lines) < 121, "it was closed before the last change"
    async with send_request(server, f"{MAPS}?watch=true&resourceVersion=1") as reply:
        assert (reply.status, (await reply.json())["reason"]) == (410, "Expired")


async def test_watch_from_a_future_version_skips_older_changes(server: ApiServer, client: Client) -> None:
    since = server.api.store.version + 2
    async with send_request(server, f"{MAPS}?watch=true&resourceVersion={since}") as reply:
        for name in "abc":
            await client.create(CONFIG_MAPS, make_config_map(name))
        assert (await read_event(reply))["object"]["metadata"]["name"] == "c"


async def test_expired_version_gets_410(server: ApiServer, client: Client) -> None:
    for name in "abc":
        newest = await client.create(CONFIG_MAPS, make_config_map(name))
    async with send_request(server, f"{MAPS}?limit=2") as reply:
        token = (await reply.json())["metadata"]["continue"]
    await client.merge(CONFIG_MAPS, Key("default", "a"), {"data": {"x": "y"}})
    compact(server)
    for query in (
        f"watch=true&resourceVersion={newest.version}",
        f"limit=2&continue={token}",
        f"resourceVersion={newest.version}&resourceVersionMatch=Exact",
    ):
        async with send_request(server, f"{MAPS}?{query}") as reply:
            assert (reply.status, (await reply.json())["reason"]) == (410, "Expired"), query


async def test_informer_lists_again_after_410(server: ApiServer, client: Client) -> None:
    informer: Informer[Object, Object] = Informer(client, CONFIG_MAPS, Scope("default"), clock=AcceleratedClock(50))
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), 60)
        await client.create(CONFIG_MAPS, make_config_map("a"))
        await wait_until(lambda: len(informer.store) == 1)
        for watch in tuple(server._watches):  # history is dropped before it reconnects
            watch.end()
        await client.delete(CONFIG_MAPS, Key("default", "a"))
        await client.create(CONFIG_MAPS, make_config_map("b"))
        compact(server)
        await wait_until(lambda: [each.key.name for each in informer.store] == ["b"])
    finally:
        task.cancel()
        await asyncio.wait((task,))
