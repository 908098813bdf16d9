"""Rewrites stored pods unchanged in etcd, far faster than one API server accepts patches: each write is a watch event.

A watch client sees such bursts in large clusters, where thousands of kubelets report, and after an outage.
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
