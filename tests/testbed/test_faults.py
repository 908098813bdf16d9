"""Does the fault proxy inject exactly the configured fault and relay everything else?"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import RawTestServer
from yarl import URL

from paddle_operator.kube.config.server import StaticServerConfig
from testbed.faults import FaultProxy
from testbed.request_log import peak_per_second, token_digest
from tests.support.http_stubs import (
    CONNECTION_ERRORS,
    NO_DATA_SECONDS,
    WAIT_TIMEOUT_SECONDS,
    StubServer,
    assert_no_data,
    make_client,
    read_line,
    request_status,
)

PODS = "/api/v1/namespaces/team/pods"
JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/team/paddlejobs"
WATCH = f"{PODS}?watch=true"


@pytest.fixture
async def upstream() -> StubServer:
    return StubServer()


@pytest.fixture
async def proxy(upstream: StubServer) -> AsyncIterator[FaultProxy]:
    async with (
        RawTestServer(upstream.serve) as server,
        FaultProxy(StaticServerConfig(str(server.make_url("/")))) as proxy,
    ):
        yield proxy


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[aiohttp.ClientSession]:
    async with make_client(proxy, "secret") as session:
        yield session


async def read_status(client: aiohttp.ClientSession, method: str, path: str) -> tuple[Any, Any]:
    """Send a request; returns the Status and the Retry-After header."""
    async with client.request(method, path) as response:
        return await response.json(), response.headers.get("Retry-After")


@asynccontextmanager
async def assert_no_response(client: aiohttp.ClientSession, method: str, path: str) -> AsyncIterator[None]:
    """Send a request and assert that there is no response some time after the block."""
    request = asyncio.ensure_future(request_status(client, method, path))
    yield
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(request, NO_DATA_SECONDS)


async def test_requests_are_relayed_unchanged_without_a_rule(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    body = b"x" * 3_000_000
    path = f"{PODS}/a%2Fb%7E?fieldManager=me%20too"
    async with client.patch(URL(proxy.url + path, encoded=True), data=BytesIO(body)) as response:
        assert (response.status, response.headers["Audit-Id"], await response.json()) == (201, "7", {"method": "PATCH"})
    assert upstream.requests == [("PATCH", path)]
    assert (upstream.authorizations, upstream.bodies) == (["Bearer secret"], [body])


async def test_compressed_response_is_relayed_unchanged(client: aiohttp.ClientSession) -> None:
    async with client.get(PODS, headers={"Accept-Encoding": "gzip"}) as response:
        assert (response.headers["Content-Encoding"], await response.read()) == ("gzip", b"packed")


async def test_injected_response_does_not_reach_the_server(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    rule = proxy.when(verb="create", resource="pods").respond_with(409, times=2)
    codes = [await request_status(client, method, PODS) for method in ("GET", "POST", "POST", "POST")]
    assert (codes, rule.fire_count) == ([201, 409, 409, 201], 2)
    assert [method for method, _ in upstream.requests] == ["GET", "POST"]


@pytest.mark.parametrize(
    ("method", "code", "reason"),
    [
        ("POST", 409, "AlreadyExists"),
        ("PUT", 409, "Conflict"),
        ("GET", 410, "Expired"),
        ("GET", 429, "TooManyRequests"),
        ("GET", 500, "InternalError"),
        ("GET", 503, "ServiceUnavailable"),
    ],
)
async def test_injected_response_has_the_reason_of_its_code(
    proxy: FaultProxy, client: aiohttp.ClientSession, method: str, code: int, reason: str
) -> None:
    proxy.when().respond_with(code)
    status, retry_after = await read_status(client, method, f"{PODS}/a")
    assert (status["kind"], status["code"], status["reason"], retry_after) == ("Status", code, reason, None)
    assert status["details"] == {"name": "a", "kind": "pods"}


async def test_injected_response_with_retry_after_and_reason(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    proxy.when().respond_with(429, retry_after=3, reason="Busy", message="not now")
    status, retry_after = await read_status(client, "GET", PODS)
    assert (retry_after, status["details"]["retryAfterSeconds"]) == ("3", 3)
    assert (status["reason"], status["message"]) == ("Busy", "not now")


async def test_reset_before_server_does_not_forward_the_request(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(verb="create").reset_before_server(times=1)
    with pytest.raises(CONNECTION_ERRORS):
        await request_status(client, "POST", PODS)
    assert upstream.requests == []
    assert await request_status(client, "POST", PODS) == 201


async def test_reset_after_server_forwards_the_request(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(name="mnist-*").reset_after_server(times=1)
    with pytest.raises(CONNECTION_ERRORS):
        await request_status(client, "POST", PODS, {"metadata": {"name": "mnist-worker-0"}})
    assert upstream.requests == [("POST", PODS)]
    assert [(one.name, one.code) for one in proxy.requests] == [("mnist-worker-0", None)]


async def test_hanging_request_is_forwarded_without_a_response(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(verb="delete").hang()
    async with assert_no_response(client, "DELETE", f"{PODS}/a"):
        await asyncio.wait_for(upstream.request_received.wait(), WAIT_TIMEOUT_SECONDS)


async def test_delay_does_not_forward_the_request_yet(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    rule = proxy.when().delay(3600, times=1)
    async with assert_no_response(client, "GET", PODS):
        await asyncio.wait_for(rule.wait_fired(), WAIT_TIMEOUT_SECONDS)
    assert not upstream.request_received.is_set()


async def test_held_request_is_forwarded_on_release(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    released = asyncio.Event()
    rule = proxy.when().hold(released, times=1)
    request = asyncio.ensure_future(request_status(client, "GET", PODS))
    await asyncio.wait_for(rule.wait_fired(), WAIT_TIMEOUT_SECONDS)
    assert not upstream.request_received.is_set()
    released.set()
    assert await asyncio.wait_for(request, WAIT_TIMEOUT_SECONDS) == 201


async def test_delayed_response_follows_a_forwarded_request(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    proxy.when().delay_response(3600, times=1)
    async with assert_no_response(client, "GET", PODS):
        await asyncio.wait_for(upstream.request_received.wait(), WAIT_TIMEOUT_SECONDS)


async def test_delayed_request_is_completed(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    for delay in (proxy.when().delay, proxy.when().delay_response):
        delay(0.02, times=1)
        started_at = time.monotonic()
        assert await request_status(client, "GET", PODS) == 201
        assert time.monotonic() - started_at >= 0.02


async def test_unreachable_server_resets_the_client() -> None:
    async with RawTestServer(StubServer().serve) as server:
        url = str(server.make_url("/"))
    async with FaultProxy(StaticServerConfig(url)) as proxy, make_client(proxy, "secret") as client:
        with pytest.raises(CONNECTION_ERRORS):
            await request_status(client, "GET", PODS)


async def test_each_watch_chunk_is_relayed_at_once(upstream: StubServer, client: aiohttp.ClientSession) -> None:
    async with client.get(WATCH) as response:
        chunks = await upstream.next_stream()
        for chunk in (b'{"n":1}\n', b'{"n"', b":2}\n"):
            chunks.put_nowait(chunk)
            assert await asyncio.wait_for(response.content.readany(), WAIT_TIMEOUT_SECONDS) == chunk
        chunks.put_nowait(b"")
        assert await read_line(response) == b""


async def test_watch_closed_by_the_client_is_closed_upstream(
    upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH):
        await upstream.next_stream()
    await asyncio.wait_for(upstream.stream_closed.wait(), WAIT_TIMEOUT_SECONDS)


async def test_running_watch_is_reset_at_once(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        await upstream.next_stream()
        rule = proxy.when(verb="watch").reset_watch(times=1)
        assert rule.fire_count == 1
        with pytest.raises(CONNECTION_ERRORS):
            await read_line(response)
    async with client.get(WATCH) as response:
        (await upstream.next_stream()).put_nowait(b"1\n")
        assert await read_line(response) == b"1\n"


async def test_running_watch_is_reset_after_more_events(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        chunks = await upstream.next_stream()
        chunks.put_nowait(b"1\n")
        assert await read_line(response) == b"1\n"
        proxy.when(verb="watch").reset_watch(after_events=2)
        chunks.put_nowait(b"2\n3\n4\n")
        assert await asyncio.wait_for(response.content.readexactly(4), WAIT_TIMEOUT_SECONDS) == b"2\n3\n"
        with pytest.raises(CONNECTION_ERRORS):
            await read_line(response)


async def test_stream_rule_applies_to_a_new_watch(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(verb="watch").end_watch(after_events=1)
    async with client.get(WATCH) as response:
        (await upstream.next_stream()).put_nowait(b"1\n2\n")
        assert await asyncio.wait_for(response.read(), WAIT_TIMEOUT_SECONDS) == b"1\n"


async def test_half_sent_event_is_completed_before_the_end(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        chunks = await upstream.next_stream()
        chunks.put_nowait(b'{"n"')
        assert await asyncio.wait_for(response.content.readany(), WAIT_TIMEOUT_SECONDS) == b'{"n"'
        proxy.when(verb="watch").end_watch()
        chunks.put_nowait(b":1}\n2\n")
        assert await asyncio.wait_for(response.read(), WAIT_TIMEOUT_SECONDS) == b":1}\n"


async def test_stalled_watch_relays_neither_events_nor_its_end(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        chunks = await upstream.next_stream()
        proxy.when(verb="watch").stall(after_events=1)
        chunks.put_nowait(b"1\n")
        assert await read_line(response) == b"1\n"
        chunks.put_nowait(b"2\n")
        chunks.put_nowait(b"")
        await assert_no_data(response)
    assert await request_status(client, "GET", PODS) == 201


async def test_expired_watch_gets_an_error_event_and_ends(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        await upstream.next_stream()
        proxy.when(verb="watch").expire_watch()
        event = await response.json(content_type=None)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert response.status == 200


async def test_followed_log_is_a_stream(proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession) -> None:
    proxy.when(subresource="log").end_watch(after_events=1)
    async with client.get(f"{PODS}/a/log?follow=true") as response:
        (await upstream.next_stream()).put_nowait(b"epoch 1\nepoch 2\n")
        assert await asyncio.wait_for(response.read(), WAIT_TIMEOUT_SECONDS) == b"epoch 1\n"


async def test_newest_matching_rule_applies_until_removed(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    older = proxy.when(resource="pods").respond_with(500)
    newer = proxy.when(verb="list").respond_with(503)
    with proxy.when(lambda info: info.query.get("limit") == "500").respond_with(410) as newest:
        assert await request_status(client, "GET", f"{PODS}?limit=500") == 410
    assert await request_status(client, "GET", f"{PODS}?limit=500") == 503
    newer.remove()
    assert await request_status(client, "GET", f"{PODS}?limit=500") == 500
    older.remove()
    assert await request_status(client, "GET", f"{PODS}?limit=500") == 201
    assert (older.fire_count, newer.fire_count, newest.fire_count) == (1, 1, 1)


async def test_rule_for_a_token_does_not_match_others(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    proxy.when(token="secret").respond_with(403)
    async with make_client(proxy, "other") as other:
        assert [await request_status(one, "GET", PODS) for one in (client, other)] == [403, 201]
    assert [one.user for one in proxy.requests] == [token_digest("secret"), token_digest("other")]
    assert len(proxy.find_requests(token="other", verb="list")) == 1


async def test_wait_fired_returns_after_that_many_requests(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    rule = proxy.when().respond_with(500)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rule.wait_fired(times=2))
        for _ in range(2):
            tasks.create_task(request_status(client, "GET", PODS))


async def test_reset_connections_disconnects_until_heal(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    assert await request_status(client, "GET", PODS) == 201
    async with client.get(WATCH) as response:
        await upstream.next_stream()
        proxy.reset_connections()
        with pytest.raises(CONNECTION_ERRORS):
            await read_line(response)
    for _ in range(3):
        with pytest.raises(CONNECTION_ERRORS):
            await request_status(client, "POST", PODS)
    proxy.heal()
    assert await request_status(client, "POST", PODS) == 201
    assert [method for method, _ in upstream.requests] == ["GET", "GET", "POST"]
    # The first attempt may have used an open connection.
    assert len(proxy.find_requests(verb="connect")) >= 2


async def test_black_hole_accepts_connections_and_sends_nothing(
    proxy: FaultProxy, upstream: StubServer, client: aiohttp.ClientSession
) -> None:
    async with make_client(proxy, "other") as other, client.get(WATCH) as response:
        chunks = await upstream.next_stream()
        assert await request_status(client, "GET", PODS) == 201  # leaves an idle connection
        proxy.black_hole()
        chunks.put_nowait(b"1\n")
        await assert_no_data(response)
        for one in (client, other):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(request_status(one, "POST", PODS), NO_DATA_SECONDS)
        proxy.heal()
        assert await request_status(other, "POST", PODS) == 201
        await assert_no_data(response)
    assert [method for method, _ in upstream.requests] == ["GET", "GET", "POST"]


async def test_every_request_is_recorded(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    proxy.when(verb="update").respond_with(409)
    await request_status(client, "PUT", f"{JOBS}/mnist/status")
    await request_status(client, "POST", JOBS, {"metadata": {"name": "wide"}})
    recorded = [(one.verb, one.resource, one.subresource, one.namespace, one.name, one.code) for one in proxy.requests]
    assert recorded == [
        ("update", "paddlejobs", "status", "team", "mnist", 409),
        ("create", "paddlejobs", "", "team", "wide", 201),
    ]
    assert proxy.peak_per_second() == peak_per_second(proxy.requests) > 0
    assert proxy.peak_per_second(proxy.find_requests(verb="create")) == 1
    proxy.clear_requests()
    assert (proxy.requests, proxy.peak_per_second()) == ([], 0)
