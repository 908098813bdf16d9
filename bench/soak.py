"""Soak test: does the operator leak memory or tasks over thousands of jobs and the failures of a day?

Waves of jobs run, are cleaned up and deleted. Between them the leader is killed, the API server is restarted and the
CRD is applied again. A process without a leak ends with the memory and tasks that it had after its first waves.
"""

import asyncio
import os
import re
import signal
from collections import defaultdict
from contextlib import AsyncExitStack

from bench.cluster import BenchCluster, Program
from bench.figures import Samples, report_round, wait_until_ready
from bench.jobs import Shape
from bench.loads import NAMESPACE, SUBMITTER, ClusterFactory, hollow_nodes, wait_for_figure
from bench.program import resident_megabytes
from bench.programs.submit import Submit
from testbed.ports import LOOPBACK, find_free_ports
from testbed.request import send

WAVE = Shape(jobs=500, workers=1, servers=1)
WAVES = 8
BASELINE_WAVE = 4  # waves: the second replica leads by then and has seen every failure
SETTLE_SECONDS = 5.0
TASKS = re.compile(rb"^asyncio_tasks (\S+)$", re.MULTILINE)


class Replica:
    def __init__(self, program: Program, port: int) -> None:
        self._program = program
        self._port = port

    @property
    def tasks(self) -> float:
        match = TASKS.search(send("GET", f"http://{LOOPBACK}:{self._port}/metrics").body)
        assert match, "the operator serves no asyncio_tasks metric"
        return float(match[1])

    @property
    def resident(self) -> float:
        return resident_megabytes(self._program.pid)

    def kill(self) -> None:
        os.kill(self._program.pid, signal.SIGKILL)


async def soak(new_cluster: ClusterFactory, wave: Shape, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        async with new_cluster() as cluster, hollow_nodes(cluster, wave.pods), AsyncExitStack() as stack:
            first, second = await start_replica(cluster, stack), await start_replica(cluster, stack)
            measured: list[tuple[float, float]] = []
            for number in range(WAVES):
                await run_wave(cluster, wave)
                leader = first if number == 0 else second
                measured.append((leader.resident, leader.tasks))
                report_round(
                    cluster, f"wave {number + 1} of {WAVES}", {"resident": measured[-1][0], "tasks": measured[-1][1]}
                )
                if number == 0:
                    first.kill()
                elif number == 1:
                    await cluster.restart_api_server()
                elif number == 2:
                    await cluster.reapply_crd()
        samples["soak_jobs"].append(float(WAVES * wave.jobs))
        samples["soak_growth"].append(measured[-1][0] - measured[BASELINE_WAVE - 1][0])
        samples["soak_tasks"].append(measured[-1][1])
        report_round(cluster, f"soak, round {turn + 1} of {rounds}", {"growth": samples["soak_growth"][-1]})
    return samples


async def start_replica(cluster: BenchCluster, stack: AsyncExitStack) -> Replica:
    health, metrics = find_free_ports(2)
    program = await stack.enter_async_context(cluster.manager(NAMESPACE, health, metrics_port=metrics))
    stack.callback(program.stop)
    await asyncio.to_thread(wait_until_ready, health)
    return Replica(program, metrics)


async def run_wave(cluster: BenchCluster, wave: Shape) -> None:
    """Submit a wave, wait until it is cleaned up, and delete its jobs."""
    options = Submit(**cluster.common_options(NAMESPACE, SUBMITTER), shape=wave, every_seconds=None)
    async with cluster.start_program("submit", options) as submitter:
        await submitter.read_figures()  # it is ready
        submitter.resume()
        await wait_for_figure(submitter, "done")
        await wait_for_figure(submitter, "cleaned")
    await cluster.delete_jobs(NAMESPACE)
    await asyncio.sleep(SETTLE_SECONDS)
