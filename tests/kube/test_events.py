"""News reach people as Events of a real API server: each once, repeated ones as a count, none lost in an outage."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from paddle_operator.kube import events, metrics
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import ServerFault
from paddle_operator.kube.events import ObjectReference, Recorder
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, Key, Object, Resource, View
from testbed.clock import FakeClock
from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.kube.objects import make_config_map, make_pod


class Series(View, frozen=True):
    count: int
    last_observed_time: datetime


class Event(Object, frozen=True):
    event_time: datetime | None = None
    type: str = ""
    reason: str = ""
    note: str = ""
    action: str = ""
    reporting_controller: str = ""
    series: Series | None = None

    @property
    def count(self) -> int:
        return self.series.count if self.series else 1


EVENTS = Resource("apis/events.k8s.io/v1", "events", Event)
JOB = "mnist"


class Desk:
    """A recorder behind a proxy, and what the server has of its news; time passes when a test says so."""

    def __init__(self, control_plane: ControlPlane, proxy: FaultProxy, client: Client, namespace: str) -> None:
        self._sending: Recorder | None = None
        self.clock = FakeClock()
        self.proxy = proxy
        self.client = client
        self.namespace = namespace
        self.control_plane = control_plane
        self.about = self.object(JOB)

    def object(self, name: str, namespace: str | None = None) -> ObjectReference:
        return ObjectReference(
            "v1", "ConfigMap", Key(self.namespace if namespace is None else namespace, name), f"uid-{name}"
        )

    @asynccontextmanager
    async def recorder(self) -> AsyncIterator[Recorder]:
        """One that nobody runs yet."""
        connection = self.proxy.connection(self.control_plane.credentials.token_of("tester-11"))
        async with Client(connection, clock=self.clock) as client:
            yield Recorder(client, reporter="paddle-operator", clock=self.clock)

    @asynccontextmanager
    async def running_recorder(self) -> AsyncIterator[Recorder]:
        async with self.recorder() as recorder:
            running = asyncio.ensure_future(recorder.run())
            self._sending = recorder
            yield recorder
            self._sending = None
            assert not running.done()
            running.cancel()
            await asyncio.wait((running,))
        assert self.clock.pending == 0

    async def told(self) -> dict[str, int]:
        """How often each note was told, as the server has it."""
        everybodys = await self.client.list_all(EVENTS, Scope(self.namespace))
        stored = [event for event in everybodys if event.reporting_controller == "paddle-operator"]
        counts = {event.note: event.count for event in stored}
        assert len(counts) == len(stored)
        return counts

    async def until_told(self, expected: dict[str, int], *, second: float = 0) -> None:
        """Wait for the server; with a `second`, that much time passes between two looks."""
        async with asyncio.timeout(100):
            while (await self.told()) != expected:
                await self.clock.advance(second)
            while self._busy():  # the server knows before the recorder knows that it knows
                await asyncio.sleep(0.001)

    def _busy(self) -> bool:
        sending = self._sending
        return sending is not None and (sending._sending.locked() or sending._wake.is_set())

    @property
    def writes(self) -> list[str]:
        """The verbs of what reached the proxy so far."""
        return [seen.verb for seen in self.proxy.find_requests(resource="events")]


@pytest.fixture
def desk(control_plane: ControlPlane, proxy: FaultProxy, client: Client, namespace: str) -> Desk:
    return Desk(control_plane, proxy, client, namespace)


async def until(condition: Callable[[], bool], clock: FakeClock, second: float = 0) -> None:
    async with asyncio.timeout(100):
        while not condition():
            await clock.advance(second)
            await asyncio.sleep(0.001)  # what is waited for comes through a socket


# What people see


async def test_news_are_shown_by_kubectl(desk: Desk, control_plane: ControlPlane, namespace: str) -> None:
    pod = await desk.client.create(PODS, make_pod(Key(namespace, "mnist-worker-0")))
    async with desk.running_recorder() as recorder:
        about = ObjectReference("v1", "Pod", pod.key, pod.uid)
        recorder.normal(about, "Placed", "the pod has a node")
        recorder.warning(about, "Restarting", "worker-1 exited 137", action="Restart")
        await desk.until_told({"the pod has a node": 1, "worker-1 exited 137": 1})
    described = await control_plane.kubectl("describe", "pod", pod.key.name, f"--namespace={namespace}")
    assert ["Warning", "Restarting", "paddle-operator", "worker-1 exited 137"] in [
        [words[0], words[1], words[3], " ".join(words[4:])] if len(words := line.split()) > 4 else []
        for line in described.partition("Events:")[2].splitlines()
    ]
    listed = await control_plane.kubectl("get", "events", f"--namespace={namespace}")
    assert "pod/mnist-worker-0   the pod has a node" in listed


async def test_an_event_says_who_tells_what_and_when(desk: Desk) -> None:
    async with desk.running_recorder() as recorder:
        recorder.warning(desk.about, "Restarting", "worker-1 exited 137", action="Restart")
        await desk.until_told({"worker-1 exited 137": 1})
    [event] = await desk.client.list_all(EVENTS, Scope(desk.namespace))
    assert (event.type, event.reason, event.action) == ("Warning", "Restarting", "Restart")
    assert (event.reporting_controller, event.event_time) == ("paddle-operator", desk.clock.now())
    assert event.key.name.startswith("mnist.")


async def test_cluster_scoped_events_are_in_namespace_default(desk: Desk) -> None:
    node = f"node-of-{desk.namespace}"
    async with desk.recorder() as recorder:
        recorder.normal(ObjectReference("v1", "Node", Key("", node), "uid"), "Seen", "a node")
        await recorder.flush()
    stored = await desk.client.list_all(EVENTS, Scope("default", fields=f"regarding.name={node}"))
    assert [event.note for event in stored] == ["a node"]


async def test_a_long_note_is_cut_to_what_the_server_takes(desk: Desk) -> None:
    async with desk.recorder() as recorder:
        for letter in ("a", "…"):  # the server counts bytes, and the second letter has three
            recorder.normal(desk.about, "Long", letter * 2000)
        recorder.normal(desk.about, "Long", "b" * 1024)
        await recorder.flush()
    assert await desk.told() == {"a" * 1021 + "…": 1, "…" * 341: 1, "b" * 1024: 1}


async def test_an_object_with_a_long_name_can_be_told_about(desk: Desk) -> None:
    name = "a" * 199 + "-" + "b" * 50  # cut where the dash is, it would be no name any more
    await desk.client.create(CONFIG_MAPS, make_config_map(Key(desk.namespace, name)))
    async with desk.recorder() as recorder:
        recorder.normal(desk.object(name), "Named", "long")
        await recorder.flush()
    assert await desk.told() == {"long": 1}


# The same news again


async def test_repeated_event_is_a_series_written_every_30_s(desk: Desk, control_plane: ControlPlane) -> None:
    async with desk.running_recorder() as recorder:
        recorder.warning(desk.about, "Waiting", "no room")
        await desk.until_told({"no room": 1})
        for _ in range(4):
            recorder.warning(desk.about, "Waiting", "no room")
        await desk.clock.advance(29)
        recorder.normal(desk.about, "Other", "something else")  # would be sent after it, so that its arrival is a proof
        await desk.until_told({"no room": 1, "something else": 1})
        await desk.clock.advance(1)
        await desk.until_told({"no room": 5, "something else": 1})
        recorder.warning(desk.about, "Waiting", "no room")
        await desk.clock.advance(30)
        await desk.until_told({"no room": 6, "something else": 1})
    assert desk.writes == ["create", "create", "patch", "patch"]
    [event] = await desk.client.list_all(EVENTS, Scope(desk.namespace, fields="reason=Waiting"))
    assert event.series
    assert event.series.last_observed_time == desk.clock.now()
    listed = await control_plane.kubectl("events", f"--namespace={desk.namespace}")
    assert re.search(r"\(x6 over .*no room", listed), listed


async def test_news_that_come_again_after_a_long_time_are_counted_on(desk: Desk) -> None:
    async with desk.recorder() as recorder:
        recorder.normal(desk.about, "Placed", "a node was found")
        await recorder.flush()
        await desk.clock.advance(3600)
        recorder.normal(desk.about, "Placed", "a node was found")
        await recorder.flush()
    assert await desk.told() == {"a node was found": 2}


async def test_emit_returns_when_the_event_is_written_once(desk: Desk) -> None:
    async with desk.running_recorder() as recorder:
        await recorder.emit(desk.about, "Completed", "all workers have succeeded")
        assert await desk.told() == {"all workers have succeeded": 1}
        await recorder.flush()
    assert len(desk.proxy.find_requests(verb="create", resource="events")) == 1


async def test_news_that_could_not_be_told_at_once_are_told_later(desk: Desk) -> None:
    desk.proxy.reset_connections()
    async with desk.running_recorder() as recorder:
        await recorder.emit(desk.about, "Completed", "all workers have succeeded", warning=True)
        desk.proxy.heal()
        await desk.until_told({"all workers have succeeded": 1}, second=1)


async def test_restarted_process_does_not_repeat_events(desk: Desk) -> None:
    for _ in range(2):
        async with desk.recorder() as recorder:
            recorder.normal(desk.about, "Placed", "a node was found")
            await recorder.flush()
    assert await desk.told() == {"a node was found": 1}


async def test_a_flush_does_not_wait_until_a_count_is_due(desk: Desk) -> None:
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.about, "Waiting", "no room")
        await desk.until_told({"no room": 1})
        recorder.normal(desk.about, "Waiting", "no room")
        recorder.normal(desk.about, "Waiting", "no room")
        await recorder.flush()
        assert await desk.told() == {"no room": 3}


async def test_expired_event_is_recreated_with_its_count(desk: Desk) -> None:
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.about, "Waiting", "no room")
        await desk.until_told({"no room": 1})
        [event] = await desk.client.list_all(EVENTS, Scope(desk.namespace))
        await desk.client.delete(EVENTS, event.key)
        recorder.normal(desk.about, "Waiting", "no room")
        await desk.clock.advance(30)
        await desk.until_told({"no room": 2})
        recorder.normal(desk.about, "Waiting", "no room")
        await desk.clock.advance(30)
        await desk.until_told({"no room": 3})
    assert desk.writes == ["create", "patch", "create", "patch"]


# Trouble


async def test_an_outage_is_waited_for_and_nothing_is_lost(desk: Desk) -> None:
    desk.proxy.reset_connections()
    expected = {f"note {number}": 1 for number in range(20)} | {"again and again": 7}
    async with desk.running_recorder() as recorder:
        for number in range(20):
            recorder.normal(desk.about, "Told", f"note {number}")
        recorder.warning(desk.about, "Told", "again and again")
        await until(lambda: len(desk.proxy.requests) > 10, desk.clock, second=1)
        await desk.clock.advance(600)
        for _ in range(6):
            recorder.warning(desk.about, "Told", "again and again")
        desk.proxy.heal()
        await desk.until_told(expected, second=1)


async def test_a_server_that_is_not_there_is_asked_seldom(desk: Desk) -> None:
    desk.proxy.reset_connections()
    began_at = desk.clock.monotonic()
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.about, "Told", "late")
        await until(lambda: desk.clock.monotonic() - began_at > 100, desk.clock, second=0.5)
        assert 4 < len(desk.proxy.requests) < 100  # each try of the recorder is four of the client's
        desk.proxy.heal()
        await desk.until_told({"late": 1}, second=1)


@pytest.mark.parametrize("code", [401, 429, 500, 503])
async def test_a_refusal_that_passes_is_waited_for(desk: Desk, code: int) -> None:
    rule = desk.proxy.when(verb="create", resource="events").respond_with(code)
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.about, "Told", "late")
        await until(lambda: rule.fire_count >= 2, desk.clock, second=1)
        rule.remove()
        await desk.until_told({"late": 1}, second=1)


async def test_lost_response_duplicates_no_event(desk: Desk) -> None:
    rule = desk.proxy.when(verb="create", resource="events").reset_after_server(times=1)
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.about, "Told", "once")
        await rule.wait_fired()
        recorder.normal(desk.about, "Told", "once")
        await desk.until_told({"once": 2}, second=1)


async def test_permanently_refused_event_is_dropped(desk: Desk) -> None:
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.object("lost", namespace="no-such-namespace"), "Told", "to nobody")
        recorder.normal(desk.about, "Told", "to somebody")
        await desk.until_told({"to somebody": 1})
        recorder.normal(desk.object("lost", namespace="no-such-namespace"), "Told", "to nobody")
        recorder.normal(desk.about, "Told", "to somebody else")
        await desk.until_told({"to somebody": 1, "to somebody else": 1})
    assert [seen.code for seen in desk.proxy.find_requests(namespace="no-such-namespace")] == [404]


async def test_failing_event_does_not_block_the_others(desk: Desk) -> None:
    rule = desk.proxy.when(verb="create", resource="events", name="poison*").respond_with(500)
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.object("poison"), "Told", "bitter")
        for number in range(3):
            recorder.normal(desk.about, "Told", f"note {number}")
        await desk.until_told({f"note {number}": 1 for number in range(3)}, second=1)
        rule.remove()
        await desk.until_told({f"note {number}": 1 for number in range(3)} | {"bitter": 1}, second=1)


def dropped() -> float:
    return metrics.REGISTRY.get_sample_value("events_dropped_total") or 0.0


async def test_when_too_many_wait_the_oldest_go_and_are_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_PENDING", 3)
    before = dropped()
    async with desk.recorder() as recorder:
        for number in range(5):
            recorder.normal(desk.about, "Told", f"note {number}")
        await recorder.flush()
    assert await desk.told() == {"note 2": 1, "note 3": 1, "note 4": 1}
    assert dropped() - before == 2


async def test_dropping_while_sending_keeps_the_recorder(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_SERIES", 2)
    before = dropped()
    rule = desk.proxy.when(verb="create", resource="events").delay(0.05, times=1)
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.about, "Told", "note 0")
        recorder.normal(desk.about, "Told", "note 1")
        await rule.wait_fired()
        for number in (2, 3):
            recorder.normal(desk.about, "Told", f"note {number}")
        await desk.until_told({"note 0": 1, "note 2": 1, "note 3": 1})
    assert dropped() - before == 2


async def test_a_flush_in_the_middle_of_a_write_does_not_repeat_it(desk: Desk) -> None:
    rule = desk.proxy.when(verb="create", resource="events").delay_response(0.05, times=1)
    async with desk.running_recorder() as recorder:
        recorder.normal(desk.about, "Told", "once")
        await rule.wait_fired()
        await recorder.flush()
    assert desk.writes == ["create"]
    assert await desk.told() == {"once": 1}


async def test_a_flush_tells_what_stands_against_it(desk: Desk) -> None:
    desk.proxy.when(resource="events").respond_with(503)
    async with desk.recorder() as recorder:
        recorder.normal(desk.about, "Told", "in vain")
        with pytest.raises(ServerFault, match="create events"):
            await recorder.flush()
