"""Authentication, unsupported requests, start and stop, logs of the HTTP server."""

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
from paddle_operator.local.apiserver.http_server import MAX_BODY_BYTES, ApiServer, StorageError
from paddle_operator.local.apiserver.scheme.builtin import BUILTIN_KINDS
from paddle_operator.local.container_logs import PodLogOptions
from tests.local.apiserver.helpers import (
    HEADERS,
    NAMESPACES,
    TOKEN,
    client_of,
    make_config_map,
    make_pod,
    read_event,
    send_request,
    wait_until,
)

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_initial_namespaces_exist(client: Client) -> None:
    assert [each.key.name for each in await client.list_all(NAMESPACES)] == ["default", "paddle-system"]


async def test_only_health_is_served_without_the_token(server: ApiServer) -> None:
    for header in (
        "",
        "Bearer",
        "Bearer wrong",
        f"bearer{TOKEN}",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        "Bearer \udcff",
    ):
        async with send_request(server, MAPS, headers={"Authorization": header}) as reply:
            assert reply.status == 401
        async with send_request(server, "/api", headers={"Authorization": header}) as reply:
            assert reply.status == 401
    async with send_request(server, "/readyz", headers={"Authorization": ""}) as reply:
        assert (reply.status, await reply.text()) == (200, "ok")


def test_token_is_required(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a token"):
        ApiServer(tmp_path, BUILTIN_KINDS, token="")


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/apis/apps/v1/namespaces/default/deployments", "has no deployments in apps/v1"),
        ("POST", "/api/v1/namespaces/default/pods/a/exec", "does not support exec"),
        ("GET", "/api/v1/namespaces/default/pods/a/portforward", "needs no port forwarding"),
        ("GET", "/api/v1/watch/pods", "has no watch in v1"),
        ("GET", "/metrics", "serves nothing at /metrics"),
        ("GET", "/api/v1/namespaces/default/nodes", "has no nodes in v1"),
    ],
)
async def test_unsupported_resource_gets_404_with_advice(
    server: ApiServer, method: str, path: str, message: str
) -> None:
    async with send_request(server, path, method) as reply:
        body = await reply.json()
    assert (reply.status, body["kind"], body["reason"]) == (404, "Status", "NotFound")
    assert message in body["message"]


async def test_server_side_apply_gets_415_with_advice(server: ApiServer) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    async with send_request(
        server, f"{MAPS}/a?fieldManager=me&force=true", "PATCH", data=b"{}", headers=headers
    ) as reply:
        assert reply.status == 415
        assert "does not support server-side apply" in (await reply.json())["message"]


async def test_unsupported_method_or_parameter_is_named(server: ApiServer) -> None:
    async with send_request(server, MAPS, "OPTIONS") as reply:
        assert (reply.status, "does not support the method OPTIONS" in (await reply.json())["message"]) == (405, True)
    async with send_request(server, f"{MAPS}?shards=3") as reply:
        assert (reply.status, "the parameter shards" in (await reply.json())["message"]) == (400, True)


async def test_too_large_body_gets_413(server: ApiServer) -> None:
    async with send_request(server, MAPS, "POST", data=io.BytesIO(b" " * (MAX_BODY_BYTES + 1))) as reply:
        assert (reply.status, (await reply.json())["reason"]) == (413, "RequestEntityTooLarge")
    large = make_config_map("large") | {"data": {"a": "x" * 900_000}}
    async with send_request(server, MAPS, "POST", json=large) as reply:
        assert reply.status == 201, await reply.text()


async def test_unexpected_error_gets_500_and_server_continues(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(server.api, "handle", lambda _: 1 / 0)
        async with send_request(server, MAPS) as reply:
            assert (reply.status, (await reply.json())["reason"]) == (500, "InternalError")
    async with send_request(server, MAPS) as reply:
        assert reply.status == 200


async def test_full_disk_gets_500_with_advice(server: ApiServer, client: Client) -> None:
    server.api.store._database.execute("PRAGMA max_page_count = 1")
    async with send_request(server, MAPS, "POST", json=make_config_map("a") | {"data": {"a": "x" * 100_000}}) as reply:
        assert reply.status == 500
        assert "the disk is not full" in (await reply.json())["message"]
    server.api.store._database.execute("PRAGMA max_page_count = 1000000")
    await client.create(CONFIG_MAPS, make_config_map("a"))


async def test_restarted_server_resumes_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_operator.local.apiserver.http_server.SHUTDOWN_SECONDS", 200.0)
    stopped = AsyncExitStack()
    server = await stopped.enter_async_context(ApiServer(tmp_path, BUILTIN_KINDS, token=TOKEN))
    async with stopped, aiohttp.ClientSession() as http:
        url = f"{server.url}{MAPS}?watch=true"
        async with client_of(server) as client:
            config_map = await client.create(CONFIG_MAPS, make_config_map("a"))
        watch = await http.get(url, headers=HEADERS)
        assert (await read_event(watch))["object"]["metadata"]["name"] == "a"
        async with asyncio.timeout(100):  # long before SHUTDOWN_SECONDS
            await stopped.aclose()
            assert await watch.content.read() == b"", "the stream ends regularly"
        async with client_of(server) as client:
            with pytest.raises(Unreachable):
                await client.get(CONFIG_MAPS, Key("default", "a"))
        async with ApiServer(tmp_path, BUILTIN_KINDS, token=TOKEN) as restarted, client_of(restarted) as client:
            assert await client.get(CONFIG_MAPS, Key("default", "a")) == config_map
            url = f"{restarted.url}{MAPS}?watch=true&resourceVersion={config_map.version}"
            async with http.get(url, headers=HEADERS) as resumed:
                await client.create(CONFIG_MAPS, make_config_map("b"))
                assert (await read_event(resumed))["object"]["metadata"]["name"] == "b"
            older = f"{restarted.url}{MAPS}?watch=true&resourceVersion={config_map.version - 1}"
            async with http.get(older, headers=HEADERS) as expired:
                assert (expired.status, (await expired.json())["reason"]) == (410, "Expired")


async def test_directory_or_port_in_use_is_reported(tmp_path: Path, server: ApiServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
        async with ApiServer(tmp_path / "other", BUILTIN_KINDS, token=TOKEN, port=port):
            pass
    with pytest.raises(StorageError, match="another local cluster runs in"):
        async with ApiServer(tmp_path / "state", BUILTIN_KINDS, token=TOKEN):
            pass
    async with ApiServer(tmp_path / "other", BUILTIN_KINDS, token=TOKEN):
        pass  # the failed start holds no lock


async def test_tls_is_served_on_the_secure_port(tmp_path: Path) -> None:
    async with ApiServer(tmp_path, BUILTIN_KINDS, token=TOKEN, secure_port=0) as server:
        assert server.certificate
        trust = ssl.create_default_context(cadata=serving_cert.certificate_pem(server.certificate))
        async with (
            aiohttp.ClientSession() as http,
            http.get(server.secure_url + MAPS, headers=HEADERS, ssl=trust) as reply,
        ):
            assert reply.status == 200


# Logs


class FakePodLogs:
    """Records the request and streams what the test puts into the queue."""

    def __init__(self) -> None:
        self.request: dict[str, object] = {}
        self.more: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = False

    async def stream(self, pod: Key, uid: str, options: PodLogOptions) -> AsyncIterator[bytes]:
        self.request = {"pod": str(pod)} | {name: value for name, value in asdict(options).items() if value}
        try:
            yield b"first\n"
            while options.follow:
                yield await self.more.get()
        finally:
            self.closed = True


async def test_pod_log_is_streamed(tmp_path: Path) -> None:
    logs = FakePodLogs()
    path = "/api/v1/namespaces/default/pods/a/log"
    async with ApiServer(tmp_path, BUILTIN_KINDS, token=TOKEN, logs=logs) as server, client_of(server) as client:
        pod = make_pod("a")
        pod["spec"]["nodeName"] = "n1"
        await client.create(PODS, pod)
        async with send_request(server, f"{path}?tailLines=5&limitBytes=100&previous=true&timestamps=true") as reply:
            assert (reply.content_type, await reply.text()) == ("text/plain", "first\n")
        options = {"tail_lines": 5, "limit_bytes": 100, "previous": True, "timestamps": True}
        assert logs.request == {"pod": "default/a", "container": "main"} | options
        async with send_request(server, f"{path}?follow=true&sinceTime=2026-01-01T00:00:00Z") as reply:
            assert await reply.content.readline() == b"first\n"
            logs.closed = False
            logs.more.put_nowait(b"second\n")
            assert await reply.content.readline() == b"second\n"
        await wait_until(lambda: logs.closed)  # a client that disconnects is noticed
        async with send_request(server, f"{path}?sinceTime=yesterday") as reply:
            assert reply.status == 400


async def test_followed_log_ends_with_the_server(tmp_path: Path) -> None:
    logs = FakePodLogs()
    async with aiohttp.ClientSession() as http:
        async with ApiServer(tmp_path, BUILTIN_KINDS, token=TOKEN, logs=logs) as server, client_of(server) as client:
            pod = make_pod("a")
            pod["spec"]["nodeName"] = "n1"
            await client.create(PODS, pod)
            url = f"{server.url}/api/v1/namespaces/default/pods/a/log?follow=true"
            reply = await http.get(url, headers=HEADERS)
            assert await reply.content.readline() == b"first\n"
        assert await asyncio.wait_for(reply.content.read(), 60) == b""
        assert logs.closed


async def test_log_without_a_node_gets_404(server: ApiServer, client: Client) -> None:
    pod = make_pod("a")
    pod["spec"]["nodeName"] = "n1"
    await client.create(PODS, pod)
    async with send_request(server, "/api/v1/namespaces/default/pods/a/log") as reply:
        assert (reply.status, "has no logs" in (await reply.json())["message"]) == (404, True)
