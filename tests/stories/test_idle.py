"""A thousand jobs that run cost the API server nothing, however long they run: ten minutes by a clock moved by hand."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from bench.etcd import Etcd, KeyValue
from paddle_operator.controllers.paddlejob import PaddleJobs
from paddle_operator.controllers.settings import Settings
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.metrics import REGISTRY
from paddle_operator.kube.objects import PODS, Key
from paddle_operator.kube.reconciler import build_manager
from testbed.clock import FakeClock
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.watch_until import watch_objects
from tests.conftest import print_line
from tests.stories.harness import FULL_JOBS
from tests.stories.jobs import make_job
from tests.support.service_account import OPERATOR, create_operator_connection

JOBS = 1000
NODES = 4
AT_ONCE = 32
TEN_MINUTES = 600
STEP_SECONDS = 10
LABELS = {"controller": "paddlejob"}


class Operator:
    """In this process, with a clock of the test's; its connections go by real time."""

    def __init__(self, client: Client, namespace: str, clock: FakeClock | None = None) -> None:
        recorder = Recorder(client, reporter="paddle-operator", clock=clock)
        self.jobs = PaddleJobs(client, recorder, Settings(namespace=namespace), clock)
        self._manager = build_manager(recorder, [self.jobs])

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator["Operator"]:
        running = asyncio.ensure_future(self._manager.run())
        try:
            await asyncio.gather(*(informer.wait_synced() for informer in self.jobs.informers))
            yield self
        finally:
            self._manager.stop()
            await running

    async def at_rest(self) -> None:
        """Return when nothing waits and nothing is in work; what waits for its time, waits."""
        while len(self.jobs.queue) or REGISTRY.get_sample_value("controller_runtime_active_workers", LABELS):
            await asyncio.sleep(0.05)


async def copied(control_plane: ControlPlane, client: Client, namespace: str) -> None:
    """As many jobs as are wanted of one that runs, in etcd and with all that belongs to them: the API server tells of
    each as of its own. A thousand real lives take minutes, and it is not they that are asked for here.
    """
    job_uid = (await client.get(FULL_JOBS, Key(namespace, name_of(0)))).uid
    pod_uid = (await client.get(PODS, Key(namespace, f"{name_of(0)}-worker-0"))).uid
    flag = "--listen-client-urls="
    url = next(each.removeprefix(flag) for each in control_plane.etcd.command if each.startswith(flag))
    async with Etcd.at(url) as etcd:
        kinds = ("batch.paddlepaddle.org/paddlejobs", "configmaps", "pods")  # in this order: an owner comes first
        found = [pair for kind in kinds for pair in await etcd.list_prefix(f"/registry/{kind}/{namespace}/")]
        originals = [pair for pair in found if name_of(0).encode() in pair.key]
        assert len(originals) == len(kinds)
        turns = asyncio.Semaphore(AT_ONCE)

        async def copy(number: int) -> None:
            new = {name_of(0): name_of(number), job_uid: str(uuid.uuid4()), pod_uid: str(uuid.uuid4())}
            async with turns:
                for pair in originals:
                    await etcd.put(KeyValue(replaced(pair.key, new), replaced(pair.value, new)))

        await asyncio.gather(*(copy(number) for number in range(1, JOBS)))


def name_of(number: int) -> str:
    return f"job-{number:04d}"


def replaced(text: bytes, new: dict[str, str]) -> bytes:
    """Names and UIDs of the same length, so that the lengths that stand beside them stay right."""
    for before, after in new.items():
        text = text.replace(before.encode(), after.encode())
    return text


def passes() -> float:
    results = ("success", "requeue_after", "error")
    name = "controller_runtime_reconcile_total"
    return sum(REGISTRY.get_sample_value(name, {**LABELS, "result": each}) or 0 for each in results)


async def test_thousand_running_jobs_cost_no_write(
    control_plane: ControlPlane, garbage_collector: None, namespace: str, pytestconfig: pytest.Config
) -> None:
    async with (
        Client(control_plane.connection()) as client,
        Client(await create_operator_connection(control_plane)) as ours,
        HollowNodes(client, count=NODES, pods=JOBS // NODES + 10) as nodes,
        watch_objects(client, FULL_JOBS, Scope(namespace)) as jobs,
    ):
        by_phase = jobs.store.index(lambda job: (job.phase,))
        async with Operator(ours, namespace).at_work() as operator:
            metadata = {"name": name_of(0), "namespace": namespace}
            await client.create(FULL_JOBS, make_job(workers=1) | {"metadata": metadata})
            await jobs.wait_until(lambda: len(by_phase["Running"]) == 1)
            await copied(control_plane, client, namespace)
            await jobs.wait_until(lambda: len(by_phase["Running"]) == JOBS)
            await operator.at_rest()
        clock, before = FakeClock(datetime.now(UTC)), passes()
        async with control_plane.audit.recording() as writes, Operator(ours, namespace, clock).at_work() as operator:
            await clock.advance(STEP_SECONDS)
            await operator.at_rest()
            looked = passes()
            for _ in range(TEN_MINUTES // STEP_SECONDS):
                await clock.advance(STEP_SECONDS)
                await operator.at_rest()
        print_line(
            pytestconfig,
            f"{JOBS} running jobs: {looked - before:.0f} passes at the start, {passes() - looked:.0f} after",
        )
        assert looked - before >= JOBS  # it did look at each
        assert passes() - looked <= JOBS / 10
        assert list(writes.by(OPERATOR)) == []
        async with control_plane.audit.recording() as writes, Operator(ours, namespace).at_work():
            await nodes.exit(f"{name_of(0)}-worker-0", 0, namespace=namespace)
            await jobs.until(name_of(0), lambda job: job.phase == "Completed")
        assert writes.by(OPERATOR)  # so they would have been seen
