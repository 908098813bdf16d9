"""The operator killed before and after every write of a job's life, then started again: the same end, nothing twice."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from paddle_operator.controllers.paddlejob import PaddleJobs, Settings
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.manager import Manager
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key
from testbed.audit import Writes
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits
from tests.conftest import say
from tests.stories.stage import WHOLE_EVENTS, WHOLE_JOBS

Manifest = dict[str, Any]
USER = "tester-21"
AT_ONCE = 6
CONTAINERS = {"containers": [{"name": "paddle", "image": "paddle"}]}
JOBS: dict[str, Manifest] = {
    "PS, by Service, cleaned": {
        "intranet": "Service",
        "cleanPodPolicy": "Always",
        "ps": {"replicas": 2, "template": {"spec": CONTAINERS}},
        "worker": {"replicas": 2, "template": {"spec": CONTAINERS}},
    },
    "Collective, kept": {
        "cleanPodPolicy": "Never",
        "worker": {"replicas": 3, "template": {"spec": CONTAINERS}},
    },
}


class MortalClient(Client):
    """A client whose process is killed at its n-th write, before it is sent or after the server has acted."""

    writes = 0
    dies_at = 0
    after = False

    def lives_until(self, write: int, *, after: bool) -> None:
        self.dies_at, self.after, self.died = write, after, asyncio.Event()

    async def _once(self, call):  # type: ignore[no-untyped-def]  # the seam is private, and this test is its only user
        if not call.writes:
            return await super()._once(call)
        self.writes += 1
        mine = self.writes
        if self.dies_at and mine > self.dies_at:
            await asyncio.Event().wait()
        if mine == self.dies_at and not self.after:
            await self._die()
        try:
            answer = await super()._once(call)
        finally:  # also where it was refused, or given up
            if mine == self.dies_at:
                self.died.set()
        if mine == self.dies_at:
            await self._die()
        return answer

    async def _die(self) -> None:
        self.died.set()
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def operator(
    control_plane: ControlPlane, namespace: str, dies_at: int = 0, *, after: bool = False
) -> AsyncIterator[MortalClient]:
    """Leaving it is a kill: nothing is drained, flushed or given back."""
    async with MortalClient(control_plane.connection(USER)) as client:
        client.lives_until(dies_at, after=after)
        recorder = Recorder(client, reporter="paddle-operator")
        jobs = PaddleJobs(client, recorder, Settings(namespace=namespace))
        manager = Manager(informers=jobs.informers, controllers=[jobs.controller], recorder=recorder)
        running = asyncio.ensure_future(manager.run())
        try:
            yield client
        finally:
            running.cancel()
            await asyncio.wait((running,))


class Life:
    """One job in a namespace of its own."""

    def __init__(self, control_plane: ControlPlane, client: Client, spec: Manifest) -> None:
        self._control_plane = control_plane
        self._client = client
        self._spec = spec

    async def live(self, dies_at: int, *, after: bool) -> tuple[bool, int]:
        """Whether the operator was killed on the way, and how many writes it made in its first life."""
        self.namespace = await self._control_plane.make_namespace("crash")
        job = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob"}
        metadata = {"name": "life", "namespace": self.namespace}
        await self._client.create(WHOLE_JOBS, {**job, "metadata": metadata, "spec": self._spec})
        async with operator(self._control_plane, self.namespace, dies_at, after=after) as first:
            over = asyncio.ensure_future(self.over())
            died = asyncio.ensure_future(first.died.wait())
            await asyncio.wait((over, died), return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            killed = first.died.is_set()
            if not killed:
                over.result()
        over.cancel()
        if killed:
            async with operator(self._control_plane, self.namespace):
                await self.over()
        return killed, first.writes

    async def over(self) -> None:
        try:
            async with asyncio.timeout(60):
                while not await self._is_over():
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.3)  # what an operator might still do wrongly, it does within this
        except TimeoutError:
            raise TimeoutError(f"not over: {await self.end_state()}") from None

    async def _is_over(self) -> bool:
        job = await self._client.get(WHOLE_JOBS, Key(self.namespace, "life"))
        pods = await self._client.list_all(PODS, Scope(self.namespace))
        services = await self._client.list_all(SERVICES, Scope(self.namespace))
        kept = self._spec["cleanPodPolicy"] == "Never"
        still = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
        return (job.status or {}).get("phase") == "Completed" and (not still if kept else not pods and not services)

    async def end_state(self) -> Manifest:
        """What is left, without what differs from life to life."""
        job = await self._client.get(WHOLE_JOBS, Key(self.namespace, "life"))
        pods = await self._client.list_all(PODS, Scope(self.namespace))
        barriers = await self._client.list_all(CONFIG_MAPS, Scope(self.namespace))
        status = {
            name: value
            for name, value in (job.status or {}).items()
            if name not in ("startTime", "completionTime", "selector")
        }
        for role in ("ps", "worker"):
            status[role] = {key: value for key, value in status.get(role, {}).items() if key != "refs"}
        status["conditions"] = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions", ())]
        return {
            "status": status,
            "pods": sorted((pod.key.name, pod.status.phase, pod.metadata.deletion_timestamp is None) for pod in pods),
            "config maps": sorted(each.key.name for each in barriers),
        }

    async def told(self) -> Counter[tuple[str, str]]:
        events = await self._client.list_all(WHOLE_EVENTS, Scope(self.namespace))
        return Counter((each.reason, each.note) for each in events if each.key.name.startswith("life."))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", JOBS)
async def test_a_kill_at_any_write_changes_nothing_in_the_end(
    control_plane: ControlPlane, paddlejob_crd: None, pytestconfig: pytest.Config, name: str
) -> None:
    at_once = asyncio.Semaphore(AT_ONCE)
    start = await control_plane.audit.mark()
    async with Client(control_plane.connection()) as client, HollowNodes(client, count=3) as nodes:
        nodes.script("life-worker-*", exits(0, after=0.3))
        whole = Life(control_plane, client, JOBS[name])
        _, writes = await whole.live(0, after=False)
        expected, told = await whole.end_state(), await whole.told()
        lives: list[tuple[Life, bool]] = []

        async def one(dies_at: int, *, after: bool) -> None:
            async with at_once:
                life = Life(control_plane, client, JOBS[name])
                point = f"killed {'after' if after else 'before'} write {dies_at}"
                try:
                    killed, _ = await life.live(dies_at, after=after)
                except TimeoutError as stuck:
                    raise AssertionError(f"{point}: {stuck}") from None
                assert await life.end_state() == expected, point
                twice = {news: count for news, count in (await life.told()).items() if count > 1}
                assert not twice, f"{point}: {twice}"
                missing = {reason for reason, _ in told} - {reason for reason, _ in await life.told()} - PASSING
                assert not missing, f"{point}: nobody was told of {missing}"
                lives.append((life, killed))

        async with asyncio.TaskGroup() as group:
            for dies_at in range(1, writes + 1):
                for after in (False, True):
                    group.create_task(one(dies_at, after=after))
    made = (await control_plane.audit.between(start, await control_plane.audit.mark())).by(USER)
    for life, _ in lives:
        assert_nothing_was_made_twice(made, life.namespace)
    killed = sum(was for _, was in lives)
    say(pytestconfig, f"crash points, {name}: {len(lives)} lives of {writes} writes, {killed} of them cut short")
    assert killed >= len(lives) * 0.8


PASSING = frozenset({"CreatingPods", "WaitingForAddresses", "StartingContainers", "AllPodsRun", "PodsLeaving"})
"""States that an operator which comes back later may never see."""


def assert_nothing_was_made_twice(made: Writes, namespace: str) -> None:
    created = Counter(
        (write.resource, write.name)
        for write in made
        if write.namespace == namespace and write.verb == "create" and write.code == 201 and write.resource != "events"
    )
    twice = {what: count for what, count in created.items() if count > 1}
    assert not twice, f"made twice in {namespace}: {twice}"
