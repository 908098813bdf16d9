"""Two managers and one lease on a real API server: never two writers at once, no lost work, a bounded take-over."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import SystemClock
from paddle_operator.kube.errors import RunnableFailed
from paddle_operator.kube.leader_election import Elector, LeaseTimings
from paddle_operator.kube.manager import Manager
from paddle_operator.kube.objects import CONFIG_MAPS, LEASES, Key
from testbed.audit import AuditedWrites
from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.conftest import print_line
from tests.kube.toy_operator import ToyOperator, copy_key, make_source

ROUNDS = 10
# A request that was sent just before the holder's time ran out may be under way for two seconds more.
TERMS = LeaseTimings(lease_seconds=4, renew_seconds=2, retry_seconds=0.3)
LONG_TERMS = LeaseTimings(lease_seconds=120, renew_seconds=100, retry_seconds=5)
WAIT_TIMEOUT_SECONDS = 60.0  # to the second it is known in test_lease.py, where the clock is the test's own


class JumpingClock(SystemClock):
    """A wall clock that somebody sets."""

    offset = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset


class Contender:
    """One replica of an operator that only copies each `source-N` to a `copy-N`."""

    def __init__(self, control_plane: ControlPlane, namespace: str, user: str, terms: LeaseTimings = TERMS) -> None:
        self.user = user
        self._terms = terms
        self.clock = JumpingClock()
        self.died: list[str] = []
        self._control_plane = control_plane
        self._namespace = namespace
        self._elector: Elector | None = None
        self._manager: Manager | None = None

    @property
    def leading(self) -> bool:
        return self._elector is not None and self._elector.leading

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Contender"]:
        async with FaultProxy(self._control_plane.connection()) as self.proxy:
            self._stopped = False
            self._reachable = asyncio.Event()
            self._reachable.set()
            task = asyncio.ensure_future(self._live())
            try:
                yield self
            finally:
                self._stopped = True
                if self._manager:
                    self._manager.stop()
                await task

    def cut_off(self, *, silently: bool) -> None:
        self._reachable.clear()
        (self.proxy.black_hole if silently else self.proxy.reset_connections)()

    async def heal(self) -> None:
        """Mend the network and return when the replica, started again, stands by with a full cache."""
        self.proxy.heal()
        self._reachable.set()
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while self._manager is None or any(self._manager.readiness_problems()):
                await asyncio.sleep(0.01)

    async def _live(self) -> None:
        """As kubelet would: whenever the process ends, start it again."""
        while not self._stopped:
            await self._reachable.wait()  # kubelet would wait for its own back-off; the test, only for the network
            try:
                await self._one_life()
            except RunnableFailed as death:
                self.died.append(str(death))
            self._manager = None

    async def _one_life(self) -> None:
        connection = self.proxy.connection(self._control_plane.credentials.token_of(self.user))
        async with AsyncExitStack() as stack:
            electing = await stack.enter_async_context(Client(connection))
            self._elector = Elector(
                electing,
                Key(self._namespace, "operator"),
                identity=f"{self.user}-{id(stack):x}",
                timings=self._terms,
                clock=self.clock,
            )
            client = await stack.enter_async_context(Client(connection, fence=self._elector.fence))
            self._manager = ToyOperator(client, self._namespace, elector=self._elector).manager
            if self._stopped:
                return
            await self._manager.run()


async def create_sources(client: Client, namespace: str, made: list[Key]) -> None:
    while True:
        source = Key(namespace, f"source-{len(made)}")
        await client.create(CONFIG_MAPS, make_source(source))
        made.append(source)
        await asyncio.sleep(0.05)


async def until_leading(contender: Contender) -> float:
    """The seconds that it took."""
    began_at = asyncio.get_running_loop().time()
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while not contender.leading:  # time alone decides it, nothing tells
            await asyncio.sleep(0.005)
    return asyncio.get_running_loop().time() - began_at


def terms_of_office(writes: AuditedWrites) -> list[AuditedWrites]:
    """The writes in the order of their arrival, split wherever the writer changes."""
    terms: list[AuditedWrites] = []
    for write in sorted(writes, key=lambda write: write.received_at):
        if not terms or terms[-1][-1].user != write.user:
            terms.append(AuditedWrites())
        terms[-1].append(write)
    return terms


@pytest.mark.timeout(400)
async def test_leader_cut_off_is_replaced_and_never_doubled(
    control_plane: ControlPlane, client: Client, namespace: str, pytestconfig: pytest.Config
) -> None:
    """In two elections beside each other: most of a round is to wait for a lease to run out."""
    dice = random.Random(pytestconfig.getoption("randomly_seed"))
    other = await control_plane.create_namespace("election")
    first = (Contender(control_plane, namespace, f"tester-{number}") for number in (10, 11))
    second = (Contender(control_plane, other, f"tester-{number}") for number in (14, 15))
    told = await asyncio.gather(
        an_election(control_plane, client, namespace, dice, *first),
        an_election(control_plane, client, other, dice, *second),
    )
    await control_plane.delete_namespace(other)
    for each in told:
        print_line(pytestconfig, each)


async def an_election(
    control_plane: ControlPlane, client: Client, namespace: str, dice: random.Random, one: Contender, two: Contender
) -> str:
    """What there is to tell of it."""
    made: list[Key] = []
    took: list[float] = []
    start = await control_plane.audit.mark()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(one.running())
        await stack.enter_async_context(two.running())
        creating = asyncio.ensure_future(create_sources(client, namespace, made))
        await asyncio.gather(one.heal(), two.heal())
        while not (one.leading or two.leading):
            await asyncio.sleep(0.005)
        leader, rival = (one, two) if one.leading else (two, one)
        for number in range(ROUNDS):
            await asyncio.sleep(dice.uniform(0, 1))
            leader.clock.offset = timedelta(hours=dice.choice((-1, 0, 1)))  # the holder's clock jumps, too
            leader.cut_off(silently=number % 2 == 0)
            took.append(await until_leading(rival))
            assert not leader.leading
            await leader.heal()
            leader, rival = rival, leader
        creating.cancel()
        await until_done(client, namespace, made)
    writes = (await control_plane.audit.between(start, await control_plane.audit.mark())).by(one.user, two.user)
    work = AuditedWrites(write for write in writes if write.resource == "configmaps")
    offices = terms_of_office(work)
    for before, after in pairwise(offices):
        last = max(write.completed_at for write in before)
        assert last < after[0].received_at, f"{before[-1]} was still under way when {after[0]} came"
    # A machine that stalls for longer than a leader has to renew elects another one in between.
    elections = (await client.get(LEASES, Key(namespace, "operator"))).spec.lease_transitions or 0
    assert elections >= ROUNDS
    assert len(offices) <= elections + 1, "an ousted leader never wrote again before it was elected again"
    assert all("lease" in death for death in one.died + two.died)
    created = [write.name for write in work if write.code == 201]
    assert len(created) == len(set(created))
    assert {copy_key(source).name for source in made} <= {write.name for write in work if write.may_have_acted}
    return (
        f"election: {ROUNDS} take-overs in {min(took):.2f} to {max(took):.2f} s (lease {TERMS.lease_seconds} s), "
        f"{len(made)} sources, {len(work)} writes in {len(offices)} terms"
    )


async def until_done(client: Client, namespace: str, made: list[Key]) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while True:
            there = {each.key for each in await client.list_all(CONFIG_MAPS, Scope(namespace))}
            if {copy_key(source) for source in made} <= there:
                return
            await asyncio.sleep(0.1)


async def test_a_leader_that_is_stopped_hands_over_at_once(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    one, two = (Contender(control_plane, namespace, f"tester-{number}", LONG_TERMS) for number in (12, 13))
    async with one.running():
        await until_leading(one)
        async with two.running():
            await asyncio.sleep(0.5)
            assert not two.leading
            one._stopped = True
            assert one._manager
            one._manager.stop()
            await until_leading(two)  # long before the lease would have run out
    assert one.died == []
