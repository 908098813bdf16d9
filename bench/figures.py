"""The figures of the runtime: which programs measure each, how often and in which order.

Where a figure has a ceiling, both sides take turns (ours, bare, bare, ours, …), so that a disturbance of the machine
affects both.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from bench.cluster import BenchCluster, Figures, Program, ProgramError
from bench.program import resident_megabytes
from bench.programs.burst import Burst
from bench.programs.copy import Copy
from bench.programs.create import Create
from bench.programs.fill import Fill
from bench.programs.patch import Patch
from bench.programs.sync import Sync
from bench.programs.watch import Watch
from bench.table import format_number
from testbed.ports import LOOPBACK, find_free_ports
from testbed.request import send

Side = Literal["ours", "bare"]
Samples = dict[str, list[float]]
Figure = Callable[[BenchCluster, "Size", int], Awaitable[Samples]]


@dataclass(frozen=True)
class Size:
    """How much each figure is measured on."""

    created: int = 1_000
    slices: int = 10
    watched: int = 1_000
    patches: int = 4  # of each pod
    bursts: int = 10
    originals: int = 2_000  # created through the API; the other pods are copies of these
    synced: int = 10_000
    cached: int = 100_000


QUICK = Size(created=100, slices=5, watched=100, patches=2, bursts=2, originals=100, synced=500, cached=1_000)
LAST_EVENT_TIMEOUT_SECONDS = 60.0  # after the last write
SYNC_SIDES: tuple[Literal["pages", "bare"], ...] = ("pages", "bare")
READY_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.1
SETTLE_SECONDS = 2.0
FIRST_POD: dict[Side, int] = {"ours": 0, "bare": 50_000}  # by number: the names of the two must differ
NAMESPACES = ("idle", "create", "watch", "cache")


async def idle(cluster: BenchCluster, _: Size, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        (port,) = find_free_ports(1)
        async with cluster.manager("idle", port) as manager:
            await asyncio.to_thread(wait_until_ready, port)
            await asyncio.sleep(SETTLE_SECONDS)
            figures = {"resident": resident_megabytes(manager.pid)}
            manager.stop()
        report_round(cluster, f"idle, round {turn + 1} of {rounds}", figures)
        samples["idle_resident"].append(figures["resident"])
    return samples


def wait_until_ready(port: int) -> None:
    """Wait until the operator's caches are synced. Raises ProgramError."""
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while not send("GET", f"http://{LOOPBACK}:{port}/readyz").ok:
        if time.monotonic() > deadline:
            raise ProgramError(f"the operator was not ready within {READY_TIMEOUT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


async def create(cluster: BenchCluster, size: Size, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        figures = await create_in_turns(cluster, size)
        await cluster.delete_pods("create")
        for side, prefix in (("ours", "create"), ("bare", "create_bare")):
            report_round(cluster, f"create, {side}, round {turn + 1} of {rounds}", figures[side])
            samples[f"{prefix}_rate"].append(figures[side]["rate"])
            samples[f"{prefix}_cpu"].append(figures[side]["cpu"])
        samples["create_share"].append(100 * figures["ours"]["rate"] / figures["bare"]["rate"])
    return samples


async def create_in_turns(cluster: BenchCluster, size: Size) -> dict[str, Figures]:
    """Figures of both sides for as many pods each, slice by slice in turns."""
    common, pods = cluster.common_options("create"), size.created // size.slices
    sides: dict[str, Program] = {}
    slices: dict[str, list[Figures]] = {"ours": [], "bare": []}
    async with AsyncExitStack() as stack:
        for side, first in FIRST_POD.items():
            options = Create(**common, side=side, first=first, slices=size.slices, pods=pods)
            sides[side] = await stack.enter_async_context(cluster.start_program("create", options))
            await sides[side].read_figures()  # it is ready
        for turn in range(size.slices):
            for side in side_order(turn):
                sides[side].resume()
                slices[side].append(await sides[side].read_figures())
    created = size.slices * pods
    return {
        side: {
            "rate": created / sum(each["seconds"] for each in figures),
            "cpu": sum(each["cpu"] for each in figures) / created * 1e6,
        }
        for side, figures in slices.items()
    }


async def watch(cluster: BenchCluster, size: Size, rounds: int) -> Samples:
    await fill(cluster, "watch", size.watched)
    samples: Samples = defaultdict(list)
    common = cluster.common_options("watch")
    generators: list[tuple[str, Patch | Burst]] = [
        ("patch", Patch(**common, pods=size.watched, turns=size.patches)),
        ("burst", Burst(**common, etcd=cluster.etcd, pods=size.watched, turns=size.bursts)),
    ]
    for turn in range(rounds):
        for side in side_order(turn):
            for generator, changes in generators:
                figures = await watch_in_turns(cluster, side, generator, changes)
                report_round(cluster, f"watch, {generator}, {side}, round {turn + 1} of {rounds}", figures)
                prefix = f"watch_{generator}" if side == "ours" else f"watch_{generator}_bare"
                samples[f"{prefix}_cpu"].append(figures["cpu"])
                if side == "ours":
                    samples[f"{prefix}_rate"].append(figures["rate"])
    return samples


async def watch_in_turns(cluster: BenchCluster, side: Side, generator: str, changes: Patch | Burst) -> Figures:
    """Figures of a watcher while another process makes the changes. Raises ProgramError."""
    events = changes.pods * changes.turns
    async with cluster.start_program(
        "watch", Watch(**cluster.common_options("watch"), side=side, events=events)
    ) as watcher:
        await watcher.read_figures()  # it is ready
        await cluster.run(generator, changes)
        try:
            return await asyncio.wait_for(watcher.read_figures(), LAST_EVENT_TIMEOUT_SECONDS)
        except TimeoutError:
            raise ProgramError(
                f"{side} did not receive {events} events within {LAST_EVENT_TIMEOUT_SECONDS:.0f} s after the last write"
            ) from None


async def sync(cluster: BenchCluster, size: Size, rounds: int) -> Samples:
    await fill(cluster, "cache", size.originals)
    await copy(cluster, "cache", size.originals, size.synced)
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        for side in SYNC_SIDES:
            figures = await cluster.run("sync", Sync(**cluster.common_options("cache"), side=side, pods=size.synced))
            report_round(cluster, f"sync, {side}, round {turn + 1} of {rounds}", figures)
            samples[f"sync_{side}_cpu"].append(figures["cpu"])
            if side != "bare":
                samples[f"sync_{side}_peak"].append(figures["peak"])
    return samples


async def memory(cluster: BenchCluster, size: Size, rounds: int) -> Samples:
    """Reuses the pods of sync, if that ran before."""
    await fill(cluster, "cache", size.originals)
    await copy(cluster, "cache", size.originals, size.cached)
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        figures = await cluster.run("sync", Sync(**cluster.common_options("cache"), side="pages", pods=size.cached))
        report_round(cluster, f"memory, round {turn + 1} of {rounds}", figures)
        samples["memory_cache"].append(figures["cache"])
        samples["memory_peak"].append(figures["peak"])
        samples["memory_cpu"].append(figures["cpu"])
    return samples


async def fill(cluster: BenchCluster, purpose: str, pods: int) -> None:
    """Fill a namespace up to this number of pods."""
    first = cluster.filled[purpose]
    if first < pods:
        await cluster.run("fill", Fill(**cluster.common_options(purpose), first=first, end=pods))
        cluster.filled[purpose] = pods
        cluster.progress.print_line(f"{pods - first:,} pods created through the API ({cluster.progress.elapsed})")


async def copy(cluster: BenchCluster, purpose: str, originals: int, pods: int) -> None:
    """Fill a namespace up to this number of pods, most of them copied in etcd."""
    first = cluster.filled[purpose]
    await cluster.run(
        "copy", Copy(**cluster.common_options(purpose), etcd=cluster.etcd, originals=originals, first=first, end=pods)
    )
    cluster.filled[purpose] = pods
    cluster.progress.print_line(f"{pods - first:,} pods copied in etcd ({cluster.progress.elapsed})")


def side_order(number: int) -> tuple[Side, Side]:
    """The order of both sides in a round: each is first as often as the other."""
    return ("bare", "ours") if number % 2 else ("ours", "bare")


def report_round(cluster: BenchCluster, title: str, figures: Figures) -> None:
    cluster.progress.print_line(
        f"{title}: {', '.join(f'{name} {format_number(value)}' for name, value in figures.items())}"
    )


FIGURES: dict[str, tuple[Figure, int]] = {
    "idle": (idle, 5),
    "create": (create, 7),
    "watch": (watch, 3),
    "sync": (sync, 5),
    "memory": (memory, 3),
}
"""With the number of rounds, in the order in which they are measured: those that leave many pods behind come last."""
