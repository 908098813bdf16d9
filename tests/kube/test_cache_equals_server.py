"""After any mix of writes, cuts, stalls, compactions and restarts the cache equals the server (a real one)."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import AlreadyExists, KubeError, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Manifest, Object, Resource
from paddle_operator.kube.work_queue import Priority
from testbed.clock import AcceleratedClock
from testbed.control_plane import ControlPlane
from testbed.faults import FaultProxy
from tests.conftest import print_line
from tests.kube.objects import NAMESPACES, POD_TEMPLATES, make_config_map, make_pod_template

Result = TypeVar("Result")

NAMES = st.sampled_from(("a", "b", "c", "d"))
KINDS = st.sampled_from((POD_TEMPLATES, CONFIG_MAPS))


class Replay:
    """A copy made only of what the informer told; it must equal the informer's own store at every moment."""

    def __init__(self, informer: Informer[Object, Object]) -> None:
        self.informer = informer
        self.copy: dict[Key, Object] = {}
        informer.store.listen(self._hear)

    def _hear(self, old: Object | None, new: Object | None, lane: Priority) -> None:
        key = (new or old).key  # type: ignore[union-attr]  # one of the two is always there
        assert self.copy.get(key) == old
        if new is None:
            del self.copy[key]
        else:
            self.copy[key] = new

    def versions(self) -> dict[Key, int]:
        assert self.copy == {each.key: each for each in self.informer.store}
        return {key: each.version for key, each in self.copy.items()}


class CacheLife(RuleBasedStateMachine):
    """PodTemplates come straight from etcd, in pages; ConfigMaps from the API server's own cache, as a stream."""

    def __init__(self, control_plane: ControlPlane) -> None:
        super().__init__()
        self.control_plane = control_plane
        self.loop = asyncio.new_event_loop()
        self.tasks: dict[Resource[Object], asyncio.Task[None]] = {}
        self.replays: dict[Resource[Object], Replay] = {}
        self.restarts = 0
        self.do(self.start())

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    async def start(self) -> None:
        self.namespace = f"cache-{time.monotonic_ns()}"
        # A controller puts a ConfigMap into every new namespace, whenever it comes to it: it is none of our writes.
        self.scope = Scope(self.namespace, fields="metadata.name!=kube-root-ca.crt")
        self.admin = await Client(self.control_plane.connection()).__aenter__()
        await self.admin.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        self.proxy = await FaultProxy(self.control_plane.connection()).__aenter__()
        token = self.control_plane.credentials.token_of("tester-2")
        self.ours = await Client(self.proxy.connection(token), clock=AcceleratedClock(speed=20)).__aenter__()
        for kind in (POD_TEMPLATES, CONFIG_MAPS):
            self.start_informer(kind)

    def start_informer(self, kind: Resource[Object]) -> None:
        informer: Informer[Object, Object] = Informer(
            self.ours,
            kind,
            self.scope,
            page_size=2,
            idle_seconds=1.5,  # longer than a busy server needs for the first word of its answer
            clock=AcceleratedClock(speed=20),
        )
        self.replays[kind] = Replay(informer)
        self.tasks[kind] = self.loop.create_task(informer.run())

    def manifest(self, kind: Resource[Object], name: str) -> Manifest:
        key = Key(self.namespace, name)
        return make_pod_template(key) if kind is POD_TEMPLATES else make_config_map(key)

    # Writes, of others and our own

    @rule(kind=KINDS, name=NAMES)
    def somebody_creates(self, kind: Resource[Object], name: str) -> None:
        try:
            self.do(self.admin.create(kind, self.manifest(kind, name)))
        except AlreadyExists:
            change = {"metadata": {"labels": {"at": str(time.monotonic_ns())}}}
            self.do(self.admin.merge(kind, Key(self.namespace, name), change))

    @rule(kind=KINDS, name=NAMES)
    def somebody_deletes(self, kind: Resource[Object], name: str) -> None:
        with contextlib.suppress(NotFound):
            self.do(self.admin.delete(kind, Key(self.namespace, name)))

    @rule(kind=KINDS, name=NAMES)
    def we_create(self, kind: Resource[Object], name: str) -> None:
        async def create() -> None:
            informer = self.replays[kind].informer
            try:
                informer.observe_write(await self.ours.create(kind, self.manifest(kind, name)))
            except KubeError:
                return
            assert informer.store.get(Key(self.namespace, name)), "our own write is seen at once"

        self.do(create())

    @rule(kind=KINDS, name=NAMES)
    def we_delete(self, kind: Resource[Object], name: str) -> None:
        async def delete() -> None:
            informer, key = self.replays[kind].informer, Key(self.namespace, name)
            known = informer.store.get(key)
            if known is None:
                return
            try:
                informer.observe_delete(key, known.uid, await self.ours.delete(kind, key, uid=known.uid))
            except KubeError:
                return
            left = informer.store.get(key)
            assert left is None or left.uid != known.uid, "what we deleted is gone at once"

        self.do(delete())

    # Trouble

    @rule(fault=st.sampled_from(("reset_watch", "end_watch", "stall", "expire_watch")), after=st.integers(0, 2))
    def a_watch_breaks(self, fault: str, after: int) -> None:
        getattr(self.proxy.when(verb="watch"), fault)(after_events=after, times=2)

    @rule(
        verb=st.sampled_from(("list", "watch", "create", "delete")),
        code=st.sampled_from((409, 410, 429, 500, 503)),
        times=st.integers(1, 3),
    )
    def answers_go_wrong(self, verb: str, code: int, times: int) -> None:
        self.proxy.when(verb=verb).respond_with(code, retry_after=1 if code == 429 else None, times=times)

    @rule(
        verb=st.sampled_from(("list", "create", "delete")),
        fault=st.sampled_from(("reset_before_server", "reset_after_server")),
    )
    def connections_are_cut(self, verb: str, fault: str) -> None:
        getattr(self.proxy.when(verb=verb), fault)(times=1)

    @rule()
    def the_network_goes(self) -> None:
        self.proxy.reset_connections()

    @rule()
    def the_network_comes_back(self) -> None:
        self.proxy.heal()

    @rule()
    def history_is_compacted(self) -> None:
        self.do(self.control_plane.compact())

    @rule(kind=KINDS)
    def the_operator_restarts(self, kind: Resource[Object]) -> None:
        self.do(self.stop_informer(kind))
        self.start_informer(kind)

    @precondition(lambda self: self.restarts < 1)
    @rule()
    def the_api_server_is_killed_and_started_again(self) -> None:
        self.restarts += 1
        self.do(self.control_plane.api_server.kill())
        self.do(self.control_plane.api_server.start())

    @rule(seconds=st.sampled_from((0.0, 0.05, 0.4)))
    def time_passes(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    # The claim

    @rule()
    def the_cache_becomes_equal_to_the_server(self) -> None:
        self.do(self.settle())

    async def settle(self) -> None:
        self.proxy.heal()
        for kind, replay in self.replays.items():
            server = {each.key: each.version for each in await self.admin.list_all(kind, self.scope)}
            deadline = time.monotonic() + 180  # a dozen stalls that are still to come, one after the other
            while not (replay.informer.synced and replay.versions() == server):
                assert time.monotonic() < deadline, f"{kind}: {replay.versions()} here, {server} there"
                assert not self.tasks[kind].done(), self.tasks[kind]
                await asyncio.sleep(0.005)

    async def stop_informer(self, kind: Resource[Object]) -> None:
        task = self.tasks[kind]
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled(), task

    async def end(self) -> None:
        try:
            await self.settle()
        finally:
            for kind in self.tasks:
                await self.stop_informer(kind)
            await self.ours.__aexit__()
            await self.proxy.__aexit__(None, None, None)
            await self.admin.delete(NAMESPACES, Key("", self.namespace))
            await self.admin.__aexit__()

    def teardown(self) -> None:
        try:
            self.do(self.end())
        finally:
            self.loop.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("examples", [4, pytest.param(15, marks=pytest.mark.long)])
def test_the_cache_equals_the_server_after_any_mix(
    breakable_control_plane: ControlPlane, pytestconfig: pytest.Config, examples: int
) -> None:
    number = pytestconfig.getoption("randomly_seed")
    print_line(
        pytestconfig, f"cache state machine: seed {number}; the same again: -p randomly --randomly-seed={number}"
    )

    class Life(CacheLife):
        def __init__(self) -> None:
            super().__init__(breakable_control_plane)

    run_state_machine_as_test(
        seed(number)(Life),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            database=None,
            phases=(Phase.generate,),  # what depends on a network's timing cannot be shrunk
            suppress_health_check=list(HealthCheck),
        ),
    )
