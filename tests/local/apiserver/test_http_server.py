"""The server itself: who may speak to it, what it refuses with a sentence, how it starts and ends."""

import asyncio
import io
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import aiohttp
import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import Unreachable
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, Key
from paddle_operator.local.apiserver import serving_cert
from paddle_operator.local.apiserver.http_server import LARGEST_BODY, ApiServer, StoreError
from paddle_operator.local.apiserver.scheme.builtin import KINDS
from paddle_operator.local.container_logs import LogOptions
from tests.local.apiserver.running import (
    HEADERS,
    NAMESPACES,
    TOKEN,
    a_config_map,
    a_pod,
    asked,
    client_of,
    next_line,
    until,
)

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_the_namespaces_that_are_needed_are_there_from_the_start(client: Client) -> None:
    assert [each.key.name for each in await client.list_all(NAMESPACES)] == ["default", "paddle-system"]


async def test_nothing_but_health_is_told_without_the_token(server: ApiServer) -> None:
    for header in (
        "",
        "Bearer",
        "Bearer wrong",
        f"bearer{TOKEN}",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        "Bearer \udcff",
    ):
        async with asked(server, MAPS, headers={"Authorization": header}) as reply:
            assert reply.status == 401
        async with asked(server, "/api", headers={"Authorization": header}) as reply:
            assert reply.status == 401
    async with asked(server, "/readyz", headers={"Authorization": ""}) as reply:
        assert (reply.status, await reply.text()) == (200, "ok")


def test_a_server_without_a_token_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a token"):
        ApiServer(tmp_path, KINDS, token="")


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/apis/apps/v1/namespaces/default/deployments", "has no deployments in apps/v1"),
        ("POST", "/api/v1/namespaces/default/pods/a/exec", "commands cannot be run inside"),
        ("GET", "/api/v1/namespaces/default/pods/a/portforward", "ports need no forwarding"),
        ("GET", "/api/v1/watch/pods", "has no watch in v1"),
        ("GET", "/metrics", "has nothing at /metrics"),
        ("GET", "/api/v1/namespaces/default/nodes", "has no nodes in v1"),
    ],
)
async def test_what_is_not_there_is_refused_with_a_sentence(
    server: ApiServer, method: str, path: str, words: str
) -> None:
    async with asked(server, path, method) as reply:
        body = await reply.json()
    assert (reply.status, body["kind"], body["reason"]) == (404, "Status", "NotFound")
    assert words in body["message"]


async def test_server_side_apply_is_refused_with_a_sentence(server: ApiServer) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    async with asked(server, f"{MAPS}/a?fieldManager=me&force=true", "PATCH", data=b"{}", headers=headers) as reply:
        assert reply.status == 415
        assert "no server-side apply" in (await reply.json())["message"]


async def test_other_methods_and_parameters_are_refused_with_a_sentence(server: ApiServer) -> None:
    async with asked(server, MAPS, "OPTIONS") as reply:
        assert (reply.status, "does not know the method OPTIONS" in (await reply.json())["message"]) == (405, True)
    async with asked(server, f"{MAPS}?shards=3") as reply:
        assert (reply.status, "the parameter shards" in (await reply.json())["message"]) == (400, True)


async def test_a_body_that_is_too_large_is_refused(server: ApiServer) -> None:
    async with asked(server, MAPS, "POST", data=io.BytesIO(b" " * (LARGEST_BODY + 1))) as reply:
        assert (reply.status, (await reply.json())["reason"]) == (413, "RequestEntityTooLarge")
    large = a_config_map("large") | {"data": {"a": "x" * 900_000}}
    async with asked(server, MAPS, "POST", json=large) as reply:
        assert reply.status == 201, await reply.text()


async def test_a_defect_is_a_500_with_a_sentence_and_the_server_lives_on(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(server.api, "answer", lambda _: 1 / 0)
        async with asked(server, MAPS) as reply:
            assert (reply.status, (await reply.json())["reason"]) == (500, "InternalError")
    async with asked(server, MAPS) as reply:
        assert reply.status == 200


async def test_a_full_disk_is_told_to_whoever_writes(server: ApiServer, client: Client) -> None:
    server.api.store._database.execute("PRAGMA max_page_count = 1")
    async with asked(server, MAPS, "POST", json=a_config_map("a") | {"data": {"a": "x" * 100_000}}) as reply:
        assert reply.status == 500
        assert "is the disk full" in (await reply.json())["message"]
    server.api.store._database.execute("PRAGMA max_page_count = 1000000")
    await client.create(CONFIG_MAPS, a_config_map("a"))


async def test_ending_the_server_ends_watches_and_the_next_one_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddle_operator.local.apiserver.http_server.SHUTDOWN_SECONDS", 200.0)
    stopped = AsyncExitStack()
    server = await stopped.enter_async_context(ApiServer(tmp_path, KINDS, token=TOKEN))
    async with stopped, aiohttp.ClientSession() as http:
        url = f"{server.url}{MAPS}?watch=true"
        async with client_of(server) as client:
            made = await client.create(CONFIG_MAPS, a_config_map("a"))
        watch = await http.get(url, headers=HEADERS)
        assert (await next_line(watch))["object"]["metadata"]["name"] == "a"
        async with asyncio.timeout(100):  # not by its patience with requests that do not end
            await stopped.aclose()
            assert await watch.content.read() == b"", "the stream ends as a stream should"
        async with client_of(server) as client:
            with pytest.raises(Unreachable):
                await client.get(CONFIG_MAPS, Key("default", "a"))
        async with ApiServer(tmp_path, KINDS, token=TOKEN) as again, client_of(again) as client:
            assert await client.get(CONFIG_MAPS, Key("default", "a")) == made
            url = f"{again.url}{MAPS}?watch=true&resourceVersion={made.version}"
            async with http.get(url, headers=HEADERS) as resumed:
                await client.create(CONFIG_MAPS, a_config_map("b"))
                assert (await next_line(resumed))["object"]["metadata"]["name"] == "b"
            older = f"{again.url}{MAPS}?watch=true&resourceVersion={made.version - 1}"
            async with http.get(older, headers=HEADERS) as expired:
                assert (expired.status, (await expired.json())["reason"]) == (410, "Expired")


async def test_a_folder_or_a_port_that_is_taken_is_told(tmp_path: Path, server: ApiServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
        async with ApiServer(tmp_path / "other", KINDS, token=TOKEN, port=port):
            pass
    with pytest.raises(StoreError, match="another local cluster runs in"):
        async with ApiServer(tmp_path / "state", KINDS, token=TOKEN):
            pass
    async with ApiServer(tmp_path / "other", KINDS, token=TOKEN):
        pass  # the attempt has left nothing behind


async def test_it_speaks_tls_as_well_where_kubectl_shall_be_served(tmp_path: Path) -> None:
    async with ApiServer(tmp_path, KINDS, token=TOKEN, secure_port=0) as server:
        assert server.certificate
        trust = ssl.create_default_context(cadata=serving_cert.certificate_pem(server.certificate))
        async with (
            aiohttp.ClientSession() as http,
            http.get(server.secure_url + MAPS, headers=HEADERS, ssl=trust) as reply,
        ):
            assert reply.status == 200


# Logs


class Printed:
    """A log that says what it was asked for, and then what the test lets it say."""

    def __init__(self) -> None:
        self.asked: dict[str, object] = {}
        self.more: asyncio.Queue[bytes] = asyncio.Queue()
        self.left = False

    async def stream(self, pod: Key, uid: str, options: LogOptions) -> AsyncIterator[bytes]:
        self.asked = {"pod": str(pod)} | {name: value for name, value in asdict(options).items() if value}
        try:
            yield b"first\n"
            while options.follow:
                yield await self.more.get()
        finally:
            self.left = True


async def test_logs_are_streamed_from_whoever_keeps_them(tmp_path: Path) -> None:
    logs = Printed()
    path = "/api/v1/namespaces/default/pods/a/log"
    async with ApiServer(tmp_path, KINDS, token=TOKEN, logs=logs) as server, client_of(server) as client:
        pod = a_pod("a")
        pod["spec"]["nodeName"] = "n1"
        await client.create(PODS, pod)
        async with asked(server, f"{path}?tailLines=5&limitBytes=100&previous=true&timestamps=true") as reply:
            assert (reply.content_type, await reply.text()) == ("text/plain", "first\n")
        wish = {"tail_lines": 5, "limit_bytes": 100, "previous": True, "timestamps": True}
        assert logs.asked == {"pod": "default/a", "container": "main"} | wish
        async with asked(server, f"{path}?follow=true&sinceTime=2026-01-01T00:00:00Z") as reply:
            assert await reply.content.readline() == b"first\n"
            logs.left = False
            logs.more.put_nowait(b"second\n")
            assert await reply.content.readline() == b"second\n"
        await until(lambda: logs.left)  # who leaves is noticed
        async with asked(server, f"{path}?sinceTime=yesterday") as reply:
            assert reply.status == 400


async def test_a_log_that_is_followed_ends_with_the_server(tmp_path: Path) -> None:
    logs = Printed()
    async with aiohttp.ClientSession() as http:
        async with ApiServer(tmp_path, KINDS, token=TOKEN, logs=logs) as server, client_of(server) as client:
            pod = a_pod("a")
            pod["spec"]["nodeName"] = "n1"
            await client.create(PODS, pod)
            url = f"{server.url}/api/v1/namespaces/default/pods/a/log?follow=true"
            reply = await http.get(url, headers=HEADERS)
            assert await reply.content.readline() == b"first\n"
        assert await asyncio.wait_for(reply.content.read(), 60) == b""
        assert logs.left


async def test_without_a_node_there_are_no_logs(server: ApiServer, client: Client) -> None:
    pod = a_pod("a")
    pod["spec"]["nodeName"] = "n1"
    await client.create(PODS, pod)
    async with asked(server, "/api/v1/namespaces/default/pods/a/log") as reply:
        assert (reply.status, "keeps no logs" in (await reply.json())["message"]) == (404, True)
