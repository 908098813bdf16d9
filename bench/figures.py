"""The figures: which programs are run for each, how often and in which order.

Where a figure has a ceiling, the two take turns (ours, bare, bare, ours, …), so that what disturbs the machine for a
while disturbs both.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from bench.bed import Bed, Told
from bench.program import Options
from bench.programs.create import Create
from bench.programs.fill import Fill
from bench.programs.patch import Patch
from bench.programs.sync import Sync
from bench.programs.watch import Watch
from bench.table import number

Side = Literal["ours", "bare"]
Samples = dict[str, list[float]]
Figure = Callable[[Bed, "Size", int], Awaitable[Samples]]


@dataclass(frozen=True)
class Size:
    """How much each figure is measured on."""

    created: int = 1_000
    watched: int = 1_000
    turns: int = 10
    synced: int = 10_000
    cached: int = 100_000


QUICK = Size(created=100, watched=50, turns=4, synced=500, cached=1_000)
LISTED: tuple[Literal["pages", "bare", "stream"], ...] = ("pages", "bare", "stream")
NAMESPACES = ("idle", "create", "watch", "cache")


async def idle(bed: Bed, _: Size, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        told = await bed.run("idle", Options(**bed.place("idle")))
        note(bed, f"idle, round {turn + 1} of {rounds}", told)
        samples["idle_resident"].append(told["resident"])
    return samples


async def create(bed: Bed, size: Size, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        told: dict[str, Told] = {}
        for by in turns_of(turn):
            told[by] = await bed.run("create", Create(**bed.place("create"), by=by, pods=size.created))
            note(bed, f"create, {by}, round {turn + 1} of {rounds}", told[by])
            await bed.delete_pods("create")
        samples["create_share"].append(100 * told["ours"]["rate"] / told["bare"]["rate"])
        samples["create_rate"].append(told["ours"]["rate"])
        samples["create_bare_rate"].append(told["bare"]["rate"])
        samples["create_cpu"].append(told["ours"]["cpu"])
        samples["create_bare_cpu"].append(told["bare"]["cpu"])
    return samples


async def watch(bed: Bed, size: Size, rounds: int) -> Samples:
    await fill(bed, "watch", size.watched)
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        for by in turns_of(turn):
            told = await followed(bed, size, by)
            note(bed, f"watch, {by}, round {turn + 1} of {rounds}", told)
            samples["watch_cpu" if by == "ours" else "watch_bare_cpu"].append(told["cpu"])
            if by == "ours":
                samples["watch_rate"].append(told["rate"])
    return samples


async def followed(bed: Bed, size: Size, by: Side) -> Told:
    """What a follower tells after another process has made so many changes."""
    place = bed.place("watch")
    async with bed.started("watch", Watch(**place, by=by, events=size.watched * size.turns)) as follower:
        await follower.told()  # it is ready
        await bed.run("patch", Patch(**place, pods=size.watched, turns=size.turns))
        return await follower.told()


async def sync(bed: Bed, size: Size, rounds: int) -> Samples:
    await fill(bed, "cache", size.synced)
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
    await fill(bed, "cache", size.cached)
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
    first, bed.filled[purpose] = bed.filled[purpose], pods
    if first < pods:
        told = await bed.run("fill", Fill(**bed.place(purpose), first=first, end=pods))
        note(bed, f"{pods - first:,} pods made", told)


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
