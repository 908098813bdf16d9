"""What the garbage collector does is judged in tests/conformance; here is what needs a restart or a clock."""

import asyncio
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import CONFIG_MAPS, EVENTS, Key
from paddle_operator.local.apiserver.garbage_collector import EVENTS_LIVE_SECONDS, GarbageCollector
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import KINDS
from testbed.clock import FakeClock
from tests.local.apiserver.running import NAMESPACES, TOKEN, a_config_map, client_of, until


def owned_by(name: str, uid: str, *, block: bool = False) -> list[dict[str, object]]:
    reference: dict[str, object] = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
    return [reference | ({"blockOwnerDeletion": True} if block else {})]


async def test_what_a_killed_server_left_half_done_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(GarbageCollector, "_examine", lambda *_: None)
        async with ApiServer(tmp_path, KINDS, token=TOKEN) as server, client_of(server) as client:
            for policy in ("Background", "Foreground", "Orphan"):
                owner = await client.create(CONFIG_MAPS, a_config_map(f"owner-{policy.lower()}"))
                references = owned_by(owner.key.name, owner.uid, block=True)
                await client.create(CONFIG_MAPS, a_config_map(policy.lower(), ownerReferences=references))
                await client.delete(CONFIG_MAPS, owner.key, propagation=policy)
            await client.create(NAMESPACES, {"metadata": {"name": "full"}})
            await client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "full"}})
            await client.delete(NAMESPACES, Key("", "full"))
    async with ApiServer(tmp_path, KINDS, token=TOKEN) as server, client_of(server):
        maps = server.api.store.tables["configmaps"]
        await until(lambda: [record.key.name for record in maps] == ["orphan"])
        await until(lambda: Key("", "full") not in server.api.store.tables["namespaces"].records)


async def test_an_event_is_kept_for_an_hour_after_it_was_last_written(
    server: ApiServer, client: Client, clock: FakeClock
) -> None:
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
    await clock.advance(EVENTS_LIVE_SECONDS / 2)
    await client.merge(EVENTS, Key("default", "renewed"), {"note": "again"})
    await clock.advance(EVENTS_LIVE_SECONDS / 2 + 120)
    with pytest.raises(NotFound):
        await client.get(EVENTS, Key("default", "old"))
    assert (await client.get(EVENTS, Key("default", "renewed"))).key.name == "renewed"
    await clock.advance(EVENTS_LIVE_SECONDS / 2)
    assert await client.list_all(EVENTS) == []


async def test_an_object_whose_owner_is_of_a_kind_that_nobody_serves_is_left_alone(
    server: ApiServer, client: Client
) -> None:
    unknown = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "u"}
    await client.create(CONFIG_MAPS, a_config_map("kept", ownerReferences=[unknown]))
    await client.create(CONFIG_MAPS, a_config_map("gone", ownerReferences=owned_by("nobody", "u")))
    maps = server.api.store.tables["configmaps"]
    await until(lambda: [record.key.name for record in maps] == ["kept"])


async def test_an_object_that_owns_itself_harms_nobody(server: ApiServer, client: Client) -> None:
    made = await client.create(CONFIG_MAPS, a_config_map("a"))
    references = owned_by("a", made.uid, block=True)
    await client.merge(CONFIG_MAPS, made.key, {"metadata": {"ownerReferences": references}})
    await client.delete(CONFIG_MAPS, made.key, propagation="Foreground")
    maps = server.api.store.tables["configmaps"]
    await until(lambda: Key("default", "a") not in maps.records)


async def test_waiting_for_a_dependent_takes_no_work(server: ApiServer, client: Client) -> None:
    owner = await client.create(CONFIG_MAPS, a_config_map("owner"))
    references = owned_by("owner", owner.uid, block=True)
    held = a_config_map("held", ownerReferences=references, finalizers=["a.b/c"])
    await client.create(CONFIG_MAPS, held)
    await client.delete(CONFIG_MAPS, owner.key, propagation="Foreground")
    table = server.api.store.tables["configmaps"]
    await until(lambda: b"deletionTimestamp" in table.records[Key("default", "held")].body)
    version = server.api.store.version
    garbage = server.api.garbage
    await until(lambda: not garbage._found and not garbage._awake.is_set())
    await asyncio.sleep(0)
    assert not garbage._found
    assert server.api.store.version == version
    await client.merge(CONFIG_MAPS, Key("default", "held"), {"metadata": {"finalizers": None}})
    await until(lambda: len(table) == 0)


async def test_a_namespace_full_of_objects_goes_with_all_of_them(server: ApiServer, client: Client) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "full"}})
    for number in range(200):
        await client.create(CONFIG_MAPS, {"metadata": {"name": f"m{number}", "namespace": "full"}})
    await client.delete(NAMESPACES, Key("", "full"))
    await until(lambda: Key("", "full") not in server.api.store.tables["namespaces"].records)
    assert len(server.api.store.tables["configmaps"]) == 0
