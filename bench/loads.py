"""Loads of jobs: how fast are pods created, at what CPU time and memory, and when are all jobs done?

Each side has its own control plane with the real scheduler and controller manager, and hollow nodes in a process of
their own. The ceiling is a bare loop that creates the same pods on the same kind of cluster, in turns with the
operator. The operator's writes are read from the API server's audit log.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from statistics import quantiles

from bench.cluster import BenchCluster, Figures, Program, ProgramError
from bench.figures import Samples, report_round, side_order, wait_until_ready
from bench.jobs import Shape
from bench.program import cpu_seconds, peak_megabytes
from bench.programs.ceiling import Ceiling
from bench.programs.nodes import Nodes
from bench.programs.submit import SMALL, SMALL_PREFIX, Submit
from testbed.audit import AuditedWrites
from testbed.ports import find_free_ports

ClusterFactory = Callable[[], AbstractAsyncContextManager[BenchCluster]]
"""A new cluster each time."""

NAMESPACE = "load"
OPERATOR, KUBELET, SUBMITTER = "tester-20", "tester-1", "tester-2"
EXITS_AFTER_SECONDS = 3.0
SMALL_EVERY_SECONDS = 0.2
SMALL_JOB_PODS_CAPACITY = 2_000
LATE_WRITES_SECONDS = 2.0
CREATED = 201

LOADS = {
    str(shape): shape
    for shape in (
        Shape(jobs=20, workers=50),
        Shape(jobs=100, workers=100),
        Shape(jobs=1, workers=1_000),
        Shape(jobs=500, workers=1, servers=1),
        Shape(jobs=1, workers=5_000),
    )
}
LARGE = Shape(jobs=1, workers=5_000)
ROUNDS = 3
SUBMITTED = "bare, jobs submitted meanwhile"
SMALL_JOB_PODS = 10  # per job: below this, submitting jobs is a large part of the API server's work
SMALL_JOB_LOADS = frozenset(name for name, shape in LOADS.items() if shape.pods_per_job < SMALL_JOB_PODS)


async def load(new_cluster: ClusterFactory, name: str, shape: Shape, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        figures: dict[str, Figures] = {}
        sides = [*side_order(turn), *([SUBMITTED] if name in SMALL_JOB_LOADS else [])]
        for by in sides:
            async with new_cluster() as cluster, hollow_nodes(cluster, shape.pods):
                figures[by] = await (
                    measure_operator(cluster, shape)
                    if by == "ours"
                    else measure_ceiling(cluster, shape, by == SUBMITTED)
                )
                report_round(cluster, f"load of {shape}, {by}, round {turn + 1} of {rounds}", figures[by])
        ours = figures["ours"] | {
            "ceiling": figures["bare"]["rate"],
            "share": 100 * figures["ours"]["rate"] / figures["bare"]["rate"],
        }
        if SUBMITTED in figures:
            ours["submitted_ceiling"] = figures[SUBMITTED]["rate"]
            ours["submitted_share"] = 100 * figures["ours"]["rate"] / figures[SUBMITTED]["rate"]
        for figure, value in ours.items():
            samples[f"load_{name}_{figure}"].append(value)
    return samples


@asynccontextmanager
async def hollow_nodes(
    cluster: BenchCluster, pods: int, exits_after: float = EXITS_AFTER_SECONDS, fails_once: str = ""
) -> AsyncIterator[None]:
    options = Nodes(
        **cluster.common_options(NAMESPACE, KUBELET), pods=pods, exits_after=exits_after, fails_once=fails_once
    )
    async with cluster.start_program("nodes", options) as nodes:
        await nodes.read_figures()  # the nodes are registered
        yield
        nodes.resume()  # signals the nodes to exit; they are killed if that takes long


async def measure_ceiling(cluster: BenchCluster, shape: Shape, submitted: bool = False) -> Figures:
    async with cluster.start_program(
        "ceiling", Ceiling(**cluster.common_options(NAMESPACE), shape=shape, submitted=submitted)
    ) as loop:
        await loop.read_figures()  # it is ready
        loop.resume()
        return await loop.read_figures()


async def measure_operator(cluster: BenchCluster, shape: Shape) -> Figures:
    """Figures of the operator for a load, clean-up included."""
    result = await run_load(
        cluster, Submit(**cluster.common_options(NAMESPACE, SUBMITTER), shape=shape, every_seconds=None)
    )
    ours = result.writes
    created = pod_creates(ours)
    assert len(created) == shape.pods, f"{len(created)} pods were created instead of {shape.pods}"
    return {
        "rate": shape.pods / (max(write.completed_at for write in created) - result.submitted_at).total_seconds(),
        "done": result.done,
        "cpu": result.cpu,
        "peak": result.peak,
        "writes_per_job": len(ours) / shape.jobs,
        "writes_per_pod": len(ours) / shape.pods,
    }


@dataclass(frozen=True)
class LoadResult:
    """A finished load; `writes` are the operator's, without its lease."""

    submitted_at: datetime
    done: float
    cpu: float
    peak: float
    writes: AuditedWrites
    others: AuditedWrites
    kubelet: AuditedWrites


async def run_load(cluster: BenchCluster, options: Submit) -> LoadResult:
    (port,) = find_free_ports(1)
    async with (
        cluster.manager(NAMESPACE, port, OPERATOR) as manager,
        cluster.start_program("submit", options) as submitter,
    ):
        await asyncio.to_thread(wait_until_ready, port)
        await cluster.wait_for_leader(NAMESPACE)
        await submitter.read_figures()  # it is ready
        cpu = cpu_seconds(manager.pid)
        async with cluster.audit.recording() as writes:
            submitter.resume()
            done = await wait_for_figure(submitter, "done")
            await wait_for_figure(submitter, "cleaned")
            await asyncio.sleep(LATE_WRITES_SECONDS)  # late writes are counted, too
        cpu, peak = cpu_seconds(manager.pid) - cpu, peak_megabytes(manager.pid)
        manager.stop()
    ours = AuditedWrites(write for write in writes.by(OPERATOR) if write.resource != "leases")
    others, kubelet = writes.by(SUBMITTER), writes.by(KUBELET)
    submitted_at = min(write.received_at for write in others.to("paddlejobs"))
    return LoadResult(submitted_at, done, cpu, peak, ours, others, kubelet)


def pod_creates(writes: AuditedWrites) -> AuditedWrites:
    return AuditedWrites(write for write in writes.to("pods") if write.verb == "create" and write.code == CREATED)


async def wait_for_figure(program: Program, name: str) -> float:
    """Read the next line, which must have this figure. Raises ProgramError."""
    figures = await program.read_figures()
    if name not in figures:
        raise ProgramError(f"the program printed {figures} instead of {name}")
    return figures[name]


async def behind(new_cluster: ClusterFactory, large: Shape, rounds: int) -> Samples:
    """How long a job of two pods, submitted behind a large job, waits for its first pod."""
    waits: list[float] = []
    for turn in range(rounds):
        async with new_cluster() as cluster, hollow_nodes(cluster, large.pods + SMALL_JOB_PODS_CAPACITY):
            common = cluster.common_options(NAMESPACE, SUBMITTER)
            result = await run_load(cluster, Submit(**common, shape=large, every_seconds=SMALL_EVERY_SECONDS))
            seconds = first_pod_seconds(result)
            waits += seconds
            figures = {"jobs": float(len(seconds)), "longest": max(seconds)}
            report_round(cluster, f"{SMALL} behind {large}, round {turn + 1} of {rounds}", figures)
    percentiles = quantiles(waits, n=100, method="inclusive")
    return {"behind_median": [percentiles[49]], "behind_p99": [percentiles[98]], "behind_jobs": [float(len(waits))]}


def first_pod_seconds(result: LoadResult) -> list[float]:
    """Seconds from the creation of each small job to that of its first pod."""
    first: dict[str, datetime] = {}
    for write in pod_creates(result.writes):
        job = "-".join(write.name.split("-")[:2])
        first[job] = min(write.completed_at, first.get(job, write.completed_at))
    small: Sequence[tuple[str, datetime]] = [
        (write.name, write.completed_at)
        for write in result.others.to("paddlejobs")
        if write.name.startswith(SMALL_PREFIX)
    ]
    return [(first[name] - submitted_at).total_seconds() for name, submitted_at in small]
