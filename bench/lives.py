"""What a job's later life costs: all of its pods replaced after one exit, and thousands of jobs that are over.

The beds are those of the loads. A failure that is not counted is tried again without a pause: so the restart is
measured and not its back-off.
"""

from collections import defaultdict
from contextlib import AsyncExitStack
from statistics import median

from bench.bed import Told
from bench.figures import Samples, note
from bench.jobs import Shape
from bench.loads import (
    NAMESPACE,
    SMALL_EVERY_SECONDS,
    SUBMITTER,
    Beds,
    Work,
    bare,
    first_pod_seconds,
    hollow_nodes,
    pod_creates,
    worked,
)
from bench.programs.finish import Finish
from bench.programs.nodes import FAILURE
from bench.programs.submit import SMALL, Submit

GANG = Shape(jobs=1, workers=1_000)
IGNORED = {"operator": "In", "values": [FAILURE]}
POLICIES = {"backoffLimit": 0, "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": IGNORED}]}}
RUNS_SECONDS = 30.0  # long enough for all to run before the first ends, also after the restart
KEPT = 10_000
NEW = 200


async def restart(beds: Beds, gang: Shape, rounds: int, runs_seconds: float = RUNS_SECONDS) -> Samples:
    """From the exit of one pod to the last of all the new ones, as a share of a bare loop that only creates them."""
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        async with beds() as bed, hollow_nodes(bed, gang.pods):
            ceiling = (await bare(bed, gang))["rate"]
        last = f"train-0-worker-{gang.workers - 1}"
        async with beds() as bed, hollow_nodes(bed, gang.pods, runs_seconds, fails_once=last):
            place = bed.place(NAMESPACE, SUBMITTER)
            work = await worked(bed, Submit(**place, shape=gang, every_seconds=None, policies=POLICIES))
            told = restarted(work, gang, last) | {"ceiling": ceiling}
            told["share"] = 100 * told["rate"] / ceiling
            note(bed, f"restart of {gang}, round {turn + 1} of {rounds}", told)
        for figure, value in told.items():
            samples[f"restart_{figure}"].append(value)
    return samples


def restarted(work: Work, gang: Shape, failed: str) -> Told:
    created = sorted(pod_creates(work.writes), key=lambda write: write.completed_at)
    assert len(created) == 2 * gang.pods, f"{len(created)} pods were made instead of {2 * gang.pods}"
    again = created[gang.pods :]
    deletes = [write for write in work.writes.to("pods") if "delete" in write.verb]
    first = min(write.received_at for write in deletes)
    exits = [write.completed_at for write in work.kubelet if write.name == failed and write.completed_at < first]
    seconds = (again[-1].completed_at - max(exits)).total_seconds()
    requests = len([write for write in deletes if write.received_at < again[-1].completed_at])
    return {"rate": gang.pods / seconds, "seconds": seconds, "delete_requests": float(requests)}


async def kept(beds: Beds, jobs: int, rounds: int) -> Samples:
    """How much longer does a new job wait, how much larger is the operator, where so many finished ones are kept?"""
    samples: Samples = defaultdict(list)
    for turn in range(rounds):
        for number in (0, jobs):
            async with AsyncExitStack() as stack:
                bed = await stack.enter_async_context(beds())
                await stack.enter_async_context(hollow_nodes(bed, SMALL.pods * NEW))
                if number:
                    await bed.run("finish", Finish(**bed.place(NAMESPACE, SUBMITTER), jobs=number))
                place = bed.place(NAMESPACE, SUBMITTER)
                work = await worked(bed, Submit(**place, shape=SMALL, every_seconds=SMALL_EVERY_SECONDS))
                told = {"first_pod": 1000 * median(first_pod_seconds(work)), "peak": work.peak}
                note(bed, f"{number} finished jobs kept, round {turn + 1} of {rounds}", told)
            for figure, value in told.items():
                samples[f"kept_{'many' if number else 'none'}_{figure}"].append(value)
    return samples
