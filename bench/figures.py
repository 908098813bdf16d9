"""The figures: which programs are run for each, how often and in which order.

Where a figure has a ceiling, the two take turns (ours, bare, bare, ours, …), so that what disturbs the machine for a
while disturbs both.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from bench.bed import Bed, Program, ProgramError, Told
from bench.program import resident_megabytes
from bench.programs.burst import Burst
from bench.programs.copy import Copy
from bench.programs.create import Create
from bench.programs.fill import Fill
from bench.programs.patch import Patch
from bench.programs.sync import Sync
from bench.programs.watch import Watch
from bench.table import number
from testbed.ports import LOOPBACK, free_ports
from testbed.request import send

Side = Literal["ours", "bare"]
Samples = dict[str, list[float]]
Figure = Callable[[Bed, "Size", int], Awaitable[Samples]]


@dataclass(frozen=True)
class Size:
    """How much each figure is measured on."""

    created: int = 1_000
    slices: int = 10
    watched: int = 1_000
    patches: int = 4  # of each pod
    bursts: int = 10
    made: int = 2_000  # through the API; the others of the cache are copies of these
    synced: int = 10_000
    cached: int = 100_000


QUICK = Size(created=100, slices=5, watched=100, patches=2, bursts=2, made=100, synced=500, cached=1_000)
LAST_EVENT_SECONDS = 60.0  # after the last write
LISTED: tuple[Literal["pages", "bare", "stream"], ...] = ("pages", "bare", "stream")
READY_SECONDS = 60.0
POLL_SECONDS = 0.1
SETTLE_SECONDS = 2.0
FIRST_POD: dict[Side, int] = {"ours": 0, "bare": 50_000}  # by number: the names of the two must differ
NAMESPACES = ("idle", "create", "watch", "cache")


async def idle(bed: Bed, _: Size, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        (port,) = free_ports(1)
        async with bed.manager("idle", port) as manager:
            await asyncio.to_thread(wait_until_ready, port)
            await asyncio.sleep(SETTLE_SECONDS)
            told = {"resident": resident_megabytes(manager.pid)}
            manager.stop()
        note(bed, f"idle, round {turn + 1} of {rounds}", told)
        samples["idle_resident"].append(told["resident"])
    return samples


def wait_until_ready(port: int) -> None:
    """Return when the caches of the operator are filled. Raises ProgramError."""
    deadline = time.monotonic() + READY_SECONDS
    while not send("GET", f"http://{LOOPBACK}:{port}/readyz").ok:
        if time.monotonic() > deadline:
            raise ProgramError(f"the operator was not ready within {READY_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


async def create(bed: Bed, size: Size, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        told = await created(bed, size)
        await bed.delete_pods("create")
        for by, which in (("ours", "create"), ("bare", "create_bare")):
            note(bed, f"create, {by}, round {turn + 1} of {rounds}", told[by])
            samples[f"{which}_rate"].append(told[by]["rate"])
            samples[f"{which}_cpu"].append(told[by]["cpu"])
        samples["create_share"].append(100 * told["ours"]["rate"] / told["bare"]["rate"])
    return samples


async def created(bed: Bed, size: Size) -> dict[str, Told]:
    """What the two sides needed for as many pods each, slice by slice in turn."""
    place, pods = bed.place("create"), size.created // size.slices
    sides: dict[str, Program] = {}
    slices: dict[str, list[Told]] = {"ours": [], "bare": []}
    async with AsyncExitStack() as stack:
        for by, first in FIRST_POD.items():
            options = Create(**place, by=by, first=first, slices=size.slices, pods=pods)
            sides[by] = await stack.enter_async_context(bed.measuring("create", options))
            await sides[by].told()  # it is ready
        for turn in range(size.slices):
            for by in turns_of(turn):
                sides[by].go()
                slices[by].append(await sides[by].told())
    made = size.slices * pods
    return {
        by: {
            "rate": made / sum(each["seconds"] for each in told),
            "cpu": sum(each["cpu"] for each in told) / made * 1e6,
        }
        for by, told in slices.items()
    }


async def watch(bed: Bed, size: Size, rounds: int) -> Samples:
    await fill(bed, "watch", size.watched)
    samples: Samples = defaultdict(list)
    place = bed.place("watch")
    ways: list[tuple[str, Patch | Burst]] = [
        ("patch", Patch(**place, pods=size.watched, turns=size.patches)),
        ("burst", Burst(**place, etcd=bed.etcd, pods=size.watched, turns=size.bursts)),
    ]
    for turn in range(rounds):
        for by in turns_of(turn):
            for how, changes in ways:
                told = await followed(bed, by, how, changes)
                note(bed, f"watch, {how}, {by}, round {turn + 1} of {rounds}", told)
                which = f"watch_{how}" if by == "ours" else f"watch_{how}_bare"
                samples[f"{which}_cpu"].append(told["cpu"])
                if by == "ours":
                    samples[f"{which}_rate"].append(told["rate"])
    return samples


async def followed(bed: Bed, by: Side, how: str, changes: Patch | Burst) -> Told:
    """What a follower tells after another process has made the changes. Raises ProgramError."""
    events = changes.pods * changes.turns
    async with bed.measuring("watch", Watch(**bed.place("watch"), by=by, events=events)) as follower:
        await follower.told()  # it is ready
        await bed.run(how, changes)
        try:
            return await asyncio.wait_for(follower.told(), LAST_EVENT_SECONDS)
        except TimeoutError:
            raise ProgramError(f"{by} had not seen {events} events {LAST_EVENT_SECONDS:.0f} s after the last") from None


async def sync(bed: Bed, size: Size, rounds: int) -> Samples:
    await fill(bed, "cache", size.made)
    await copy(bed, "cache", size.made, size.synced)
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        for by in LISTED:
            told = await bed.run("sync", Sync(**bed.place("cache"), by=by, pods=size.synced))
            note(bed, f"sync, {by}, round {turn + 1} of {rounds}", told)
            samples[f"sync_{by}_cpu"].append(told["cpu"])
            if by != "bare":
                samples[f"sync_{by}_peak"].append(told["peak"])
    return samples


async def memory(bed: Bed, size: Size, rounds: int) -> Samples:
    """After sync, whose pods are among these; alone, it makes them all."""
    await fill(bed, "cache", size.made)
    await copy(bed, "cache", size.made, size.cached)
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        told = await bed.run("sync", Sync(**bed.place("cache"), by="pages", pods=size.cached))
        note(bed, f"memory, round {turn + 1} of {rounds}", told)
        samples["memory_cache"].append(told["cache"])
        samples["memory_peak"].append(told["peak"])
        samples["memory_cpu"].append(told["cpu"])
    return samples


async def fill(bed: Bed, purpose: str, pods: int) -> None:
    """Have so many pods in a namespace; those that are there already count."""
    first = bed.filled[purpose]
    if first < pods:
        await bed.run("fill", Fill(**bed.place(purpose), first=first, end=pods))
        bed.filled[purpose] = pods
        bed.progress.say(f"{pods - first:,} pods were made through the API ({bed.progress.elapsed})")


async def copy(bed: Bed, purpose: str, originals: int, pods: int) -> None:
    """Have so many pods in a namespace, most of them copies."""
    first = bed.filled[purpose]
    await bed.run("copy", Copy(**bed.place(purpose), etcd=bed.etcd, originals=originals, first=first, end=pods))
    bed.filled[purpose] = pods
    bed.progress.say(f"{pods - first:,} pods were copied in etcd ({bed.progress.elapsed})")


def turns_of(number: int) -> tuple[Side, Side]:
    """Who goes first in a round: each as often as the other."""
    return ("bare", "ours") if number % 2 else ("ours", "bare")


def note(bed: Bed, what: str, told: Told) -> None:
    bed.progress.say(f"{what}: {', '.join(f'{name} {number(value)}' for name, value in told.items())}")


FIGURES: dict[str, tuple[Figure, int]] = {
    "idle": (idle, 5),
    "create": (create, 7),
    "watch": (watch, 3),
    "sync": (sync, 5),
    "memory": (memory, 3),
}
"""With the number of rounds, in the order in which they are measured: those that leave many pods behind come last."""
