"""Loads of whole jobs, as in rivals.md: how fast are their pods made, what does that cost, when is everything done?

Each side has a fresh control plane with its real scheduler and controller manager, and hollow nodes as a process of
their own. The ceiling is a bare loop that creates the same pods on the same kind of bed, in turns with the operator.
What the operator wrote and when is read from the API server's audit log.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from statistics import quantiles

from bench.bed import Bed, Program, ProgramError, Told
from bench.figures import Samples, note, turns_of, wait_until_ready
from bench.jobs import Shape
from bench.program import cpu_seconds, peak_megabytes
from bench.programs.ceiling import Ceiling
from bench.programs.nodes import Nodes
from bench.programs.submit import SMALL, SMALL_PREFIX, Submit
from testbed.audit import Writes
from testbed.ports import free_ports

Beds = Callable[[], AbstractAsyncContextManager[Bed]]
"""A fresh one each time."""

NAMESPACE = "load"
OPERATOR, KUBELET, SUBMITTER = "tester-20", "tester-1", "tester-2"
EXITS_AFTER_SECONDS = 3.0
SMALL_EVERY_SECONDS = 0.2
ROOM_FOR_SMALL = 2_000
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
FEW_PODS = 10  # a job: where it has fewer, that jobs are submitted is a good part of what the API server does
OF_SMALL_JOBS = frozenset(name for name, shape in LOADS.items() if shape.pods_per_job < FEW_PODS)


async def load(beds: Beds, name: str, shape: Shape, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        told: dict[str, Told] = {}
        sides = [*turns_of(turn), *([SUBMITTED] if name in OF_SMALL_JOBS else [])]
        for by in sides:
            async with beds() as bed, hollow_nodes(bed, shape.pods):
                told[by] = await (carried(bed, shape) if by == "ours" else bare(bed, shape, by == SUBMITTED))
                note(bed, f"load of {shape}, {by}, round {turn + 1} of {rounds}", told[by])
        ours = told["ours"] | {
            "ceiling": told["bare"]["rate"],
            "share": 100 * told["ours"]["rate"] / told["bare"]["rate"],
        }
        if SUBMITTED in told:
            ours["submitted_ceiling"] = told[SUBMITTED]["rate"]
            ours["submitted_share"] = 100 * told["ours"]["rate"] / told[SUBMITTED]["rate"]
        for figure, value in ours.items():
            samples[f"load_{name}_{figure}"].append(value)
    return samples


@asynccontextmanager
async def hollow_nodes(
    bed: Bed, pods: int, exits_after: float = EXITS_AFTER_SECONDS, fails_once: str = ""
) -> AsyncIterator[None]:
    options = Nodes(**bed.place(NAMESPACE, KUBELET), pods=pods, exits_after=exits_after, fails_once=fails_once)
    async with bed.measuring("nodes", options) as nodes:
        await nodes.told()  # they are ready
        yield
        nodes.go()  # away with them; where that takes long, since many pods are left, they are just ended


async def bare(bed: Bed, shape: Shape, submitted: bool = False) -> Told:
    async with bed.measuring("ceiling", Ceiling(**bed.place(NAMESPACE), shape=shape, submitted=submitted)) as loop:
        await loop.told()  # it is ready
        loop.go()
        return await loop.told()


async def carried(bed: Bed, shape: Shape) -> Told:
    """What the operator needed for the whole lives of the jobs, clean-up included."""
    work = await worked(bed, Submit(**bed.place(NAMESPACE, SUBMITTER), shape=shape, every_seconds=None))
    ours = work.writes
    created = pod_creates(ours)
    assert len(created) == shape.pods, f"{len(created)} pods were made instead of {shape.pods}"
    return {
        "rate": shape.pods / (max(write.completed_at for write in created) - work.submitted_at).total_seconds(),
        "done": work.done,
        "cpu": work.cpu,
        "peak": work.peak,
        "writes_per_job": len(ours) / shape.jobs,
        "writes_per_pod": len(ours) / shape.pods,
    }


@dataclass(frozen=True)
class Work:
    """A load from its first job to its last pod; `writes` are the operator's, without its lease."""

    submitted_at: datetime
    done: float
    cpu: float
    peak: float
    writes: Writes
    others: Writes
    kubelet: Writes


async def worked(bed: Bed, options: Submit) -> Work:
    (port,) = free_ports(1)
    async with bed.manager(NAMESPACE, port, OPERATOR) as manager, bed.measuring("submit", options) as submitter:
        await asyncio.to_thread(wait_until_ready, port)
        await bed.leads(NAMESPACE)
        await submitter.told()  # it is ready
        cpu = cpu_seconds(manager.pid)
        async with bed.audit.recording() as writes:
            submitter.go()
            done = await awaited(submitter, "done")
            await awaited(submitter, "cleaned")
            await asyncio.sleep(LATE_WRITES_SECONDS)  # what comes late is counted, too
        cpu, peak = cpu_seconds(manager.pid) - cpu, peak_megabytes(manager.pid)
        manager.stop()
    ours = Writes(write for write in writes.by(OPERATOR) if write.resource != "leases")
    others, kubelet = writes.by(SUBMITTER), writes.by(KUBELET)
    submitted_at = min(write.received_at for write in others.to("paddlejobs"))
    return Work(submitted_at, done, cpu, peak, ours, others, kubelet)


def pod_creates(writes: Writes) -> Writes:
    return Writes(write for write in writes.to("pods") if write.verb == "create" and write.code == CREATED)


async def awaited(program: Program, name: str) -> float:
    """The next line, which must have this figure. Raises ProgramError."""
    told = await program.told()
    if name not in told:
        raise ProgramError(f"told was {told} instead of {name}")
    return told[name]


async def behind(beds: Beds, large: Shape, rounds: int) -> Samples:
    """How long does a job of two pods that comes behind a large one wait for its first pod?"""
    waits: list[float] = []
    for turn in range(rounds):
        async with beds() as bed, hollow_nodes(bed, large.pods + ROOM_FOR_SMALL):
            place = bed.place(NAMESPACE, SUBMITTER)
            work = await worked(bed, Submit(**place, shape=large, every_seconds=SMALL_EVERY_SECONDS))
            found = first_pod_seconds(work)
            waits += found
            told = {"jobs": float(len(found)), "longest": max(found)}
            note(bed, f"{SMALL} behind {large}, round {turn + 1} of {rounds}", told)
    percentiles = quantiles(waits, n=100, method="inclusive")
    return {"behind_median": [percentiles[49]], "behind_p99": [percentiles[98]], "behind_jobs": [float(len(waits))]}


def first_pod_seconds(work: Work) -> list[float]:
    """Of each small job, from the moment the API server had it."""
    first: dict[str, datetime] = {}
    for write in pod_creates(work.writes):
        job = "-".join(write.name.split("-")[:2])
        first[job] = min(write.completed_at, first.get(job, write.completed_at))
    small: Sequence[tuple[str, datetime]] = [
        (write.name, write.completed_at)
        for write in work.others.to("paddlejobs")
        if write.name.startswith(SMALL_PREFIX)
    ]
    return [(first[name] - submitted_at).total_seconds() for name, submitted_at in small]
