"""What a job costs the API server, from its own audit log: N + c writes and a wake-up a pod; idle, none at all."""

import asyncio
import time

import pytest

from tests.conftest import print_line
from tests.stories.harness import ClusterHarness
from tests.stories.jobs import make_job
from tests.support.service_account import OPERATOR

PODS = 24
FEW = 15  # status, events, the ConfigMap and the clean-up together, however many pods there are
COUNTED_EVERY_SECONDS = 1  # counters that change are told as often


@pytest.mark.parametrize(("intranet", "writes_per_pod"), [("PodIP", 2), ("Service", 3)])
async def test_a_jobs_whole_life_costs_a_few_writes_a_pod(
    harness: ClusterHarness, pytestconfig: pytest.Config, intranet: str, writes_per_pod: int
) -> None:
    began_at = time.monotonic()
    async with harness.control_plane.audit.recording() as writes:
        await harness.submit(make_job("wide", ps=4, workers=PODS - 4, intranet=intranet, cleanPodPolicy="Always"))
        await harness.wait_phase("wide", "Running")
        await harness.exit_pods("wide-worker-*")
        await harness.wait_phase("wide", "Completed")
        await harness.wait_pods(lambda pods: not pods)
        await asyncio.sleep(0.5)  # what comes late is counted, too
    ours = writes.by(OPERATOR)
    counts = {f"{verb} {target}": count for (_, verb, target), count in ours.counts().items()}
    print_line(pytestconfig, f"budget, {intranet}, {PODS} pods: {len(ours)} writes: {counts}")
    assert counts["create pods"] == PODS
    assert counts.get("patch pods", 0) <= PODS
    slowly = int(time.monotonic() - began_at) // COUNTED_EVERY_SECONDS  # of a job that changes slowly more is told
    assert len(ours) <= writes_per_pod * PODS + FEW + slowly


async def test_running_and_finished_jobs_cost_nothing(harness: ClusterHarness) -> None:
    names = [f"job-{number}" for number in range(10)]
    await harness.submit(*(make_job(name, workers=2, cleanPodPolicy="Never") for name in names))
    for name in names:
        await harness.wait_phase(name, "Running")
        await harness.wait_event(name, "AllPodsRunning")
    await harness.exit_pods("job-[0-4]-worker-*")
    for name in names[:5]:
        await harness.wait_phase(name, "Completed")
        await harness.wait_event(name, "Completed")
    await harness.run_unrelated_job("beside")  # so the operator had time for what may follow
    await harness.wait_idle(OPERATOR)
    async with harness.control_plane.audit.recording() as writes:
        await asyncio.sleep(5)
    assert list(writes.by(OPERATOR)) == []
