"""Watches: without a version, from a version, with initial events, with selectors."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.conformance.objects import make_config_map, make_job, make_pod
from tests.conformance.servers import Server

OWN = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}  # a cluster creates it in every namespace


class WatchEvents:
    """Reads the events of a watch."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(100):
            line = json.loads(await self._reply.content.readline())
        return line["type"], line["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        events = [await self.next() for _ in range(count)]
        return [(event_type, manifest["metadata"]["name"]) for event_type, manifest in events]

    async def is_closed(self) -> bool:
        async with asyncio.timeout(100):
            return await self._reply.content.readline() == b""


@asynccontextmanager
async def open_watch(server: Server, path: str, **parameters: str) -> AsyncIterator[WatchEvents]:
    url = URL(server.url + server.expand_path(path)).with_query({"watch": "true", "timeoutSeconds": "60"} | parameters)
    async with server.http.get(url, headers=server.headers) as reply:
        assert reply.status == 200, await reply.text()
        yield WatchEvents(reply)


async def newest_version(server: Server, path: str) -> str:
    return str((await server.list_(path)).version)


async def test_watch_without_version_starts_with_all_objects(server: Server) -> None:
    await server.create("core/secrets", {"metadata": {"name": "old"}})
    async with open_watch(server, "core/secrets") as events:
        assert await events.names(1) == [("ADDED", "old")]
        await server.create("core/secrets", {"metadata": {"name": "new"}})
        assert await events.names(1) == [("ADDED", "new")]
    async with open_watch(server, "core/secrets", resourceVersion="0") as events:
        assert sorted(await events.names(2)) == [("ADDED", "new"), ("ADDED", "old")]


async def test_watch_from_a_version_has_all_later_changes(server: Server) -> None:
    await server.create("core/secrets", {"metadata": {"name": "before"}})
    since = await newest_version(server, "core/secrets")
    await server.create("core/secrets", {"metadata": {"name": "a"}})
    await server.patch("core/secrets/a", {"metadata": {"labels": {"x": "y"}}})
    await server.request("DELETE", "core/secrets/a")
    await server.create("core/secrets", {"metadata": {"name": "b"}})
    async with open_watch(server, "core/secrets", resourceVersion=since) as events:
        received = [await events.next() for _ in range(4)]
    assert [(event_type, each["metadata"]["name"]) for event_type, each in received] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]
    versions = [int(each["metadata"]["resourceVersion"]) for _, each in received]
    assert versions == sorted(set(versions)), "a deletion has its own version, too"
    assert received[2][1]["metadata"]["labels"] == {"x": "y"}, "the last state"
    assert received[0][1]["kind"] == "Secret", "each object has its kind"


async def test_watch_events_of_objects_that_start_or_stop_matching(
    server: Server,
) -> None:
    since = await newest_version(server, "core/secrets")
    async with open_watch(server, "core/secrets", resourceVersion=since, labelSelector="on=yes") as events:
        await server.create("core/secrets", {"metadata": {"name": "a"}})
        await server.patch("core/secrets/a", {"metadata": {"labels": {"on": "yes"}}})
        await server.patch("core/secrets/a", {"metadata": {"labels": {"more": "1"}}})
        unmatched = await server.patch("core/secrets/a", {"metadata": {"labels": {"on": "no"}}})
        await server.patch("core/secrets/a", {"metadata": {"labels": {"more": "2"}}})
        await server.patch("core/secrets/a", {"metadata": {"labels": {"on": "yes"}}})
        assert await events.names(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        event_type, last = await events.next()
        assert (event_type, last["metadata"]["labels"]) == ("DELETED", {"on": "yes", "more": "1"}), (
            "the last state that matched"
        )
        assert last["metadata"]["resourceVersion"] == unmatched["metadata"]["resourceVersion"]
        assert await events.names(1) == [("ADDED", "a")]


async def test_watch_by_node_has_pods_once_they_are_bound(server: Server) -> None:
    since = await newest_version(server, "core/pods")
    async with open_watch(server, "core/pods", resourceVersion=since, fieldSelector="spec.nodeName=n1") as events:
        await server.create("core/pods", make_pod("other", node="n2"))
        await server.create("core/pods", make_pod("mine"))
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        await server.create("core/pods/mine/binding", {"metadata": {"name": "mine"}, "target": target})
        assert await events.names(1) == [("ADDED", "mine")]


async def test_initial_events_end_with_a_bookmark(server: Server) -> None:
    for name in ("a", "b"):
        await server.create("core/configmaps", make_config_map(name))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with open_watch(server, "core/configmaps", **options, **OWN) as events:
        assert await events.names(2) == [("ADDED", "a"), ("ADDED", "b")]
        event_type, bookmark = await events.next()
        assert event_type == "BOOKMARK"
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        created = await server.create("core/configmaps", make_config_map("c"))
        assert int(created["metadata"]["resourceVersion"]) > int(bookmark["metadata"]["resourceVersion"])
        assert await events.names(1) == [("ADDED", "c")]


async def test_watch_without_initial_events_starts_now(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    options = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with open_watch(server, "core/configmaps", **options, **OWN) as events:
        await server.create("core/configmaps", make_config_map("b"))
        assert await events.names(1) == [("ADDED", "b")]


async def test_watch_ends_after_timeout_seconds(server: Server) -> None:
    since = await newest_version(server, "core/secrets")
    async with open_watch(server, "core/secrets", resourceVersion=since, timeoutSeconds="1") as events:
        assert await events.is_closed()


async def test_watch_of_custom_objects_and_their_status(server: Server) -> None:
    since = await newest_version(server, "jobs")
    async with open_watch(server, "jobs", resourceVersion=since) as events:
        await server.create("jobs", make_job("a"))
        await server.patch("jobs/a/status", {"status": {"phase": "Running"}})
        assert await events.names(1) == [("ADDED", "a")]
        event_type, job = await events.next()
        assert (event_type, job["status"]) == ("MODIFIED", {"phase": "Running"})


async def test_watch_of_tables(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    server.headers["Accept"] = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    async with open_watch(server, "core/configmaps", **OWN) as events:
        event_type, table = await events.next()
    assert (event_type, table["kind"]) == ("ADDED", "Table")
    assert [row["cells"][:2] for row in table["rows"]] == [["a", 1]]


async def test_unchanged_write_has_no_watch_event(server: Server) -> None:
    since = (await server.create("core/configmaps", make_config_map("a")))["metadata"]["resourceVersion"]
    async with open_watch(server, "core/configmaps", resourceVersion=since, **OWN) as events:
        await server.patch("core/configmaps/a", {"data": {"a": "b"}})
        await server.request_json("PUT", "core/configmaps/a", make_config_map("a"))
        await server.patch("core/configmaps/a", {"data": {"a": "c"}})
        event_type, changed = await events.next()
    assert (event_type, changed["data"]) == ("MODIFIED", {"a": "c"})


@pytest.mark.parametrize("path", ["core/secrets", "/api/v1/secrets"])
async def test_concurrent_watches_have_all_events(server: Server, path: str) -> None:
    since = await newest_version(server, "core/secrets")
    fields = f"metadata.namespace={server.namespace}"
    async with (
        open_watch(server, path, resourceVersion=since, fieldSelector=fields) as one,
        open_watch(server, path, resourceVersion=since, fieldSelector=fields) as two,
    ):
        names = [f"s{number}" for number in range(20)]
        await asyncio.gather(*(server.create("core/secrets", {"metadata": {"name": name}}) for name in names))
        first, second = await one.names(20), await two.names(20)
    assert first == second
    assert sorted(name for _, name in first) == sorted(names)
