"""The cache equals the server, whatever happens in between: on a real API server, through a proxy that misbehaves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.decoding import Page
from paddle_operator.kube.errors import ReadTimeout
from paddle_operator.kube.informer import ABSENT_RETRY_SECONDS, Informer
from paddle_operator.kube.manager import Manager
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, Change, Key, Object, Pod, Resource, View
from paddle_operator.kube.store import Stored
from paddle_operator.kube.work_queue import Priority
from testbed.clock import AcceleratedClock, FakeClock
from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.kube.objects import POD_TEMPLATES, make_config_map, make_pod, make_pod_template

Told = tuple[str, str, Priority]

WAIT_TIMEOUT_SECONDS = 100.0  # a CustomResourceDefinition takes 10 s to go, on a machine with nothing else to do

DEFINITIONS = Resource("apis/apiextensions.k8s.io/v1", "customresourcedefinitions", Object, namespaced=False)
GADGETS = Resource("apis/informer.example.com/v1", "gadgets", Object)
GADGETS_DEFINED = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.informer.example.com"},
    "spec": {
        "group": "informer.example.com",
        "scope": "Namespaced",
        "names": {"kind": "Gadget", "plural": "gadgets"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


class Ear:
    """Notes what an informer tells, and waits until something is true."""

    def __init__(self, informer: Informer[Any, Any]) -> None:
        self.told: list[Told] = []
        self.presence: list[tuple[str, int]] = []  # and how many objects the store had then
        self._heard = asyncio.Event()
        self._informer = informer
        informer.store.listen(self._hear)
        informer.on_presence(self._hear_of_presence)

    def _hear(self, old: Stored | None, new: Stored | None, lane: Priority) -> None:
        deed = "added" if old is None else "deleted" if new is None else "changed"
        self.told.append((deed, (new or old).key.name, lane))  # type: ignore[union-attr]  # one of the two is there
        self._heard.set()

    def _hear_of_presence(self) -> None:
        self.presence.append(("absent" if self._informer.absent else "there", len(self._informer.store)))
        self._heard.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while not condition():
                self._heard.clear()
                await self._heard.wait()

    async def until_versions(self, expected: dict[str, str]) -> None:
        await self.until(lambda: versions(self._informer) == expected)


def versions(informer: Informer[Any, Any]) -> dict[str, str]:
    return {each.key.name: str(each.version) for each in informer.store}


async def on_server(client: Client, kind: Resource[Object], namespace: str) -> dict[str, str]:
    return {
        each.key.name: each.metadata.resource_version
        for each in await client.list_all(kind, Scope(namespace))
        if each.key.name != "kube-root-ca.crt"
    }


def informer_of(
    client: Client, namespace: str, kind: Resource[Object] = CONFIG_MAPS, **options: Any
) -> Informer[Object, Object]:
    return Informer(client, kind, Scope(namespace, fields="metadata.name!=kube-root-ca.crt"), **options)


class NotingClock(AcceleratedClock):
    """Real time in a hurry, with a note of each pause."""

    def __init__(self) -> None:
        super().__init__(speed=100)
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(seconds)


@asynccontextmanager
async def running(informer: Informer[Any, Any]) -> AsyncIterator[Ear]:
    ear = Ear(informer)
    task = asyncio.ensure_future(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), WAIT_TIMEOUT_SECONDS)
        yield ear
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_what_exists_is_listed_and_what_happens_is_followed(client: Client, namespace: str) -> None:
    for number in range(5):
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, f"old{number}")))
    informer = informer_of(client, namespace, page_size=2)
    async with running(informer) as ear:
        assert ear.told == [("added", f"old{number}", Priority.LOW) for number in range(5)]
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "new")))
        await client.delete(CONFIG_MAPS, Key(namespace, "old0"))
        await client.merge(CONFIG_MAPS, Key(namespace, "new"), {"data": {"a": "b"}})
        await ear.until_versions(await on_server(client, CONFIG_MAPS, namespace))
        live = [("added", "new", Priority.LIVE), ("deleted", "old0", Priority.LIVE), ("changed", "new", Priority.LIVE)]
        assert ear.told[5:] == live


async def test_after_a_cut_it_goes_on_without_listing_again(
    client: Client, proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    informer = informer_of(proxied, namespace)
    async with running(informer) as ear:
        proxy.when(verb="watch").reset_watch(times=1)
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "a")))
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "b")))
        await ear.until_versions(await on_server(client, CONFIG_MAPS, namespace))
    assert len(proxy.find_requests(verb="list")) == 1


async def test_a_watch_that_is_stalled_half_open_is_noticed(
    client: Client, proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    informer = informer_of(proxied, namespace, idle_seconds=0.5)
    async with running(informer) as ear:
        proxy.when(verb="watch").stall(times=1)
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "a")))
        await ear.until_versions(await on_server(client, CONFIG_MAPS, namespace))
    assert len(proxy.find_requests(verb="list")) == 1


class TerseClient:
    """Lists nothing, and accepts so many watches without a word before it says nothing at all."""

    def __init__(self, watches: int) -> None:
        self.watches = watches
        self.informer: Informer[Object, Object] = Informer(cast("Client", self), CONFIG_MAPS)
        self.problems: list[str | None] = []  # of the informer, at each watch

    async def list_pages(self, *_: object) -> AsyncIterator[Page[Object]]:
        yield Page("7", [])

    async def watch(self, *_: object, **__: object) -> AsyncIterator[list[Change[Object]]]:
        self.problems.append(self.informer.problem)
        if len(self.problems) <= self.watches:
            yield []
        raise ReadTimeout("read timeout", sent=True)


async def test_idle_watch_is_restarted_without_reporting_an_outage() -> None:
    client, clock = TerseClient(watches=5), FakeClock()
    client.informer._clock = clock
    task = asyncio.ensure_future(client.informer.run())
    while len(client.problems) < 7:
        await clock.advance(1)
    assert client.problems[:7] == [None] * 6 + ["read timeout"]
    task.cancel()
    await asyncio.wait((task,))


async def test_relist_after_410_reports_only_differences(
    control_plane: ControlPlane, client: Client, proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    for name in ("same", "changed", "gone"):
        await client.create(POD_TEMPLATES, make_pod_template(Key(namespace, name)))
    informer = informer_of(proxied, namespace, POD_TEMPLATES)
    async with running(informer) as ear:
        ear.told.clear()
        proxy.reset_connections()
        await client.merge(POD_TEMPLATES, Key(namespace, "changed"), {"metadata": {"labels": {"a": "b"}}})
        await client.delete(POD_TEMPLATES, Key(namespace, "gone"))
        await client.create(POD_TEMPLATES, make_pod_template(Key(namespace, "new")))
        await control_plane.compact()
        proxy.heal()
        await ear.until_versions(await on_server(client, POD_TEMPLATES, namespace))
    told = {(deed, name) for deed, name, lane in ear.told if lane is Priority.LOW}
    assert told == {("changed", "changed"), ("deleted", "gone"), ("added", "new")}
    assert len(ear.told) == 3


async def test_object_recreated_in_an_outage_is_two_changes(
    control_plane: ControlPlane, client: Client, proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    key = Key(namespace, "a")
    await client.create(POD_TEMPLATES, make_pod_template(key))
    informer = informer_of(proxied, namespace, POD_TEMPLATES)
    async with running(informer) as ear:
        ear.told.clear()
        proxy.reset_connections()
        await client.delete(POD_TEMPLATES, key)
        await client.create(POD_TEMPLATES, make_pod_template(key))
        await control_plane.compact()
        proxy.heal()
        await ear.until_versions(await on_server(client, POD_TEMPLATES, namespace))
    assert ear.told == [("deleted", "a", Priority.LOW), ("added", "a", Priority.LOW)]


async def test_compaction_between_pages_lists_in_one_piece(
    control_plane: ControlPlane, client: Client, proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    for number in range(3):
        await client.create(POD_TEMPLATES, make_pod_template(Key(namespace, f"a{number}")))
    compacted = asyncio.Event()
    second_page = proxy.when(verb="list", predicate=lambda asked: "continue" in asked.query).hold(compacted, times=1)
    informer = informer_of(proxied, namespace, POD_TEMPLATES, page_size=2)
    task = asyncio.ensure_future(informer.run())
    await second_page.wait_fired()
    for name in ("later", "latest"):
        await client.create(POD_TEMPLATES, make_pod_template(Key(namespace, name)))
    await control_plane.compact()
    compacted.set()
    await asyncio.wait_for(informer.wait_synced(), WAIT_TIMEOUT_SECONDS)
    assert versions(informer) == await on_server(client, POD_TEMPLATES, namespace)
    assert len(proxy.find_requests(verb="list")) == 3
    task.cancel()
    await asyncio.wait((task,))


async def test_our_own_writes_are_seen_before_the_watch_tells_them(
    proxy: FaultProxy, proxied: Client, client: Client, namespace: str
) -> None:
    informer = informer_of(proxied, namespace, idle_seconds=0.5)
    async with running(informer) as ear:
        stalled = proxy.when(verb="watch").stall()
        key = Key(namespace, "a")
        informer.observe_write(created := await client.create(CONFIG_MAPS, make_config_map(key)))
        assert informer.store.get(key) == created
        informer.observe_delete(key, created.uid, await client.delete(CONFIG_MAPS, key))
        assert informer.store.get(key) is None
        stalled.remove()
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "last")))
        await ear.until(lambda: informer.store.get(Key(namespace, "last")) is not None)
    told = [deed for deed, name, _ in ear.told if name == "a"]
    assert told == ["added", "deleted"]  # the echo adds nothing


async def test_undecodable_object_does_not_hide_others(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Strict(Object, frozen=True):
        data: dict[str, int] = msgspec.field(default_factory=dict)

    strict = Resource("api/v1", "configmaps", Strict)
    for name in ("good", "bad"):
        await client.create(
            CONFIG_MAPS, make_config_map(Key(namespace, name), **({"x": "text"} if name == "bad" else {}))
        )
    scope = Scope(namespace, fields="metadata.name!=kube-root-ca.crt")
    informer: Informer[Strict, Strict] = Informer(client, strict, scope)
    async with running(informer) as ear:
        assert [each.key.name for each in informer.store] == ["good"]
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "worse"), x="text"))
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "fine")))
        await client.delete(CONFIG_MAPS, Key(namespace, "worse"))
        await client.merge(CONFIG_MAPS, Key(namespace, "bad"), {"data": None})
        await ear.until(lambda: {each.key.name for each in informer.store} == {"good", "fine", "bad"})
    assert "object skipped: it cannot be decoded" in caplog.text


async def test_what_is_kept_is_what_the_projection_makes(client: Client, namespace: str) -> None:
    class Brief(View, frozen=True):
        key: Key
        uid: str
        version: int
        phase: str

    def brief(pod: Pod) -> Brief:
        return Brief(pod.key, pod.uid, pod.version, pod.status.phase)

    await client.create(PODS, make_pod(Key(namespace, "a")))
    informer = Informer(client, PODS, Scope(namespace), project=brief)
    by_phase = informer.store.index(lambda kept: (kept.phase,))
    async with running(informer):
        assert [kept.key.name for kept in by_phase["Pending"]] == ["a"]


async def test_the_api_server_itself_may_be_killed_and_started_again(breakable_control_plane: ControlPlane) -> None:
    namespace = await breakable_control_plane.create_namespace()
    async with Client(breakable_control_plane.connection()) as client:
        informer = informer_of(client, namespace)
        async with running(informer) as ear:
            await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "before")))
            await breakable_control_plane.api_server.kill()
            await breakable_control_plane.api_server.start()
            await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "after")))
            await ear.until_versions(await on_server(client, CONFIG_MAPS, namespace))


async def test_optional_kind_is_watched_once_installed(
    client: Client,
    proxy: FaultProxy,
    proxied: Client,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "a")))
    clock = NotingClock()
    missing = proxy.when(lambda asked: asked.verb in ("list", "watch")).respond_with(404)
    informer = informer_of(proxied, namespace, optional=True, clock=clock)
    assert not informer.absent  # nobody has answered yet
    async with running(informer) as ear:
        assert informer.absent
        assert list(Manager(informers=[informer], controllers=[]).readiness_problems()) == []
        await missing.wait_fired(4)
        assert clock.pauses[:3] == [ABSENT_RETRY_SECONDS] * 3
        missing.remove()
        await ear.until(lambda: not informer.absent)
        assert versions(informer) == await on_server(client, CONFIG_MAPS, namespace)
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "b")))
        await ear.until_versions(await on_server(client, CONFIG_MAPS, namespace))
    assert ear.presence == [("absent", 0), ("there", 1)]
    assert [record.message for record in caplog.records if record.name == "paddle_operator.kube.informer"] == [
        "kind not installed; retrying until it is",
        "kind installed",
    ]


async def test_an_optional_kind_that_goes_away_takes_its_objects_along(
    client: Client, proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, name)))
    informer = informer_of(proxied, namespace, optional=True, clock=NotingClock())
    async with running(informer) as ear:
        ear.told.clear()
        missing = proxy.when(lambda asked: asked.verb in ("list", "watch")).respond_with(404)
        proxy.when(verb="watch").end_watch(times=1)
        await ear.until(lambda: informer.absent)
        assert ear.told == [("deleted", "a", Priority.LOW), ("deleted", "b", Priority.LOW)]
        missing.remove()
        await ear.until(lambda: not informer.absent)
        assert versions(informer) == await on_server(client, CONFIG_MAPS, namespace)
    assert ear.presence == [("absent", 0), ("there", 2)]


async def test_a_kind_that_must_be_there_is_a_problem_while_it_is_not(
    proxy: FaultProxy, proxied: Client, namespace: str
) -> None:
    missing = proxy.when(verb="list").respond_with(404)
    informer = informer_of(proxied, namespace, clock=AcceleratedClock(speed=100))
    task = asyncio.ensure_future(informer.run())
    await missing.wait_fired(3)
    assert not informer.synced
    assert not informer.absent
    assert informer.problem
    missing.remove()
    await asyncio.wait_for(informer.wait_synced(), WAIT_TIMEOUT_SECONDS)
    task.cancel()
    await asyncio.wait((task,))


async def test_a_kind_that_is_defined_late_and_removed_again(client: Client, namespace: str) -> None:
    informer: Informer[Object, Object] = Informer(
        client, GADGETS, Scope(namespace), optional=True, clock=AcceleratedClock(speed=20)
    )
    gadget = {"apiVersion": "informer.example.com/v1", "kind": "Gadget"}
    async with running(informer) as ear:
        for name in ("first", "second"):
            assert informer.absent
            await client.create(DEFINITIONS, GADGETS_DEFINED)
            await ear.until(lambda: not informer.absent)
            await client.create(GADGETS, gadget | {"metadata": {"namespace": namespace, "name": name}})
            await ear.until(lambda: len(informer.store) == 1)
            await client.delete(DEFINITIONS, Key("", "gadgets.informer.example.com"))
            await ear.until(lambda: informer.absent)
    assert ear.presence == [("absent", 0)] + [("there", 0), ("absent", 0)] * 2
    assert [(deed, name) for deed, name, _ in ear.told] == [
        (deed, name) for name in ("first", "second") for deed in ("added", "deleted")
    ]
