"""Watches of the embedded server: bookmarks by its clock, watchers that are slow or leave, versions too old."""

import asyncio

import aiohttp
import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.informer import Informer, ListBy
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Object
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.registry import watch
from paddle_operator.local.apiserver.storage.watch_cache import History
from testbed.clock import FakeClock, HurriedClock
from tests.local.apiserver.running import HEADERS, SECRETS, a_config_map, asked, next_line, until

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_bookmark_comes_at_every_pause_and_has_the_newest_version_of_all(
    server: ApiServer, client: Client, clock: FakeClock
) -> None:
    made = await client.create(CONFIG_MAPS, a_config_map("a"))
    async with asked(server, f"{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={made.version}") as reply:
        await until(lambda: clock.pending >= 3)
        other = await client.create(SECRETS, {"metadata": {"name": "b", "namespace": "default"}})
        for _ in range(3):
            await clock.advance(watch.BOOKMARK_SECONDS)
            line = await next_line(reply)
            assert line["type"] == "BOOKMARK"
            assert line["object"]["kind"] == "ConfigMap"
            assert line["object"]["metadata"] == {"resourceVersion": str(other.version)}


async def test_who_does_not_want_bookmarks_gets_none(server: ApiServer, client: Client, clock: FakeClock) -> None:
    made = await client.create(CONFIG_MAPS, a_config_map("a"))
    async with asked(server, f"{MAPS}?watch=true&resourceVersion={made.version}") as reply:
        await until(lambda: clock.pending >= 2)
        await clock.advance(10 * watch.BOOKMARK_SECONDS)
        await client.create(CONFIG_MAPS, a_config_map("b"))
        assert (await next_line(reply))["type"] == "ADDED"


async def test_a_watch_ends_by_itself_within_an_hour(server: ApiServer, client: Client, clock: FakeClock) -> None:
    async with asked(server, f"{MAPS}?watch=true") as reply:
        await until(lambda: clock.pending >= 2)
        await clock.advance(3600)
        assert await asyncio.wait_for(reply.content.read(), 60) == b""


async def test_a_watcher_that_leaves_is_forgotten_at_once(server: ApiServer) -> None:
    table = server.api.resources.find("", "v1", "configmaps")
    assert table
    async with asked(server, f"{MAPS}?watch=true"):
        await until(lambda: len(table.table.listeners) == 1)
    await until(lambda: len(table.table.listeners) == 0)


async def test_a_watcher_that_leaves_while_it_is_told_something_is_no_defect(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def write_to_nobody(_: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(server, "_respond", write_to_nobody)
    async with asked(server, f"{MAPS}?watch=true"):
        pass
    assert caplog.messages == []


async def test_a_watcher_that_does_not_read_is_cut_and_costs_no_memory(server: ApiServer, client: Client) -> None:
    resource = server.api.resources.find("", "v1", "configmaps")
    assert resource
    resource.table.history = History(server.api.store.version, most_changes=50)
    connector = aiohttp.TCPConnector()
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1024) as http:
        url = f"{server.url}{MAPS}?watch=true&resourceVersion={server.api.store.version}"
        async with http.get(url, headers=HEADERS) as slow:
            await client.create(CONFIG_MAPS, a_config_map("a"))
            for number in range(120):
                change = {"data": {"a": f"{number}" + "x" * 100_000}}
                await client.merge(CONFIG_MAPS, Key("default", "a"), change)
            told = (await asyncio.wait_for(slow.content.read(), 100)).splitlines()
            assert 1 <= len(told) < 121, "it was cut, in the middle of what happened"
    async with asked(server, f"{MAPS}?watch=true&resourceVersion=1") as reply:
        assert (reply.status, (await reply.json())["reason"]) == (410, "Expired")


async def test_a_watch_from_a_version_to_come_tells_nothing_before_it(server: ApiServer, client: Client) -> None:
    since = server.api.store.version + 2
    async with asked(server, f"{MAPS}?watch=true&resourceVersion={since}") as reply:
        for name in "abc":
            await client.create(CONFIG_MAPS, a_config_map(name))
        assert (await next_line(reply))["object"]["metadata"]["name"] == "c"


async def test_a_version_that_is_forgotten_gets_410_in_watches_lists_and_pages(
    server: ApiServer, client: Client
) -> None:
    for name in "abc":
        made = await client.create(CONFIG_MAPS, a_config_map(name))
    async with asked(server, f"{MAPS}?limit=2") as reply:
        token = (await reply.json())["metadata"]["continue"]
    await client.merge(CONFIG_MAPS, Key("default", "a"), {"data": {"x": "y"}})
    server.api.store.compact()
    for query in (
        f"watch=true&resourceVersion={made.version}",
        f"limit=2&continue={token}",
        f"resourceVersion={made.version}&resourceVersionMatch=Exact",
    ):
        async with asked(server, f"{MAPS}?{query}") as reply:
            assert (reply.status, (await reply.json())["reason"]) == (410, "Expired"), query


@pytest.mark.parametrize("list_by", ListBy)
async def test_an_informer_lists_again_after_a_real_410(server: ApiServer, client: Client, list_by: ListBy) -> None:
    informer: Informer[Object, Object] = Informer(
        client, CONFIG_MAPS, Scope("default"), list_by=list_by, clock=HurriedClock(50)
    )
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), 60)
        await client.create(CONFIG_MAPS, a_config_map("a"))
        await until(lambda: len(informer.store) == 1)
        for watch in tuple(server._watches):  # between its end and its return everything is forgotten
            watch.end()
        await client.delete(CONFIG_MAPS, Key("default", "a"))
        await client.create(CONFIG_MAPS, a_config_map("b"))
        server.api.store.compact()
        await until(lambda: [each.key.name for each in informer.store] == ["b"])
    finally:
        task.cancel()
        await asyncio.wait((task,))
