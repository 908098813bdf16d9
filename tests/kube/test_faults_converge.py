"""Every fault of the proxy, alone and with every other, ends in convergence, and nothing spins meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import permutations

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.objects import CONFIG_MAPS, Key
from testbed.clock import AcceleratedClock
from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy, FaultRule
from tests.conftest import print_line
from tests.kube.toy_operator import ToyOperator, copy_key, make_source

SOURCES = 5
# What one desk may send in a second: its informer pauses 0.1 s at least and twice as long each time; its four workers
# take five keys, each of which is sent at most four times a pass and comes back after 0.05, 0.1, 0.2, 0.4 s.
MOST_PER_SECOND = 60
PAIRS_AT_ONCE = 12
WAIT_TIMEOUT_SECONDS = 120.0
SPEED = 10.0
# A second of ours is ten of a hurried desk: four keys of nine passes each, and seven tries of the informer, of five
# requests at most. Without the pauses of the queue 376 were counted, without those of the informer 485.
MOST_PER_HURRIED_SECOND = 4 * 9 * 4 + 7 * 5

RULES: dict[str, Callable[[FaultProxy], FaultRule]] = {
    "409": lambda proxy: proxy.when().respond_with(409),
    "410": lambda proxy: proxy.when().respond_with(410),
    "429": lambda proxy: proxy.when().respond_with(429, retry_after=1),
    "429 without a time": lambda proxy: proxy.when().respond_with(429),
    "500": lambda proxy: proxy.when().respond_with(500),
    "503": lambda proxy: proxy.when().respond_with(503),
    "cut before": lambda proxy: proxy.when().reset_before_server(),
    "cut after": lambda proxy: proxy.when().reset_after_server(),
    "hang": lambda proxy: proxy.when().hang(),
    "delay": lambda proxy: proxy.when().delay(0.2),
    "delayed answer": lambda proxy: proxy.when().delay_response(0.2),
    "watch cut": lambda proxy: proxy.when(verb="watch").reset_watch(),
    "watch ended": lambda proxy: proxy.when(verb="watch").end_watch(),
    "watch stalled": lambda proxy: proxy.when(verb="watch").stall(),
    "watch expired": lambda proxy: proxy.when(verb="watch").expire_watch(),
}
GATES: dict[str, Callable[[FaultProxy], None]] = {
    "denied": FaultProxy.reset_connections,
    "black hole": FaultProxy.black_hole,
}
FAULTS = [*RULES, *GATES]


@contextmanager
def in_force(proxy: FaultProxy, fault: str) -> Iterator[None]:
    if fault in GATES:
        GATES[fault](proxy)
        yield
        proxy.heal()
    else:
        with RULES[fault](proxy):
            yield


class Trial:
    """A ToyOperator behind its own proxy, and a direct client that creates sources and checks the copies."""

    def __init__(self, operator: ToyOperator, proxy: FaultProxy, tenant: Client, name: str, namespace: str) -> None:
        self.proxy = proxy
        self._operator = operator
        self._direct = tenant
        self._name = name
        self._namespace = namespace
        self._created: list[Key] = []

    async def create_sources(self, count: int) -> None:
        for _ in range(count):
            key = Key(self._namespace, f"{self._name}-source-{len(self._created)}")
            await self._direct.create(CONFIG_MAPS, make_source(key, self._name))
            self._created.append(key)

    async def converged(self) -> None:
        """Return when every source is copied and the cache equals the server. Raises TimeoutError with the rest."""
        try:
            async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
                while open_ends := await self._open_ends():  # the server is asked, not a task of ours
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(f"{self._name}: {open_ends}") from None

    async def _open_ends(self) -> list[str]:
        scope = Scope(self._namespace)
        there = {each.key: each for each in await self._direct.list_all(CONFIG_MAPS, scope)}
        cached = {each.key: each.version for each in self._operator.sources.store}
        on_server = {key: there[key].version for key in self._created}
        missing = [f"{copy_key(key)} is missing" for key in self._created if copy_key(key) not in there]
        return missing + ([f"the cache has {cached}, the server {on_server}"] if cached != on_server else [])


@asynccontextmanager
async def trial(control_plane: ControlPlane, name: str, namespace: str, clock: Clock) -> AsyncIterator[Trial]:
    token = control_plane.credentials.token_of("tester-3")
    async with (
        Client(control_plane.connection()) as tenant,
        FaultProxy(control_plane.connection()) as proxy,
        Client(proxy.connection(token), response_timeout=0.5, clock=clock) as client,
    ):
        operator = ToyOperator(client, namespace, tenant=name, idle_seconds=0.5, clock=clock)
        running = asyncio.ensure_future(operator.manager.run())
        try:
            yield Trial(operator, proxy, tenant, name, namespace)
        finally:
            operator.manager.stop()
            await running


async def test_a_fault_ends_in_convergence_and_nothing_spins_meanwhile(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def live_through(number: int, fault: str) -> None:
        async with trial(control_plane, f"desk-{number}", namespace, SystemClock()) as alone:
            await alone.create_sources(2)
            await alone.converged()
            alone.proxy.clear_requests()
            with in_force(alone.proxy, fault):
                await alone.create_sources(SOURCES)
                await asyncio.sleep(2)
                assert alone.proxy.peak_per_second() <= MOST_PER_SECOND, fault
            await alone.converged()
            assert alone.proxy.peak_per_second() <= MOST_PER_SECOND, fault

    async with asyncio.TaskGroup() as group:
        for number, fault in enumerate(FAULTS):
            group.create_task(live_through(number, fault))


@pytest.mark.long
async def test_every_pair_of_faults_converges_without_spinning(
    control_plane: ControlPlane, namespace: str, pytestconfig: pytest.Config
) -> None:
    at_once = asyncio.Semaphore(PAIRS_AT_ONCE)
    peaks: list[int] = []

    async def live_through(number: int, first: str, second: str) -> None:
        """The second begins while the first is on, and outlasts it."""
        async with at_once, trial(control_plane, f"pair-{number}", namespace, AcceleratedClock(SPEED)) as pair:
            await pair.create_sources(1)
            with in_force(pair.proxy, first):
                await pair.create_sources(2)
                await asyncio.sleep(0.1)
                inner = in_force(pair.proxy, second)
                inner.__enter__()
                await asyncio.sleep(0.2)
            try:
                await pair.create_sources(1)
                await asyncio.sleep(0.2)
            finally:
                inner.__exit__(None, None, None)
            try:
                await pair.converged()
            except TimeoutError as open_ends:
                raise AssertionError(f"{first}, then {second}: {open_ends}") from None
            peak = pair.proxy.peak_per_second()
            assert peak <= MOST_PER_HURRIED_SECOND, f"{first}, then {second}: {peak} requests in a second"
            peaks.append(peak)

    async with asyncio.TaskGroup() as group:
        for number, (first, second) in enumerate(permutations(FAULTS, 2)):
            group.create_task(live_through(number, first, second))
    print_line(
        pytestconfig, f"faults: {len(peaks)} pairs converged, at most {max(peaks)} requests/s at {SPEED:.0f} x speed"
    )
