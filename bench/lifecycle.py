"""What do a gang restart and thousands of finished jobs cost?

Clusters are those of the loads. The failure is one that is not counted, so that the restart has no back-off.
"""

from collections import defaultdict
from contextlib import AsyncExitStack
from statistics import median

from bench.cluster import Figures
from bench.figures import Samples, report_round
from bench.jobs import Shape
from bench.loads import (
    NAMESPACE,
    SMALL_EVERY_SECONDS,
    SUBMITTER,
    ClusterFactory,
    LoadResult,
    first_pod_seconds,
    hollow_nodes,
    measure_ceiling,
    pod_creates,
    run_load,
)
from bench.programs.finish import Finish
from bench.programs.nodes import FAILURE_EXIT_CODE
from bench.programs.submit import SMALL, Submit

GANG = Shape(jobs=1, workers=1_000)
IGNORED = {"operator": "In", "values": [FAILURE_EXIT_CODE]}
POLICIES = {"backoffLimit": 0, "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": IGNORED}]}}
RUNS_SECONDS = 30.0  # all pods run before the first exits, also after the restart
FINISHED_JOBS = 10_000
NEW = 200


async def restart(new_cluster: ClusterFactory, gang: Shape, rounds: int, runs_seconds: float = RUNS_SECONDS) -> Samples:
    """Time from the exit of one pod to the last new pod, as a share of a bare loop that only creates pods."""
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        async with new_cluster() as cluster, hollow_nodes(cluster, gang.pods):
            ceiling = (await measure_ceiling(cluster, gang))["rate"]
        last = f"train-0-worker-{gang.workers - 1}"
        async with new_cluster() as cluster, hollow_nodes(cluster, gang.pods, runs_seconds, fails_once=last):
            common = cluster.common_options(NAMESPACE, SUBMITTER)
            result = await run_load(cluster, Submit(**common, shape=gang, every_seconds=None, policies=POLICIES))
            figures = restart_figures(result, gang, last) | {"ceiling": ceiling}
            figures["share"] = 100 * figures["rate"] / ceiling
            report_round(cluster, f"restart of {gang}, round {turn + 1} of {rounds}", figures)
        for figure, value in figures.items():
            samples[f"restart_{figure}"].append(value)
    return samples


def restart_figures(result: LoadResult, gang: Shape, failed: str) -> Figures:
    created = sorted(pod_creates(result.writes), key=lambda write: write.completed_at)
    assert len(created) == 2 * gang.pods, f"{len(created)} pods were created instead of {2 * gang.pods}"
    recreated = created[gang.pods :]
    deletes = [write for write in result.writes.to("pods") if "delete" in write.verb]
    first = min(write.received_at for write in deletes)
    exits = [write.completed_at for write in result.kubelet if write.name == failed and write.completed_at < first]
    seconds = (recreated[-1].completed_at - max(exits)).total_seconds()
    requests = len([write for write in deletes if write.received_at < recreated[-1].completed_at])
    return {"rate": gang.pods / seconds, "seconds": seconds, "delete_requests": float(requests)}


async def finished_jobs(new_cluster: ClusterFactory, jobs: int, rounds: int) -> Samples:
    """How long a new job waits and how large the operator is with so many finished jobs in the cache."""
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        for number in (0, jobs):
            async with AsyncExitStack() as stack:
                cluster = await stack.enter_async_context(new_cluster())
                await stack.enter_async_context(hollow_nodes(cluster, SMALL.pods * NEW))
                if number:
                    await cluster.run("finish", Finish(**cluster.common_options(NAMESPACE, SUBMITTER), jobs=number))
                common = cluster.common_options(NAMESPACE, SUBMITTER)
                result = await run_load(cluster, Submit(**common, shape=SMALL, every_seconds=SMALL_EVERY_SECONDS))
                figures = {"first_pod": 1000 * median(first_pod_seconds(result)), "peak": result.peak}
                report_round(cluster, f"{number} finished jobs, round {turn + 1} of {rounds}", figures)
            for figure, value in figures.items():
                samples[f"finished_{'many' if number else 'none'}_{figure}"].append(value)
    return samples
