"""Do the faults hold before a real kube-apiserver, with its TLS, its tokens and its watches?"""

from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.support.plain_http import CUT, a_client, assert_silent, code_of, line_of


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(control_plane.connection("tester-0")) as proxy:
        yield proxy


@pytest.fixture
async def tester(proxy: FaultProxy, control_plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    async with a_client(proxy, control_plane.credentials.token_of("tester-0")) as session:
        yield session


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def test_the_real_server_takes_the_clients_token_for_its_user(
    proxy: FaultProxy, tester: aiohttp.ClientSession
) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with tester.post(path, json=body) as response:
        assert (await response.json())["status"]["userInfo"]["username"] == "tester-0"
    async with a_client(proxy, "unknown") as stranger:
        assert await code_of(stranger, "POST", path, body) == 401


async def test_a_real_create_that_was_refused_leaves_nothing(
    proxy: FaultProxy, tester: aiohttp.ClientSession, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    proxy.when(verb="create", resource="configmaps", namespace=namespace).respond_with(409, times=1)
    assert await code_of(tester, "POST", path, config_map("a")) == 409
    assert await code_of(tester, "GET", f"{path}/a") == 404
    assert await code_of(tester, "POST", path, config_map("a")) == 201


async def test_a_real_create_that_was_cut_after_has_happened(
    proxy: FaultProxy, tester: aiohttp.ClientSession, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    proxy.when(verb="create", name="a").reset_after_server(times=1)
    with pytest.raises(CUT):
        await code_of(tester, "POST", path, config_map("a"))
    assert await code_of(tester, "GET", f"{path}/a") == 200
    assert await code_of(tester, "POST", path, config_map("a")) == 409  # the server's own


async def test_a_real_watch_stalls_after_the_event_that_was_named(
    proxy: FaultProxy, tester: aiohttp.ClientSession, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with tester.get(f"{path}?watch=1&fieldSelector=metadata.name!=kube-root-ca.crt") as response:
        rule = proxy.when(verb="watch", resource="configmaps").stall(after_events=1)
        assert rule.fire_count == 1
        assert [await code_of(tester, "POST", path, config_map(name)) for name in "ab"] == [201, 201]
        event = msgspec.json.decode(await line_of(response))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        await assert_silent(response)
