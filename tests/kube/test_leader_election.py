"""Election's promise, over all schedules that Hypothesis can find: whoever passes the fence is alone."""

import asyncio
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import AlreadyExists, Conflict, Fenced, NotFound, Status, Unreachable
from paddle_operator.kube.leader_election import Elector, LeaseTimings, LostLease
from paddle_operator.kube.objects import Key, Lease, LeaseSpec, Manifest, Meta, Resource
from testbed.clock import FakeClock

KEY = Key("paddle-system", "operator")
TERMS = LeaseTimings(lease_seconds=15, renew_seconds=10, retry_seconds=2)


class LeaseServer:
    """Keeps one Lease with compare-and-swap, as the API server does."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0

    def write(self, manifest: Manifest) -> Lease:
        self.version += 1
        meta = Meta(name=KEY.name, namespace=KEY.namespace, uid="1", resource_version=str(self.version))
        self.lease = Lease(meta, msgspec.convert(manifest["spec"], LeaseSpec))
        return self.lease


class Line:
    """One contender's way to the server, which can fail before or after the server has acted, or hang."""

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.fault = ""

    async def _pass(self, *, answering: bool) -> None:
        if self.fault == "hang":
            await asyncio.Event().wait()
        if self.fault == "cut" or (self.fault == "cut the answer" and answering):
            raise Unreachable("cut", sent=answering)

    async def get(self, kind: Resource[Any], key: Key) -> Lease:
        await self._pass(answering=False)
        if self.server.lease is None:
            raise NotFound("get", Status(404))
        found = self.server.lease
        await self._pass(answering=True)
        return found

    async def create(self, kind: Resource[Any], manifest: Manifest) -> Lease:
        await self._pass(answering=False)
        if self.server.lease:
            raise AlreadyExists("create", Status(409, "AlreadyExists"))
        written = self.server.write(manifest)
        await self._pass(answering=True)
        return written

    async def replace(self, kind: Resource[Any], manifest: Manifest) -> Lease:
        await self._pass(answering=False)
        if self.server.lease is None:
            raise NotFound("update", Status(404))
        if manifest["metadata"]["resourceVersion"] != self.server.lease.metadata.resource_version:
            raise Conflict("update", Status(409, "Conflict"))
        written = self.server.write(manifest)
        await self._pass(answering=True)
        return written


def contender(server: LeaseServer, clock: FakeClock, name: str) -> tuple[Elector, Line]:
    line = Line(server)
    return Elector(cast("Client", line), KEY, identity=name, timings=TERMS, clock=clock), line


async def forever() -> None:
    await asyncio.Event().wait()


async def test_candidate_takes_over_when_renewal_fails() -> None:
    clock, server = FakeClock(), LeaseServer()
    first, line = contender(server, clock, "first")
    second, _ = contender(server, clock, "second")
    led, rival = asyncio.ensure_future(first.lead(forever)), asyncio.ensure_future(second.lead(forever))
    await clock.advance(5)
    assert first.leading != second.leading
    if second.leading:
        first, second, led, rival = second, first, rival, led
        line = cast("Line", first._client)
    line.fault = "cut"
    await clock.advance(TERMS.renew_seconds)
    with pytest.raises(LostLease, match="could not renew"):
        await led
    with pytest.raises(Fenced):
        first.fence()
    await clock.advance(TERMS.lease_seconds - TERMS.renew_seconds + 2)
    assert second.leading
    rival.cancel()
    await asyncio.wait((rival,))


async def test_work_has_ended_before_the_lease_is_given_back() -> None:
    clock, server = FakeClock(), LeaseServer()
    elector, _ = contender(server, clock, "only")
    holder_at_the_end = ""

    async def work() -> None:
        nonlocal holder_at_the_end
        try:
            await forever()
        finally:
            await clock.sleep(1)
            assert server.lease
            holder_at_the_end = server.lease.spec.holder_identity or ""

    led = asyncio.ensure_future(elector.lead(work))
    await clock.advance(1)
    led.cancel()
    await clock.advance(2)
    assert led.cancelled()
    assert holder_at_the_end == "only"
    assert server.lease
    assert server.lease.spec.holder_identity == ""


async def test_released_lease_is_taken_at_once() -> None:
    clock, server = FakeClock(), LeaseServer()
    first, _ = contender(server, clock, "first")
    second, _ = contender(server, clock, "second")

    async def short() -> None:
        await clock.sleep(3)

    led = asyncio.ensure_future(first.lead(short))
    await clock.advance(1)
    rival = asyncio.ensure_future(second.lead(forever))
    await clock.advance(2 + TERMS.retry_seconds * 1.2)
    await led
    assert second.leading
    assert server.lease
    assert server.lease.spec.lease_transitions == 1
    rival.cancel()
    await asyncio.wait((rival,))


async def test_work_ends_with_the_term_not_the_next_try() -> None:
    clock, server = FakeClock(), LeaseServer()
    line = Line(server)
    terms = LeaseTimings(lease_seconds=5, renew_seconds=3, retry_seconds=2)
    elector = Elector(cast("Client", line), KEY, identity="only", timings=terms, clock=clock)
    ended_at = 0.0

    async def work() -> None:
        nonlocal ended_at
        try:
            await forever()
        finally:
            ended_at = clock.monotonic()

    began_at = clock.monotonic()
    led = asyncio.ensure_future(elector.lead(work))
    await clock.advance(1)
    line.fault = "cut"
    await clock.advance(5)
    with pytest.raises(LostLease):
        await led
    assert ended_at - began_at == terms.renew_seconds


async def test_process_suspended_past_its_term_cannot_write() -> None:
    clock, server = FakeClock(), LeaseServer()
    elector, _ = contender(server, clock, "only")
    led = asyncio.ensure_future(elector.lead(forever))
    await clock.advance(1)
    clock._move_to(clock.monotonic() + 3600)  # no timer rings, no task runs: the lid was closed
    with pytest.raises(Fenced, match="nothing was sent"):
        elector.fence()
    led.cancel()
    await asyncio.wait((led,))


async def test_a_lease_that_somebody_deletes_ends_the_leader() -> None:
    clock, server = FakeClock(), LeaseServer()
    elector, _ = contender(server, clock, "only")
    led = asyncio.ensure_future(elector.lead(forever))
    await clock.advance(1)
    server.lease = None
    await clock.advance(TERMS.retry_seconds)
    with pytest.raises(LostLease, match="was deleted"):
        await led


async def test_foreign_annotation_does_not_end_the_leader() -> None:
    clock, server = FakeClock(), LeaseServer()
    elector, _ = contender(server, clock, "only")
    led = asyncio.ensure_future(elector.lead(forever))
    await clock.advance(1)
    assert server.lease
    server.write({"spec": msgspec.to_builtins(server.lease.spec)})
    await clock.advance(60)
    assert elector.leading
    led.cancel()
    await asyncio.wait((led,))


async def test_error_of_the_work_is_raised_and_lease_released() -> None:
    clock, server = FakeClock(), LeaseServer()
    elector, _ = contender(server, clock, "only")

    async def work() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await elector.lead(work)
    assert server.lease
    assert server.lease.spec.holder_identity == ""


def test_unsafe_lease_timings_are_refused() -> None:
    with pytest.raises(ValueError, match="outlives its lease"):
        LeaseTimings(lease_seconds=10, renew_seconds=10, retry_seconds=2)


NAMES = st.sampled_from(("a", "b", "c"))


class Election(RuleBasedStateMachine):
    """Three contenders whose lines fail, whose clocks jump and whose processes are suspended or die."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.server = LeaseServer()
        self.clock = FakeClock()
        self.contenders = {name: contender(self.server, self.clock, name) for name in "abc"}
        self.tasks = {name: self._start(name) for name in "abc"}
        self.lives = 0
        self.loop.run_until_complete(self.clock.advance(0.01))

    def _start(self, name: str) -> "asyncio.Task[None]":
        return self.loop.create_task(self.contenders[name][0].lead(forever))

    @rule(seconds=st.sampled_from((0.1, 0.5, 1.9, 2.1, 5.0, 9.9, 10.1, 15.1)))
    def time_passes(self, seconds: float) -> None:
        async def pass_time() -> None:
            for _ in range(int(seconds * 10)):
                await self.clock.advance(0.1)
                self.one_writer_at_most()

        self.loop.run_until_complete(pass_time())

    @rule(name=NAMES, fault=st.sampled_from(("", "cut", "cut the answer", "hang")))
    def line_changes(self, name: str, fault: str) -> None:
        self.contenders[name][1].fault = fault

    @rule(seconds=st.sampled_from((-3600.0, -5.0, 5.0, 3600.0)))
    def wall_clock_jumps(self, seconds: float) -> None:
        self.clock.step_wall_clock(seconds)

    @rule(name=NAMES)
    def dies_and_is_started_again(self, name: str) -> None:
        task, (_, line) = self.tasks[name], self.contenders[name]
        line.fault = "cut"  # a killed process gives nothing back
        task.cancel()
        self.loop.run_until_complete(asyncio.wait((task,)))
        self.lives += 1
        self.contenders[name] = contender(self.server, self.clock, f"{name}{self.lives}")
        self.tasks[name] = self._start(name)

    @invariant()
    def one_writer_at_most(self) -> None:
        writers = [name for name, (elector, _) in self.contenders.items() if elector.leading]
        assert len(writers) <= 1, f"{writers} all pass the fence"

    def teardown(self) -> None:
        for _, line in self.contenders.values():
            line.fault = ""
        ended = [name for name, task in self.tasks.items() if task.done()]
        for name in ended:
            assert isinstance(self.tasks[name].exception(), LostLease)
            self.tasks[name] = self._start(name)
        self.loop.run_until_complete(self.clock.advance(TERMS.lease_seconds + 2 * TERMS.retry_seconds))
        assert any(elector.leading for elector, _ in self.contenders.values()), "with all lines whole, somebody leads"
        for task in self.tasks.values():
            task.cancel()
        self.loop.run_until_complete(asyncio.wait(self.tasks.values()))
        self.loop.close()


TestElection = Election.TestCase
TestElection.settings = settings(
    max_examples=30, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
