"""Stores pods anew as they are, far faster than one API server takes patches: each time is an event for who watches.

That is how a follower sees a large cluster, whose pods thousands of kubelets report, or the time after a cut.
"""

from bench.etcd import Etcd
from bench.program import Options, ParentProcess, print_figures, run, run_concurrently


class Burst(Options, frozen=True, kw_only=True):
    etcd: str
    pods: int
    turns: int


async def burst(arguments: Burst, _: ParentProcess) -> None:
    async with Etcd.at(arguments.etcd) as etcd:
        stored = await etcd.pods(arguments.namespace, arguments.pods)
        for _turn in range(arguments.turns):
            await run_concurrently(range(arguments.pods), lambda number: etcd.put(stored[number]))
    print_figures(events=arguments.pods * arguments.turns)


if __name__ == "__main__":
    run(Burst, burst)
