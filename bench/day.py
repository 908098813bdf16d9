"""A day of operation in fast motion: thousands of jobs through their lives, and what happens to an operator in a day.

Waves of jobs come, run, are cleaned and deleted. Between them the leader is killed, the API server is restarted, so
that every watch is cut, and the CRD is applied again. In the end a process has as much memory, and as many tasks, as
after its first waves, or it leaks.
"""

import asyncio
import os
import re
import signal
from collections import defaultdict
from contextlib import AsyncExitStack

from bench.bed import Bed, Program
from bench.figures import Samples, note, wait_until_ready
from bench.jobs import Shape
from bench.loads import NAMESPACE, SUBMITTER, Beds, awaited, hollow_nodes
from bench.program import resident_megabytes
from bench.programs.submit import Submit
from testbed.ports import LOOPBACK, free_ports
from testbed.request import send

WAVE = Shape(jobs=500, workers=1, servers=1)
WAVES = 8
FLAT_SINCE = 4  # waves: the second replica leads then, and has been through everything
SETTLE_SECONDS = 5.0
TASKS = re.compile(rb"^asyncio_tasks (\S+)$", re.MULTILINE)


class Replica:
    def __init__(self, program: Program, port: int) -> None:
        self._program = program
        self._port = port

    @property
    def tasks(self) -> float:
        found = TASKS.search(send("GET", f"http://{LOOPBACK}:{self._port}/metrics").body)
        assert found, "the operator does not tell its tasks"
        return float(found[1])

    @property
    def resident(self) -> float:
        return resident_megabytes(self._program.pid)

    def kill(self) -> None:
        os.kill(self._program.pid, signal.SIGKILL)


async def day(beds: Beds, wave: Shape, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        async with beds() as bed, hollow_nodes(bed, wave.pods), AsyncExitStack() as stack:
            first, second = await joined(bed, stack), await joined(bed, stack)
            seen: list[tuple[float, float]] = []
            for number in range(WAVES):
                await lived(bed, wave)
                leader = first if number == 0 else second
                seen.append((leader.resident, leader.tasks))
                note(bed, f"wave {number + 1} of {WAVES}", {"resident": seen[-1][0], "tasks": seen[-1][1]})
                if number == 0:
                    first.kill()
                elif number == 1:
                    await bed.disturb()
                elif number == 2:
                    await bed.define_again()
        samples["day_jobs"].append(float(WAVES * wave.jobs))
        samples["day_growth"].append(seen[-1][0] - seen[FLAT_SINCE - 1][0])
        samples["day_tasks"].append(seen[-1][1])
        note(bed, f"day, round {turn + 1} of {rounds}", {"growth": samples["day_growth"][-1]})
    return samples


async def joined(bed: Bed, stack: AsyncExitStack) -> Replica:
    health, metrics = free_ports(2)
    program = await stack.enter_async_context(bed.manager(NAMESPACE, health, metrics_port=metrics))
    stack.callback(program.stop)
    await asyncio.to_thread(wait_until_ready, health)
    return Replica(program, metrics)


async def lived(bed: Bed, wave: Shape) -> None:
    """All of it, up to the deletion of the jobs."""
    options = Submit(**bed.place(NAMESPACE, SUBMITTER), shape=wave, every_seconds=None)
    async with bed.measuring("submit", options) as submitter:
        await submitter.told()  # it is ready
        submitter.go()
        await awaited(submitter, "done")
        await awaited(submitter, "cleaned")
    await bed.delete_jobs(NAMESPACE)
    await asyncio.sleep(SETTLE_SECONDS)
