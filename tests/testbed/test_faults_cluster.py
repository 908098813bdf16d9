"""Do the faults work in front of a real kube-apiserver, with its TLS, tokens and watches?"""

from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.support.http_stubs import CONNECTION_ERRORS, assert_no_data, make_client, read_line, request_status


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(control_plane.connection("tester-0")) as proxy:
        yield proxy


@pytest.fixture
async def tester(proxy: FaultProxy, control_plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    async with make_client(proxy, control_plane.credentials.token_of("tester-0")) as session:
        yield session


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def test_real_server_authenticates_the_token(proxy: FaultProxy, tester: aiohttp.ClientSession) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with tester.post(path, json=body) as response:
        assert (await response.json())["status"]["userInfo"]["username"] == "tester-0"
    async with make_client(proxy, "unknown") as unknown:
        assert await request_status(unknown, "POST", path, body) == 401


async def test_injected_conflict_creates_nothing(
    proxy: FaultProxy, tester: aiohttp.ClientSession, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    proxy.when(verb="create", resource="configmaps", namespace=namespace).respond_with(409, times=1)
    assert await request_status(tester, "POST", path, config_map("a")) == 409
    assert await request_status(tester, "GET", f"{path}/a") == 404
    assert await request_status(tester, "POST", path, config_map("a")) == 201


async def test_reset_after_server_creates_the_object(
    proxy: FaultProxy, tester: aiohttp.ClientSession, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    proxy.when(verb="create", name="a").reset_after_server(times=1)
    with pytest.raises(CONNECTION_ERRORS):
        await request_status(tester, "POST", path, config_map("a"))
    assert await request_status(tester, "GET", f"{path}/a") == 200
    assert await request_status(tester, "POST", path, config_map("a")) == 409  # from the server


async def test_real_watch_stalls_after_one_event(
    proxy: FaultProxy, tester: aiohttp.ClientSession, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with tester.get(f"{path}?watch=1&fieldSelector=metadata.name!=kube-root-ca.crt") as response:
        rule = proxy.when(verb="watch", resource="configmaps").stall(after_events=1)
        assert rule.fire_count == 1
        assert [await request_status(tester, "POST", path, config_map(name)) for name in "ab"] == [201, 201]
        event = msgspec.json.decode(await read_line(response))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        await assert_no_data(response)
