"""Watches: from nothing, from a version, with an initial list, through selectors, and when a version is too old."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.conformance.objects import a_config_map, a_job, a_pod
from tests.conformance.servers import Server

OWN = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}  # which a real cluster puts into every namespace


class Seen:
    """The changes that a watch tells, each waited for."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(100):
            line = json.loads(await self._reply.content.readline())
        return line["type"], line["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        seen = [await self.next() for _ in range(count)]
        return [(what, manifest["metadata"]["name"]) for what, manifest in seen]

    async def ended(self) -> bool:
        async with asyncio.timeout(100):
            return await self._reply.content.readline() == b""


@asynccontextmanager
async def watching(server: Server, path: str, **parameters: str) -> AsyncIterator[Seen]:
    url = URL(server.url + server.whole(path)).with_query({"watch": "true", "timeoutSeconds": "60"} | parameters)
    async with server.http.get(url, headers=server.headers) as reply:
        assert reply.status == 200, await reply.text()
        yield Seen(reply)


async def newest(server: Server, path: str) -> str:
    return str((await server.list_(path)).version)


async def test_a_watch_without_a_version_begins_with_what_there_is(server: Server) -> None:
    await server.create("core/secrets", {"metadata": {"name": "old"}})
    async with watching(server, "core/secrets") as seen:
        assert await seen.names(1) == [("ADDED", "old")]
        await server.create("core/secrets", {"metadata": {"name": "new"}})
        assert await seen.names(1) == [("ADDED", "new")]
    async with watching(server, "core/secrets", resourceVersion="0") as seen:
        assert sorted(await seen.names(2)) == [("ADDED", "new"), ("ADDED", "old")]


async def test_a_watch_from_a_version_tells_all_that_came_after_it_in_order(server: Server) -> None:
    await server.create("core/secrets", {"metadata": {"name": "before"}})
    since = await newest(server, "core/secrets")
    await server.create("core/secrets", {"metadata": {"name": "a"}})
    await server.patch("core/secrets/a", {"metadata": {"labels": {"x": "y"}}})
    await server.ask("DELETE", "core/secrets/a")
    await server.create("core/secrets", {"metadata": {"name": "b"}})
    async with watching(server, "core/secrets", resourceVersion=since) as seen:
        told = [await seen.next() for _ in range(4)]
    assert [(what, each["metadata"]["name"]) for what, each in told] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]
    versions = [int(each["metadata"]["resourceVersion"]) for _, each in told]
    assert versions == sorted(set(versions)), "a deletion has a version of its own, too"
    assert told[2][1]["metadata"]["labels"] == {"x": "y"}, "the last state"
    assert told[0][1]["kind"] == "Secret", "each object says its kind"


async def test_a_change_that_makes_an_object_fit_a_selector_is_an_addition_and_the_reverse_a_deletion(
    server: Server,
) -> None:
    since = await newest(server, "core/secrets")
    async with watching(server, "core/secrets", resourceVersion=since, labelSelector="on=yes") as seen:
        await server.create("core/secrets", {"metadata": {"name": "a"}})
        await server.patch("core/secrets/a", {"metadata": {"labels": {"on": "yes"}}})
        await server.patch("core/secrets/a", {"metadata": {"labels": {"more": "1"}}})
        left = await server.patch("core/secrets/a", {"metadata": {"labels": {"on": "no"}}})
        await server.patch("core/secrets/a", {"metadata": {"labels": {"more": "2"}}})
        await server.patch("core/secrets/a", {"metadata": {"labels": {"on": "yes"}}})
        assert await seen.names(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        what, last = await seen.next()
        assert (what, last["metadata"]["labels"]) == ("DELETED", {"on": "yes", "more": "1"}), "as it last fitted"
        assert last["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
        assert await seen.names(1) == [("ADDED", "a")]


async def test_pods_can_be_watched_by_node_and_come_when_they_are_bound(server: Server) -> None:
    since = await newest(server, "core/pods")
    async with watching(server, "core/pods", resourceVersion=since, fieldSelector="spec.nodeName=n1") as seen:
        await server.create("core/pods", a_pod("other", node="n2"))
        await server.create("core/pods", a_pod("mine"))
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        await server.create("core/pods/mine/binding", {"metadata": {"name": "mine"}, "target": target})
        assert await seen.names(1) == [("ADDED", "mine")]


async def test_an_initial_list_ends_with_a_bookmark(server: Server) -> None:
    for name in ("a", "b"):
        await server.create("core/configmaps", a_config_map(name))
    wish = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with watching(server, "core/configmaps", **wish, **OWN) as seen:
        assert await seen.names(2) == [("ADDED", "a"), ("ADDED", "b")]
        what, mark = await seen.next()
        assert what == "BOOKMARK"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        created = await server.create("core/configmaps", a_config_map("c"))
        assert int(created["metadata"]["resourceVersion"]) > int(mark["metadata"]["resourceVersion"])
        assert await seen.names(1) == [("ADDED", "c")]


async def test_without_initial_events_a_watch_begins_now(server: Server) -> None:
    await server.create("core/configmaps", a_config_map("a"))
    wish = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with watching(server, "core/configmaps", **wish, **OWN) as seen:
        await server.create("core/configmaps", a_config_map("b"))
        assert await seen.names(1) == [("ADDED", "b")]


async def test_a_watch_ends_after_the_seconds_that_were_asked_for(server: Server) -> None:
    since = await newest(server, "core/secrets")
    async with watching(server, "core/secrets", resourceVersion=since, timeoutSeconds="1") as seen:
        assert await seen.ended()


async def test_custom_objects_and_their_status_can_be_watched(server: Server) -> None:
    since = await newest(server, "jobs")
    async with watching(server, "jobs", resourceVersion=since) as seen:
        await server.create("jobs", a_job("a"))
        await server.patch("jobs/a/status", {"status": {"phase": "Running"}})
        assert await seen.names(1) == [("ADDED", "a")]
        what, job = await seen.next()
        assert (what, job["status"]) == ("MODIFIED", {"phase": "Running"})


async def test_a_table_can_be_watched(server: Server) -> None:
    await server.create("core/configmaps", a_config_map("a"))
    server.headers["Accept"] = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    async with watching(server, "core/configmaps", **OWN) as seen:
        what, table = await seen.next()
    assert (what, table["kind"]) == ("ADDED", "Table")
    assert [row["cells"][:2] for row in table["rows"]] == [["a", 1]]


async def test_a_write_that_changes_nothing_is_told_to_nobody(server: Server) -> None:
    since = (await server.create("core/configmaps", a_config_map("a")))["metadata"]["resourceVersion"]
    async with watching(server, "core/configmaps", resourceVersion=since, **OWN) as seen:
        await server.patch("core/configmaps/a", {"data": {"a": "b"}})
        await server.done("PUT", "core/configmaps/a", a_config_map("a"))
        await server.patch("core/configmaps/a", {"data": {"a": "c"}})
        what, changed = await seen.next()
    assert (what, changed["data"]) == ("MODIFIED", {"a": "c"})


@pytest.mark.parametrize("path", ["core/secrets", "/api/v1/secrets"])
async def test_many_watchers_each_see_everything(server: Server, path: str) -> None:
    since = await newest(server, "core/secrets")
    fields = f"metadata.namespace={server.namespace}"
    async with (
        watching(server, path, resourceVersion=since, fieldSelector=fields) as one,
        watching(server, path, resourceVersion=since, fieldSelector=fields) as two,
    ):
        names = [f"s{number}" for number in range(20)]
        await asyncio.gather(*(server.create("core/secrets", {"metadata": {"name": name}}) for name in names))
        first, second = await one.names(20), await two.names(20)
    assert first == second
    assert sorted(name for _, name in first) == sorted(names)
