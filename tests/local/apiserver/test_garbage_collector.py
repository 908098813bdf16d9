"""Garbage collection after a restart or by the clock; tests/conformance has the other tests."""

import asyncio
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import CONFIG_MAPS, EVENTS, Key
from paddle_operator.local.apiserver.garbage_collector import EVENT_TTL_SECONDS, GarbageCollector
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import BUILTIN_KINDS
from testbed.clock import FakeClock
from tests.local.apiserver.helpers import NAMESPACES, TOKEN, client_of, make_config_map, wait_until


def make_owner_references(name: str, uid: str, *, block: bool = False) -> list[dict[str, object]]:
    reference: dict[str, object] = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
    return [reference | ({"blockOwnerDeletion": True} if block else {})]


async def test_interrupted_deletions_continue_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GarbageCollector, "_process", lambda *_: None)
        async with ApiServer(tmp_path, BUILTIN_KINDS, token=TOKEN) as server, client_of(server) as client:
            for policy in ("Background", "Foreground", "Orphan"):
                owner = await client.create(CONFIG_MAPS, make_config_map(f"owner-{policy.lower()}"))
                references = make_owner_references(owner.key.name, owner.uid, block=True)
                await client.create(CONFIG_MAPS, make_config_map(policy.lower(), ownerReferences=references))
                await client.delete(CONFIG_MAPS, owner.key, propagation=policy)
            await client.create(NAMESPACES, {"metadata": {"name": "full"}})
            await client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "full"}})
            await client.delete(NAMESPACES, Key("", "full"))
    async with ApiServer(tmp_path, BUILTIN_KINDS, token=TOKEN) as server, client_of(server):
        maps = server.api.store.tables["configmaps"]
        await wait_until(lambda: [record.key.name for record in maps] == ["orphan"])
        await wait_until(lambda: Key("", "full") not in server.api.store.tables["namespaces"].records)


async def test_event_expires_an_hour_after_its_last_write(server: ApiServer, client: Client, clock: FakeClock) -> None:
    event = {
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Started",
        "action": "Start",
        "type": "Normal",
        "reportingController": "a.b/c",
        "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    for name in ("old", "renewed"):
        await client.create(EVENTS, event | {"metadata": {"name": name, "namespace": "default"}})
    await clock.advance(EVENT_TTL_SECONDS / 2)
    await client.merge(EVENTS, Key("default", "renewed"), {"note": "again"})
    await clock.advance(EVENT_TTL_SECONDS / 2 + 120)
    with pytest.raises(NotFound):
        await client.get(EVENTS, Key("default", "old"))
    assert (await client.get(EVENTS, Key("default", "renewed"))).key.name == "renewed"
    await clock.advance(EVENT_TTL_SECONDS / 2)
    assert await client.list_all(EVENTS) == []


async def test_dependent_of_an_unknown_kind_is_not_deleted(server: ApiServer, client: Client) -> None:
    unknown = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "u"}
    await client.create(CONFIG_MAPS, make_config_map("unknown-owner", ownerReferences=[unknown]))
    await client.create(
        CONFIG_MAPS, make_config_map("missing-owner", ownerReferences=make_owner_references("missing", "u"))
    )
    maps = server.api.store.tables["configmaps"]
    await wait_until(lambda: [record.key.name for record in maps] == ["unknown-owner"])


async def test_object_that_owns_itself_can_be_deleted(server: ApiServer, client: Client) -> None:
    config_map = await client.create(CONFIG_MAPS, make_config_map("a"))
    references = make_owner_references("a", config_map.uid, block=True)
    await client.merge(CONFIG_MAPS, config_map.key, {"metadata": {"ownerReferences": references}})
    await client.delete(CONFIG_MAPS, config_map.key, propagation="Foreground")
    maps = server.api.store.tables["configmaps"]
    await wait_until(lambda: Key("default", "a") not in maps.records)


async def test_waiting_for_a_dependent_does_no_work(server: ApiServer, client: Client) -> None:
    owner = await client.create(CONFIG_MAPS, make_config_map("owner"))
    references = make_owner_references("owner", owner.uid, block=True)
    blocked = make_config_map("blocked", ownerReferences=references, finalizers=["a.b/c"])
    await client.create(CONFIG_MAPS, blocked)
    await client.delete(CONFIG_MAPS, owner.key, propagation="Foreground")
    table = server.api.store.tables["configmaps"]
    await wait_until(lambda: b"deletionTimestamp" in table.records[Key("default", "blocked")].body)
    version = server.api.store.version
    garbage_collector = server.api.garbage_collector
    await wait_until(lambda: not garbage_collector._pending and not garbage_collector._wakeup.is_set())
    await asyncio.sleep(0)
    assert not garbage_collector._pending
    assert server.api.store.version == version
    await client.merge(CONFIG_MAPS, Key("default", "blocked"), {"metadata": {"finalizers": None}})
    await wait_until(lambda: len(table) == 0)


async def test_namespace_is_deleted_with_its_content(server: ApiServer, client: Client) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "full"}})
    for number in range(200):
        await client.create(CONFIG_MAPS, {"metadata": {"name": f"m{number}", "namespace": "full"}})
    await client.delete(NAMESPACES, Key("", "full"))
    await wait_until(lambda: Key("", "full") not in server.api.store.tables["namespaces"].records)
    assert len(server.api.store.tables["configmaps"]) == 0
