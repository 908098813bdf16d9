"""Does the fault proxy do exactly the fault that it is told, and nothing else?"""

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
from tests.support.plain_http import (
    CUT,
    NEVER_SECONDS,
    SOON_SECONDS,
    PretendedServer,
    a_client,
    assert_silent,
    code_of,
    line_of,
)

PODS = "/api/v1/namespaces/team/pods"
JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/team/paddlejobs"
WATCH = f"{PODS}?watch=true"


@pytest.fixture
async def upstream() -> PretendedServer:
    return PretendedServer()


@pytest.fixture
async def proxy(upstream: PretendedServer) -> AsyncIterator[FaultProxy]:
    async with (
        RawTestServer(upstream.serve) as server,
        FaultProxy(StaticServerConfig(str(server.make_url("/")))) as proxy,
    ):
        yield proxy


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[aiohttp.ClientSession]:
    async with a_client(proxy, "secret") as session:
        yield session


async def status_of(client: aiohttp.ClientSession, method: str, path: str) -> tuple[Any, Any]:
    """The Status and the Retry-After header."""
    async with client.request(method, path) as response:
        return await response.json(), response.headers.get("Retry-After")


@asynccontextmanager
async def unanswered(client: aiohttp.ClientSession, method: str, path: str) -> AsyncIterator[None]:
    """Send a request; it must still be without an answer some time after the block."""
    request = asyncio.ensure_future(code_of(client, method, path))
    yield
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(request, NEVER_SECONDS)


async def test_without_a_rule_everything_passes_unchanged(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    body = b"x" * 3_000_000
    path = f"{PODS}/a%2Fb%7E?fieldManager=me%20too"
    async with client.patch(URL(proxy.url + path, encoded=True), data=BytesIO(body)) as response:
        assert (response.status, response.headers["Audit-Id"], await response.json()) == (201, "7", {"method": "PATCH"})
    assert upstream.asked == [("PATCH", path)]
    assert (upstream.authorizations, upstream.bodies) == (["Bearer secret"], [body])


async def test_a_packed_answer_stays_packed_and_readable(client: aiohttp.ClientSession) -> None:
    async with client.get(PODS, headers={"Accept-Encoding": "gzip"}) as response:
        assert (response.headers["Content-Encoding"], await response.read()) == ("gzip", b"packed")


async def test_injected_response_does_not_reach_the_server(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    rule = proxy.when(verb="create", resource="pods").respond_with(409, times=2)
    codes = [await code_of(client, method, PODS) for method in ("GET", "POST", "POST", "POST")]
    assert (codes, rule.fire_count) == ([201, 409, 409, 201], 2)
    assert [method for method, _ in upstream.asked] == ["GET", "POST"]


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
async def test_an_answer_is_a_status_with_the_reason_of_its_code(
    proxy: FaultProxy, client: aiohttp.ClientSession, method: str, code: int, reason: str
) -> None:
    proxy.when().respond_with(code)
    status, retry_after = await status_of(client, method, f"{PODS}/a")
    assert (status["kind"], status["code"], status["reason"], retry_after) == ("Status", code, reason, None)
    assert status["details"] == {"name": "a", "kind": "pods"}


async def test_an_answer_can_say_when_to_come_again_and_why(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    proxy.when().respond_with(429, retry_after=3, reason="Busy", message="not now")
    status, retry_after = await status_of(client, "GET", PODS)
    assert (retry_after, status["details"]["retryAfterSeconds"]) == ("3", 3)
    assert (status["reason"], status["message"]) == ("Busy", "not now")


async def test_a_cut_before_keeps_the_request_from_the_server(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(verb="create").reset_before_server(times=1)
    with pytest.raises(CUT):
        await code_of(client, "POST", PODS)
    assert upstream.asked == []
    assert await code_of(client, "POST", PODS) == 201


async def test_a_cut_after_comes_when_the_server_has_acted(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(name="mnist-*").reset_after_server(times=1)
    with pytest.raises(CUT):
        await code_of(client, "POST", PODS, {"metadata": {"name": "mnist-worker-0"}})
    assert upstream.asked == [("POST", PODS)]
    assert [(one.name, one.code) for one in proxy.requests] == [("mnist-worker-0", None)]


async def test_a_request_that_hangs_is_acted_upon_and_never_answered(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(verb="delete").hang()
    async with unanswered(client, "DELETE", f"{PODS}/a"):
        await asyncio.wait_for(upstream.was_asked.wait(), SOON_SECONDS)


async def test_a_delay_holds_the_request_back(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    rule = proxy.when().delay(3600, times=1)
    async with unanswered(client, "GET", PODS):
        await asyncio.wait_for(rule.wait_fired(), SOON_SECONDS)
    assert not upstream.was_asked.is_set()


async def test_held_request_is_forwarded_on_release(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    go = asyncio.Event()
    rule = proxy.when().hold(go, times=1)
    request = asyncio.ensure_future(code_of(client, "GET", PODS))
    await asyncio.wait_for(rule.wait_fired(), SOON_SECONDS)
    assert not upstream.was_asked.is_set()
    go.set()
    assert await asyncio.wait_for(request, SOON_SECONDS) == 201


async def test_a_delay_of_the_answer_comes_when_the_server_has_acted(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    proxy.when().delay_response(3600, times=1)
    async with unanswered(client, "GET", PODS):
        await asyncio.wait_for(upstream.was_asked.wait(), SOON_SECONDS)


async def test_a_delay_ends(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    for late in (proxy.when().delay, proxy.when().delay_response):
        late(0.02, times=1)
        started_at = time.monotonic()
        assert await code_of(client, "GET", PODS) == 201
        assert time.monotonic() - started_at >= 0.02


async def test_a_server_that_is_gone_is_a_cut() -> None:
    async with RawTestServer(PretendedServer().serve) as server:
        url = str(server.make_url("/"))
    async with FaultProxy(StaticServerConfig(url)) as proxy, a_client(proxy, "secret") as client:
        with pytest.raises(CUT):
            await code_of(client, "GET", PODS)


async def test_a_watch_passes_each_piece_at_once(upstream: PretendedServer, client: aiohttp.ClientSession) -> None:
    async with client.get(WATCH) as response:
        pieces = await upstream.stream()
        for piece in (b'{"n":1}\n', b'{"n"', b":2}\n"):
            pieces.put_nowait(piece)
            assert await asyncio.wait_for(response.content.readany(), SOON_SECONDS) == piece
        pieces.put_nowait(b"")
        assert await line_of(response) == b""


async def test_a_watch_that_its_client_leaves_is_left_upstream_too(
    upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH):
        await upstream.stream()
    await asyncio.wait_for(upstream.stream_was_left.wait(), SOON_SECONDS)


async def test_a_running_watch_is_cut_at_once(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        await upstream.stream()
        rule = proxy.when(verb="watch").reset_watch(times=1)
        assert rule.fire_count == 1
        with pytest.raises(CUT):
            await line_of(response)
    async with client.get(WATCH) as response:
        (await upstream.stream()).put_nowait(b"1\n")
        assert await line_of(response) == b"1\n"


async def test_a_running_watch_is_cut_after_some_more_events(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        pieces = await upstream.stream()
        pieces.put_nowait(b"1\n")
        assert await line_of(response) == b"1\n"
        proxy.when(verb="watch").reset_watch(after_events=2)
        pieces.put_nowait(b"2\n3\n4\n")
        assert await asyncio.wait_for(response.content.readexactly(4), SOON_SECONDS) == b"2\n3\n"
        with pytest.raises(CUT):
            await line_of(response)


async def test_a_new_watch_meets_a_rule_that_waits_for_it(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(verb="watch").end_watch(after_events=1)
    async with client.get(WATCH) as response:
        (await upstream.stream()).put_nowait(b"1\n2\n")
        assert await asyncio.wait_for(response.read(), SOON_SECONDS) == b"1\n"


async def test_an_event_half_sent_is_completed_before_the_end(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        pieces = await upstream.stream()
        pieces.put_nowait(b'{"n"')
        assert await asyncio.wait_for(response.content.readany(), SOON_SECONDS) == b'{"n"'
        proxy.when(verb="watch").end_watch()
        pieces.put_nowait(b":1}\n2\n")
        assert await asyncio.wait_for(response.read(), SOON_SECONDS) == b":1}\n"


async def test_a_stalled_watch_tells_neither_events_nor_its_end(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        pieces = await upstream.stream()
        proxy.when(verb="watch").stall(after_events=1)
        pieces.put_nowait(b"1\n")
        assert await line_of(response) == b"1\n"
        pieces.put_nowait(b"2\n")
        pieces.put_nowait(b"")
        await assert_silent(response)
    assert await code_of(client, "GET", PODS) == 201


async def test_an_expired_watch_says_so_in_the_stream_and_ends(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(WATCH) as response:
        await upstream.stream()
        proxy.when(verb="watch").expire_watch()
        event = await response.json(content_type=None)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert response.status == 200


async def test_a_followed_log_is_a_stream_as_well(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    proxy.when(subresource="log").end_watch(after_events=1)
    async with client.get(f"{PODS}/a/log?follow=true") as response:
        (await upstream.stream()).put_nowait(b"epoch 1\nepoch 2\n")
        assert await asyncio.wait_for(response.read(), SOON_SECONDS) == b"epoch 1\n"


async def test_of_several_rules_the_newest_decides_until_it_is_removed(
    proxy: FaultProxy, client: aiohttp.ClientSession
) -> None:
    older = proxy.when(resource="pods").respond_with(500)
    newer = proxy.when(verb="list").respond_with(503)
    with proxy.when(lambda asked: asked.query.get("limit") == "500").respond_with(410) as newest:
        assert await code_of(client, "GET", f"{PODS}?limit=500") == 410
    assert await code_of(client, "GET", f"{PODS}?limit=500") == 503
    newer.remove()
    assert await code_of(client, "GET", f"{PODS}?limit=500") == 500
    older.remove()
    assert await code_of(client, "GET", f"{PODS}?limit=500") == 201
    assert (older.fire_count, newer.fire_count, newest.fire_count) == (1, 1, 1)


async def test_a_rule_for_one_token_spares_the_others(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    proxy.when(token="secret").respond_with(403)
    async with a_client(proxy, "other") as other:
        assert [await code_of(one, "GET", PODS) for one in (client, other)] == [403, 201]
    assert [one.user for one in proxy.requests] == [token_digest("secret"), token_digest("other")]
    assert len(proxy.find_requests(token="other", verb="list")) == 1


async def test_a_test_can_wait_for_a_rule_to_fire(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    rule = proxy.when().respond_with(500)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rule.wait_fired(times=2))
        for _ in range(2):
            tasks.create_task(code_of(client, "GET", PODS))


async def test_denied_client_is_disconnected(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    assert await code_of(client, "GET", PODS) == 201
    async with client.get(WATCH) as response:
        await upstream.stream()
        proxy.reset_connections()
        with pytest.raises(CUT):
            await line_of(response)
    for _ in range(3):
        with pytest.raises(CUT):
            await code_of(client, "POST", PODS)
    proxy.heal()
    assert await code_of(client, "POST", PODS) == 201
    assert [method for method, _ in upstream.asked] == ["GET", "GET", "POST"]
    assert (
        len(proxy.find_requests(verb="connect")) >= 2
    )  # the first try may have found an open connection that was reset


async def test_a_black_hole_accepts_everything_and_answers_nothing(
    proxy: FaultProxy, upstream: PretendedServer, client: aiohttp.ClientSession
) -> None:
    async with a_client(proxy, "other") as other, client.get(WATCH) as response:
        pieces = await upstream.stream()
        assert await code_of(client, "GET", PODS) == 201  # leaves an idle connection
        proxy.black_hole()
        pieces.put_nowait(b"1\n")
        await assert_silent(response)
        for one in (client, other):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(code_of(one, "POST", PODS), NEVER_SECONDS)
        proxy.heal()
        assert await code_of(other, "POST", PODS) == 201
        await assert_silent(response)
    assert [method for method, _ in upstream.asked] == ["GET", "GET", "POST"]


async def test_every_request_is_on_record(proxy: FaultProxy, client: aiohttp.ClientSession) -> None:
    proxy.when(verb="update").respond_with(409)
    await code_of(client, "PUT", f"{JOBS}/mnist/status")
    await code_of(client, "POST", JOBS, {"metadata": {"name": "wide"}})
    told = [(one.verb, one.resource, one.subresource, one.namespace, one.name, one.code) for one in proxy.requests]
    assert told == [
        ("update", "paddlejobs", "status", "team", "mnist", 409),
        ("create", "paddlejobs", "", "team", "wide", 201),
    ]
    assert proxy.peak_per_second() == peak_per_second(proxy.requests) > 0
    assert proxy.peak_per_second(proxy.find_requests(verb="create")) == 1
    proxy.clear_requests()
    assert (proxy.requests, proxy.peak_per_second()) == ([], 0)
