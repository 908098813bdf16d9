"""A kind costs one module a layer: a toy kind runs in the local cluster, and is under 120 lines over all layers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddle_operator.controllers.kinds import CONTROLLED_KINDS
from paddle_operator.embedded.cluster import cluster
from paddle_operator.embedded.state import State
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.errors import Invalid, NotFound
from paddle_operator.kube.objects import CONFIG_MAPS, EVENTS, Key, Manifest, Object, Resource
from tests.embedded import toy_kind
from tests.embedded.toy_kind import GREETING, GREETINGS, TOY

MAX_LINES = 120
HELLO = Key("default", "hello")


class EventReason(Object, frozen=True):
    reason: str = ""


EVENT_REASONS = Resource(EVENTS.prefix, EVENTS.plural, EventReason)


def make_greeting(**spec: Any) -> Manifest:
    metadata = {"name": HELLO.name, "namespace": HELLO.namespace}
    return {"apiVersion": GREETING.api_version, "kind": GREETING.kind, "metadata": metadata, "spec": spec}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    state = State(tmp_path / "state", tmp_path / "cache")
    state.directory.mkdir()
    async with (
        cluster(state, [*CONTROLLED_KINDS, TOY]) as served,
        Client(StaticServerConfig(served.url, served.token)) as client,
    ):
        yield client


def test_toy_kind_is_under_120_lines() -> None:
    assert len(Path(toy_kind.__file__).read_text().splitlines()) < MAX_LINES


async def test_toy_kind_runs_in_the_local_cluster(client: Client) -> None:
    created = await client.create(GREETINGS, make_greeting(recipient="world", copies=2))
    async with asyncio.timeout(10):
        while (condition := await ready_condition(client)).get("status") != "True":
            await asyncio.sleep(0.02)
        assert (condition["reason"], condition["message"]) == ("Written", "ConfigMap hello exists")
        config_map = await client.get_manifest(CONFIG_MAPS, HELLO)
        assert config_map["data"] == {"text": "Hello world! Hello world! "}
        assert await event_reasons(client) == {"Writing", "Written"}
        await client.delete(GREETINGS, HELLO, uid=created.uid)
        while await exists(client, CONFIG_MAPS):
            await asyncio.sleep(0.02)
        assert not await exists(client, GREETINGS)


async def test_invalid_toy_spec_is_refused_with_its_fix(client: Client) -> None:
    with pytest.raises(Invalid, match=r"spec\.copies is 0, but must be from 1 to 9"):
        await client.create(GREETINGS, make_greeting(recipient="world", copies=0))


async def ready_condition(client: Client) -> Manifest:
    stored = await client.get(GREETINGS, HELLO)
    conditions = msgspec.json.decode(bytes(stored.status)).get("conditions", [{}])
    return dict(conditions[0])


async def event_reasons(client: Client) -> set[str]:
    events = [event async for page in client.list_pages(EVENT_REASONS, Scope("default")) for event in page.items]
    return {event.reason for event in events}


async def exists(client: Client, kind: Resource[Any]) -> bool:
    try:
        await client.get(kind, HELLO)
    except NotFound:
        return False
    return True
