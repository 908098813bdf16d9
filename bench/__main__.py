"""python -m bench: measure on a real API server and print each figure with its spread, its budget and its share."""

import argparse
import asyncio
import os
import platform
import signal
import sys
from collections.abc import Sequence

import msgspec

from bench.bed import Bed, ProgramError
from bench.figures import FIGURES, NAMESPACES, QUICK, Samples, Size
from bench.ranges import ranges
from bench.table import Row, rows, table, verdict
from testbed.assets import binaries, kubernetes_version
from testbed.control_plane import ControlPlane
from testbed.progress import Progress
from testbed.servers import StartError
from testbed.toolchain import AssetsError

LONGEST_SECONDS = 30 * 60.0  # six minutes on two cores that have nothing else to do


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="figure", help=f"of {', '.join(FIGURES)}; all, if none is named")
    parser.add_argument("--rounds", type=int, help="how often each is measured, instead of what suits it")
    parser.add_argument("--quick", action="store_true", help="few pods and one round: does it run? No budget is judged")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each figure instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit code 1 where a budget was missed")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.figures) - set(FIGURES):
        parser.error(f"no figure is named {', '.join(sorted(unknown))}: there are {', '.join(FIGURES)}")
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds is at least 1")
    return asked


async def measure(asked: argparse.Namespace, progress: Progress, samples: Samples) -> None:
    """Add every figure that was asked for to the samples; SIGTERM ends it as Ctrl-C does, with nothing left behind."""
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    control_plane = await asyncio.to_thread(ControlPlane.start, binaries())
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            bed = await Bed.quiet(control_plane, NAMESPACES, progress)
            for name, (figure, usual_rounds) in FIGURES.items():
                if not asked.figures or name in asked.figures:
                    rounds = asked.rounds or (1 if asked.quick else usual_rounds)
                    samples |= await figure(bed, QUICK if asked.quick else Size(), rounds)
                    progress.say(f"{name} is measured ({progress.elapsed}; load average {os.getloadavg()[0]:.1f})")
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
    progress = Progress()
    progress.say(f"before: {machine()}")
    samples: Samples = {}
    failure = ""
    try:
        asyncio.run(measure(asked, progress, samples))
    except (AssetsError, StartError, ProgramError) as error:
        failure = str(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        failure = "ended before everything was measured"
    except TimeoutError:
        failure = f"not everything was measured in {LONGEST_SECONDS / 60:.0f} minutes: is the machine busy?"
    known = ranges()
    if asked.quick:
        known = {name: each.unlimited for name, each in known.items()}
    seen = rows(known, samples)
    if seen:  # what was measured before a failure is as good as ever
        show(seen, as_json=asked.json, judged=not asked.quick)
    sys.exit(failure or (asked.strict and any(row.missed for row in seen)))


if __name__ == "__main__":
    main()
