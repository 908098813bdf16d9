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

from bench.cluster import BenchCluster, ProgramError
from bench.failover import failover
from bench.figures import FIGURES, NAMESPACES, QUICK, Samples, Size
from bench.lifecycle import FINISHED_JOBS, GANG, finished_jobs, restart
from bench.loads import LARGE, LOADS, NAMESPACE, ROUNDS, behind, load
from bench.local import local
from bench.ranges import ranges
from bench.soak import WAVE, soak
from bench.table import Row, format_table, format_verdict, rows
from testbed.assets import ensure_binaries, kubernetes_version
from testbed.control_plane import ControlPlane
from testbed.progress import Progress
from testbed.servers import ServerStartError
from testbed.toolchain import AssetsError

MAX_SECONDS = 60 * 60.0  # an idle machine with two cores needs half of it
BEHIND = "behind"
LOAD_NAMES = (*(f"load-{name}" for name in LOADS), BEHIND)
RESTART, FINISHED, LIFECYCLE_ROUNDS = "restart", "finished", 3
FAILOVER, FAILOVER_ROUNDS = "failover", 20
SOAK = "soak"
LOCAL, LOCAL_ROUNDS = "local", 5
NAMES = (*FIGURES, LOCAL, *LOAD_NAMES, RESTART, FINISHED, FAILOVER, SOAK)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    all_names = f"{', '.join(NAMES)}; load stands for {LOAD_NAMES[0]} and all after it"
    parser.add_argument("figures", nargs="*", metavar="figure", help=f"of {all_names}; default: all")
    parser.add_argument("--rounds", type=int, help="rounds per figure, instead of its default")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few pods and one round, to check that everything runs; no budget is judged",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each figure instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit with code 1 if a budget was missed")
    parsed = parser.parse_args(arguments)
    if "load" in parsed.figures:
        parsed.figures = [*(name for name in parsed.figures if name != "load"), *LOAD_NAMES]
    if unknown := set(parsed.figures) - set(NAMES):
        parser.error(f"unknown figure {', '.join(sorted(unknown))}: use {', '.join(NAMES)}")
    if parsed.rounds is not None and parsed.rounds < 1:
        parser.error("--rounds must be at least 1")
    return parsed


class BenchRun:
    """One run of the selected figures; `samples` stay valid if a later figure fails."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.samples: Samples = {}
        self.progress = Progress()
        self._figures = arguments.figures or NAMES
        self._quick = arguments.quick
        self._rounds = arguments.rounds

    async def run(self) -> None:
        """Measure all selected figures. SIGTERM cancels the run as Ctrl-C does, and every process is stopped."""
        task = asyncio.current_task()
        assert task
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with asyncio.timeout(MAX_SECONDS):
            if any(name in FIGURES for name in self._figures):
                await self._measure_on_quiet_cluster()
            if LOCAL in self._figures:
                self._record(LOCAL, await local(self.progress, self._rounds_of(LOCAL_ROUNDS)))
            await self._measure_loads()

    async def _measure_on_quiet_cluster(self) -> None:
        async with start_control_plane() as control_plane:
            cluster = await BenchCluster.create_quiet(control_plane, NAMESPACES, self.progress)
            for name, (figure, usual_rounds) in FIGURES.items():
                if name in self._figures:
                    size = QUICK if self._quick else Size()
                    self._record(name, await figure(cluster, size, self._rounds_of(usual_rounds)))

    async def _measure_loads(self) -> None:
        for name, shape in LOADS.items():
            if f"load-{name}" in self._figures:
                jobs = shape.quick if self._quick else shape
                self._record(f"load-{name}", await load(self._new_cluster, name, jobs, self._rounds_of(ROUNDS)))
        if BEHIND in self._figures:
            jobs = LARGE.quick if self._quick else LARGE
            self._record(BEHIND, await behind(self._new_cluster, jobs, self._rounds_of(ROUNDS)))

        if RESTART in self._figures:
            jobs = GANG.quick if self._quick else GANG
            self._record(RESTART, await restart(self._new_cluster, jobs, self._rounds_of(LIFECYCLE_ROUNDS)))
        if FINISHED in self._figures:
            number = 100 if self._quick else FINISHED_JOBS
            self._record(FINISHED, await finished_jobs(self._new_cluster, number, self._rounds_of(LIFECYCLE_ROUNDS)))

        if FAILOVER in self._figures:
            self._record(FAILOVER, await failover(self._new_cluster, self._rounds_of(FAILOVER_ROUNDS)))

        if SOAK in self._figures:
            self._record(SOAK, await soak(self._new_cluster, WAVE.quick if self._quick else WAVE, self._rounds_of(1)))

    @asynccontextmanager
    async def _new_cluster(self) -> AsyncIterator[BenchCluster]:
        async with start_control_plane() as control_plane:
            yield await BenchCluster.create_live(control_plane, (NAMESPACE,), self.progress)

    def _rounds_of(self, usual: int) -> int:
        return self._rounds or (1 if self._quick else usual)

    def _record(self, name: str, samples: Samples) -> None:
        self.samples |= samples
        self.progress.print_line(f"{name} measured ({self.progress.elapsed}; load average {os.getloadavg()[0]:.1f})")


@asynccontextmanager
async def start_control_plane() -> AsyncIterator[ControlPlane]:
    control_plane = await asyncio.to_thread(ControlPlane.start, ensure_binaries())
    try:
        yield control_plane
    finally:
        await asyncio.to_thread(control_plane.close)


def describe_machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Kubernetes {kubernetes_version()}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, {memory:.0f} GiB, load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}"
    )


def print_report(table: Sequence[Row], *, as_json: bool, judged: bool) -> None:
    if as_json:
        for row in table:
            print(msgspec.json.encode(row.json_fields).decode())
        return
    print(f"{describe_machine()}\n\n{format_table(table)}\n")
    print(format_verdict(table) if judged else "few pods and one round: the figures only show that everything runs")


def main() -> None:
    arguments = options()
    bench_run = BenchRun(arguments)
    bench_run.progress.print_line(f"before: {describe_machine()}")
    failure = ""
    try:
        asyncio.run(bench_run.run())
    except (AssetsError, ServerStartError, ProgramError) as error:
        failure = str(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        failure = "interrupted before everything was measured"
    except TimeoutError:
        failure = f"not finished within {MAX_SECONDS / 60:.0f} minutes; check that the machine is idle"
    known = ranges()
    if arguments.quick:
        known = {name: each.without_limit for name, each in known.items()}
    table = rows(known, bench_run.samples)
    if table:  # figures measured before a failure are still valid
        print_report(table, as_json=arguments.json, judged=not arguments.quick)
    sys.exit(failure or (arguments.strict and any(row.is_missed for row in table)))


if __name__ == "__main__":
    main()
