"""python -m bench: measure on a real API server and print each figure with its spread, its budget and its share."""

import argparse
import asyncio
import os
import platform
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from bench.bed import Bed, ProgramError
from bench.day import WAVE, day
from bench.failover import failover
from bench.figures import FIGURES, NAMESPACES, QUICK, Samples, Size
from bench.lives import GANG, KEPT, kept, restart
from bench.loads import LARGE, LOADS, NAMESPACE, ROUNDS, behind, load
from bench.local import local
from bench.ranges import ranges
from bench.table import Row, rows, table, verdict
from testbed.assets import binaries, kubernetes_version
from testbed.control_plane import ControlPlane
from testbed.progress import Progress
from testbed.servers import StartError
from testbed.toolchain import AssetsError

LONGEST_SECONDS = 60 * 60.0  # half of it on two cores that have nothing else to do
BEHIND = "behind"
OF_LOADS = (*(f"load-{name}" for name in LOADS), BEHIND)
RESTART, KEPT_NAME, LIVES_ROUNDS = "restart", "kept", 3
FAILOVER, FAILOVER_ROUNDS = "failover", 20
DAY = "day"
LOCAL, LOCAL_ROUNDS = "local", 5
NAMES = (*FIGURES, LOCAL, *OF_LOADS, RESTART, KEPT_NAME, FAILOVER, DAY)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    all_names = f"{', '.join(NAMES)}; load stands for {OF_LOADS[0]} and all that follow it"
    parser.add_argument("figures", nargs="*", metavar="figure", help=f"of {all_names}; all, if none is named")
    parser.add_argument("--rounds", type=int, help="how often each is measured, instead of what suits it")
    parser.add_argument("--quick", action="store_true", help="few pods and one round: does it run? No budget is judged")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each figure instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit code 1 where a budget was missed")
    asked = parser.parse_args(arguments)
    if "load" in asked.figures:
        asked.figures = [*(name for name in asked.figures if name != "load"), *OF_LOADS]
    if unknown := set(asked.figures) - set(NAMES):
        parser.error(f"no figure is named {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}")
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds is at least 1")
    return asked


class Measuring:
    """What was asked for, and what was seen so far: `samples` is as good as ever where a later figure fails."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.samples: Samples = {}
        self.progress = Progress()
        self._figures = asked.figures or NAMES
        self._quick = asked.quick
        self._rounds = asked.rounds

    async def everything(self) -> None:
        """SIGTERM ends it as Ctrl-C does, with nothing left behind."""
        task = asyncio.current_task()
        assert task
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with asyncio.timeout(LONGEST_SECONDS):
            if any(name in FIGURES for name in self._figures):
                await self._on_a_quiet_bed()
            if LOCAL in self._figures:
                self._measured(LOCAL, await local(self.progress, self._rounds_of(LOCAL_ROUNDS)))
            await self._loads()

    async def _on_a_quiet_bed(self) -> None:
        async with fresh_control_plane() as control_plane:
            bed = await Bed.quiet(control_plane, NAMESPACES, self.progress)
            for name, (figure, usual_rounds) in FIGURES.items():
                if name in self._figures:
                    size = QUICK if self._quick else Size()
                    self._measured(name, await figure(bed, size, self._rounds_of(usual_rounds)))

    async def _loads(self) -> None:
        for name, shape in LOADS.items():
            if f"load-{name}" in self._figures:
                jobs = shape.few if self._quick else shape
                self._measured(f"load-{name}", await load(self._fresh_bed, name, jobs, self._rounds_of(ROUNDS)))
        if BEHIND in self._figures:
            jobs = LARGE.few if self._quick else LARGE
            self._measured(BEHIND, await behind(self._fresh_bed, jobs, self._rounds_of(ROUNDS)))

        if RESTART in self._figures:
            jobs = GANG.few if self._quick else GANG
            self._measured(RESTART, await restart(self._fresh_bed, jobs, self._rounds_of(LIVES_ROUNDS)))
        if KEPT_NAME in self._figures:
            number = 100 if self._quick else KEPT
            self._measured(KEPT_NAME, await kept(self._fresh_bed, number, self._rounds_of(LIVES_ROUNDS)))

        if FAILOVER in self._figures:
            self._measured(FAILOVER, await failover(self._fresh_bed, self._rounds_of(FAILOVER_ROUNDS)))

        if DAY in self._figures:
            self._measured(DAY, await day(self._fresh_bed, WAVE.few if self._quick else WAVE, self._rounds_of(1)))

    @asynccontextmanager
    async def _fresh_bed(self) -> AsyncIterator[Bed]:
        async with fresh_control_plane() as control_plane:
            yield await Bed.live(control_plane, (NAMESPACE,), self.progress)

    def _rounds_of(self, usual: int) -> int:
        return self._rounds or (1 if self._quick else usual)

    def _measured(self, name: str, found: Samples) -> None:
        self.samples |= found
        self.progress.say(f"{name} is measured ({self.progress.elapsed}; load average {os.getloadavg()[0]:.1f})")


@asynccontextmanager
async def fresh_control_plane() -> AsyncIterator[ControlPlane]:
    control_plane = await asyncio.to_thread(ControlPlane.start, binaries())
    try:
        yield control_plane
    finally:
        await asyncio.to_thread(control_plane.end)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Kubernetes {kubernetes_version()}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, {memory:.0f} GiB, load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}"
    )


def show(seen: Sequence[Row], *, as_json: bool, judged: bool) -> None:
    if as_json:
        for row in seen:
            print(msgspec.json.encode(row.facts).decode())
        return
    print(f"{machine()}\n\n{table(seen)}\n")
    print(verdict(seen) if judged else "few pods and one round: these figures say only that everything runs")


def main() -> None:
    asked = options()
    measuring = Measuring(asked)
    measuring.progress.say(f"before: {machine()}")
    failure = ""
    try:
        asyncio.run(measuring.everything())
    except (AssetsError, StartError, ProgramError) as error:
        failure = str(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        failure = "ended before everything was measured"
    except TimeoutError:
        failure = f"not everything was measured in {LONGEST_SECONDS / 60:.0f} minutes: is the machine busy?"
    known = ranges()
    if asked.quick:
        known = {name: each.unlimited for name, each in known.items()}
    seen = rows(known, measuring.samples)
    if seen:  # what was measured before a failure is as good as ever
        show(seen, as_json=asked.json, judged=not asked.quick)
    sys.exit(failure or (asked.strict and any(row.missed for row in seen)))


if __name__ == "__main__":
    main()
