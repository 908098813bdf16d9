"""The operator killed before and after every write of a job's life, then started again: the same end, nothing twice."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from paddle_operator.controllers.paddlejob import PaddleJobs
from paddle_operator.controllers.settings import Settings
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key, Pod, Resource
from paddle_operator.kube.reconciler import build_manager
from paddle_operator.kube.round_trip import Call, RoundTripper
from testbed.audit import AuditedWrites
from testbed.clock import AcceleratedClock, OffsetClock
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.hollow_script import NEVER, exits
from tests.conftest import print_line
from tests.stories.harness import FULL_EVENTS, FULL_JOBS, FullObject, parse_time
from tests.support.service_account import OPERATOR, create_operator_connection

Manifest = dict[str, Any]
AT_ONCE = 6
PUNCTUAL = timedelta(minutes=1)  # six lives at once on two cores that may stall, and an operator that starts first
STORY_SECONDS = 240.0
STEADY_SECONDS = 2.0
SLOWLY = 0.05  # so that the recorder has 20 s where it gives a server that does not answer one, and goes on untold
CONTAINERS = {"containers": [{"name": "paddle", "image": "paddle"}]}
ONE, TWO, THREE = ({"replicas": count, "template": {"spec": CONTAINERS}} for count in (1, 2, 3))


class MortalClient(Client):
    """A client whose process is killed at its n-th write, before it is sent or after the server has acted."""

    writes = 0
    dies_at = 0
    after = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, round_tripper=partial(MortalRoundTripper, self), **named)

    def lives_until(self, write: int, *, after: bool) -> None:
        self.dies_at, self.after, self.died = write, after, asyncio.Event()

    async def send_or_die(self, call: Call, send: Callable[[Call], Awaitable[bytes]]) -> bytes:
        self.writes += 1
        mine = self.writes
        if self.dies_at and mine > self.dies_at:
            await asyncio.Event().wait()
        if mine == self.dies_at and not self.after:
            await self._die()
        try:
            answer = await send(call)
        finally:  # also where it was refused, or given up
            if mine == self.dies_at:
                self.died.set()
        if mine == self.dies_at:
            await self._die()
        return answer

    async def _die(self) -> None:
        self.died.set()
        await asyncio.Event().wait()


class MortalRoundTripper(RoundTripper):
    def __init__(self, client: MortalClient, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._client = client

    async def send_once(self, call: Call) -> bytes:
        if not call.writes:
            return await super().send_once(call)
        return await self._client.send_or_die(call, super().send_once)


@contextlib.asynccontextmanager
async def operator(
    control_plane: ControlPlane, namespace: str, clock: OffsetClock, dies_at: int = 0, *, after: bool = False
) -> AsyncIterator[MortalClient]:
    """Leaving it is a kill: nothing is drained, flushed or given back."""
    async with MortalClient(await create_operator_connection(control_plane)) as client:
        client.lives_until(dies_at, after=after)
        recorder = Recorder(client, reporter="paddle-operator", clock=AcceleratedClock(SLOWLY))
        jobs = PaddleJobs(client, recorder, Settings(namespace=namespace), clock)
        manager = build_manager(recorder, [jobs])
        running = asyncio.ensure_future(manager.run())
        try:
            yield client
        finally:
            running.cancel()
            await asyncio.wait((running,))


@dataclass(frozen=True)
class Left:
    """What a life that nobody disturbed has left behind."""

    state: Manifest
    reasons: frozenset[str]


class Life:
    """One job in a namespace of its own, and by a time of its own."""

    def __init__(self, control_plane: ControlPlane, client: Client, nodes: HollowNodes, plot: "Plot") -> None:
        self.clock = OffsetClock()
        self.leapt_at: datetime | None = None  # when that time came, by real time
        self._control_plane = control_plane
        self._client = client
        self._nodes = nodes
        self._plot = plot

    async def live(self, dies_at: int, *, after: bool, left: Left | None = None) -> tuple[bool, int]:
        """Whether the operator was killed on the way, and how many writes it made in its first life.

        It is given the time to leave what is to be left; where that is not known yet, until nothing changes any more.
        """
        self.namespace = await self._control_plane.create_namespace("crash")
        story = asyncio.ensure_future(self._story())
        async with operator(self._control_plane, self.namespace, self.clock, dies_at, after=after) as first:
            died = asyncio.ensure_future(first.died.wait())
            await asyncio.wait((story, died), return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            killed = first.died.is_set()
            if not killed:
                await story
                await self._settles(left)
        if killed:
            async with operator(self._control_plane, self.namespace, self.clock):
                await story
                await self._settles(left)
        return killed, first.writes

    async def _settles(self, left: Left | None) -> None:
        with contextlib.suppress(TimeoutError):  # what is not so then is told by who compares
            async with asyncio.timeout(STORY_SECONDS / 4):
                if left is None:
                    before = None
                    while before != (before := (await self.end_state(), await self.told())):
                        await asyncio.sleep(STEADY_SECONDS)
                else:
                    while await self.end_state() != left.state or left.reasons - await self.reasons():
                        await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)  # what an operator might still do wrongly, it does within this

    async def _story(self) -> None:
        try:
            async with asyncio.timeout(STORY_SECONDS):
                await self._plot.story(self)
        except TimeoutError:
            raise TimeoutError(f"not over: {await self.end_state()}") from None

    # What happens to it

    def worker_exits(self, worker: str, code: int, *, times: float = NEVER) -> None:
        """Soon after its container has started; with `times`, so many containers and then no more."""
        self._nodes.script(f"life-worker-{worker}", exits(code, after=0.3), namespace=self.namespace, times=times)

    async def workers_exit(self) -> None:
        await self._nodes.exit("life-worker-*", 0, namespace=self.namespace)

    async def begin(self) -> None:
        job = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob"}
        metadata = {"name": "life", "namespace": self.namespace}
        await self._client.create(FULL_JOBS, {**job, "metadata": metadata, "spec": self._plot.spec})

    async def change(self, **spec: Any) -> None:
        await self._client.merge(FULL_JOBS, Key(self.namespace, "life"), {"spec": spec})

    def advance_to(self, due_at: datetime) -> None:
        self.leapt_at = self.clock.advance_to(due_at)

    # What is true

    async def job(self) -> FullObject | None:
        try:
            return await self._client.get(FULL_JOBS, Key(self.namespace, "life"))
        except NotFound:
            return None

    async def until(self, claim: Callable[[FullObject], bool]) -> FullObject:
        while True:
            job = await self.job()
            if job and job.status and claim(job):
                return job
            await asyncio.sleep(0.05)

    async def phase(self, phase: str, attempt: int = 0) -> FullObject:
        return await self.until(lambda job: job.phase == phase and job.status.get("attempt", 0) == attempt)

    async def gone(self) -> None:
        while await self.job():
            await asyncio.sleep(0.05)

    async def cleaned(self) -> None:
        """No pod and no Service is left."""
        kinds: tuple[Resource[Any], ...] = (PODS, SERVICES)
        for kind in kinds:
            while await self._client.list_all(kind, Scope(self.namespace)):
                await asyncio.sleep(0.05)

    async def failed_ones_gone(self) -> None:
        while any(pod.status.phase == "Failed" for pod in await self._client.list_all(PODS, Scope(self.namespace))):
            await asyncio.sleep(0.05)

    async def closed(self) -> None:
        """There is no barrier."""
        while await self._barriers():
            await asyncio.sleep(0.05)

    async def still(self) -> None:
        """What is left has ended."""
        while any(not ended(pod) for pod in await self._client.list_all(PODS, Scope(self.namespace))):
            await asyncio.sleep(0.05)

    async def _barriers(self) -> list[str]:
        found = await self._client.list_all(CONFIG_MAPS, Scope(self.namespace))
        return sorted(each.key.name for each in found if each.key.name != "kube-root-ca.crt")

    async def end_state(self) -> Manifest:
        """What is left, without what differs from life to life."""
        job = await self.job()
        pods = await self._client.list_all(PODS, Scope(self.namespace))
        status = {name: value for name, value in ((job and job.status) or {}).items() if name not in DIFFERENT}
        for role in ("ps", "worker"):
            status[role] = {key: value for key, value in status.get(role, {}).items() if key != "refs"}
        status["conditions"] = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions", ())]
        return {
            "there": job is not None,
            "status": status,
            "pods": sorted((pod.key.name, pod.status.phase, pod.metadata.deletion_timestamp is None) for pod in pods),
            "config maps": await self._barriers(),
        }

    async def told(self) -> Counter[tuple[str, str]]:
        events = await self._client.list_all(FULL_EVENTS, Scope(self.namespace))
        return Counter((each.reason, each.note) for each in events if each.key.name.startswith("life."))

    async def reasons(self) -> frozenset[str]:
        """Of what was told, without what an operator that comes back later may never see."""
        return frozenset(reason for reason, _ in await self.told()) - PASSING


DIFFERENT = (
    "startTime",
    "completionTime",
    "selector",
    "activeSince",
    "activeSeconds",
    "attemptTime",
    "nextAttemptTime",
)


def ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


async def is_completed(life: Life) -> None:
    life.worker_exits("*", 0)
    await life.begin()
    await life.phase("Completed")
    await life.still()


async def is_completed_and_cleaned(life: Life) -> None:
    await is_completed(life)
    await life.cleaned()


async def is_retried(life: Life) -> None:
    life.worker_exits("*", 0)
    life.worker_exits("1", 1, times=1)
    await life.begin()
    paused = await life.until(lambda job: "nextAttemptTime" in job.status)
    await life.cleaned()
    life.advance_to(parse_time(paused.status["nextAttemptTime"]))
    job = await life.phase("Completed", attempt=1)
    assert job.status["restarts"] == 1
    await life.cleaned()


async def is_replaced_alone(life: Life) -> None:
    life.worker_exits("1", 1, times=1)
    await life.begin()
    paused = await life.until(lambda job: "nextAttemptTime" in job.status)
    await life.failed_ones_gone()
    life.advance_to(parse_time(paused.status["nextAttemptTime"]))
    life.worker_exits("*", 0)
    job = await life.phase("Completed")
    assert job.status["restarts"] == 1
    await life.cleaned()


async def is_suspended_and_resumed(life: Life) -> None:
    await life.begin()
    await life.phase("Running")
    await life.change(suspend=True)
    await life.phase("Suspended", attempt=1)
    await life.cleaned()
    await life.closed()
    await life.change(suspend=False)
    await life.phase("Running", attempt=1)
    await life.workers_exit()
    await life.phase("Completed", attempt=1)
    await life.cleaned()


async def is_overdue(life: Life) -> None:
    await life.begin()
    job = await life.phase("Running")
    due_at = parse_time(job.condition("Accepted")["lastTransitionTime"]) + timedelta(hours=1)
    life.advance_to(due_at)
    job = await life.phase("Failed")
    assert due_at <= parse_time(job.status["completionTime"]) <= due_at + PUNCTUAL
    await life.cleaned()


async def is_deleted_in_time(life: Life) -> None:
    life.worker_exits("*", 0)
    await life.begin()
    job = await life.phase("Completed")
    await life.still()
    life.advance_to(parse_time(job.status["completionTime"]) + timedelta(hours=1))
    await life.gone()
    await life.cleaned()
    await life.closed()


@dataclass(frozen=True)
class Plot:
    """What is wanted, and what happens; and for which deed, after how many of its like, the time must have come."""

    spec: Manifest
    story: Callable[[Life], Awaitable[None]]
    timed: tuple[str, str, int] | None = None


CLEANED = {"cleanPodPolicy": "Always", "worker": TWO}
KEPT = {"cleanPodPolicy": "Never", "worker": TWO}
PLOTS = {
    "PS, by Service, cleaned": Plot({**CLEANED, "intranet": "Service", "ps": TWO}, is_completed_and_cleaned),
    "Collective, kept": Plot({**KEPT, "worker": THREE}, is_completed),
    "retried": Plot({**CLEANED, "backoffLimit": 2}, is_retried, ("create", "pods", 2)),
    "replaced alone": Plot(
        {**CLEANED, "ps": ONE, "withGloo": 0, "backoffLimit": 2}, is_replaced_alone, ("create", "pods", 3)
    ),
    "suspended and resumed": Plot({**CLEANED, "intranet": "Service", "worker": ONE}, is_suspended_and_resumed),
    "deadline": Plot({**CLEANED, "activeDeadlineSeconds": 3600}, is_overdue, ("delete", "pods", 0)),
    "ttl": Plot({**KEPT, "ttlSecondsAfterFinished": 3600}, is_deleted_in_time, ("delete", "paddlejobs", 0)),
}


# One plot each for clean-up, a restart and a deletion by the operator; the others show the same for other writes.
IN_EVERY_RUN = ("PS, by Service, cleaned", "retried", "ttl")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.long) for name in PLOTS]
)
async def test_a_kill_at_any_write_changes_nothing_in_the_end(
    control_plane: ControlPlane, garbage_collector: None, pytestconfig: pytest.Config, name: str
) -> None:
    at_once = asyncio.Semaphore(AT_ONCE)
    start = await control_plane.audit.mark()
    async with Client(control_plane.connection()) as client, HollowNodes(client, count=3) as nodes:
        whole = Life(control_plane, client, nodes, PLOTS[name])
        _, writes = await whole.live(0, after=False)
        left = Left(await whole.end_state(), await whole.reasons())
        lives: list[tuple[Life, bool]] = []

        async def one(dies_at: int, *, after: bool) -> None:
            async with at_once:
                life = Life(control_plane, client, nodes, PLOTS[name])
                point = f"killed {'after' if after else 'before'} write {dies_at}"
                try:
                    killed, _ = await life.live(dies_at, after=after, left=left)
                except (AssertionError, TimeoutError) as wrong:
                    raise AssertionError(f"{point}: {wrong}") from None
                assert await life.end_state() == left.state, point
                twice = {news: count for news, count in (await life.told()).items() if count > 1}
                assert not twice, f"{point}: {twice}"
                missing = left.reasons - await life.reasons()
                assert not missing, f"{point}: nobody was told of {missing}"
                lives.append((life, killed))

        async with asyncio.TaskGroup() as group:
            for dies_at in range(1, writes + 1):
                for after in (False, True):
                    group.create_task(one(dies_at, after=after))
    made = (await control_plane.audit.between(start, await control_plane.audit.mark())).by(OPERATOR)
    often = creations(made, whole)
    for life, _ in lives:
        assert not creations(made, life) - often, f"made too often in {life.namespace}"
        assert_on_time(made, life, PLOTS[name])
    killed = sum(was for _, was in lives)
    print_line(pytestconfig, f"crash points, {name}: {len(lives)} lives of {writes} writes, {killed} of them cut short")
    assert killed >= len(lives) * 0.5  # not each has as many writes as the first: counters are told once a second


PASSING = frozenset({"CreatingPods", "WaitingForAddresses", "StartingContainers", "AllPodsRunning", "PodsTerminating"})
"""States that an operator which comes back later may never see."""


def creations(made: AuditedWrites, life: Life) -> Counter[tuple[str, str]]:
    """How often each object was made."""
    return Counter(
        (write.resource, write.name)
        for write in made
        if write.namespace == life.namespace
        and write.verb == "create"
        and write.code == 201
        and write.resource != "events"
    )


def assert_on_time(made: AuditedWrites, life: Life, plot: Plot) -> None:
    """As many of the deeds as belong to the time before are done by then, and the next one follows soon, not sooner."""
    if not plot.timed:
        return
    verb, target, before = plot.timed
    deeds = [write for write in made.to(target) if write.namespace == life.namespace and write.verb == verb]
    deeds = [write for write in deeds if write.may_have_acted]
    assert life.leapt_at
    early = [write for write in deeds if write.received_at < life.leapt_at]
    granted = Counter(write.name for write in early if write.code < 300)
    assert len({write.name for write in early}) == before, life.namespace
    assert set(granted.values()) <= {1}, life.namespace
    late = [write.received_at for write in deeds if write.received_at >= life.leapt_at]
    assert late[0] <= life.leapt_at + PUNCTUAL, life.namespace
