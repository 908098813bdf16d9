"""Stores pods anew as they are, far faster than one API server takes patches: each time is an event for who watches.

That is how a follower sees a large cluster, whose pods thousands of kubelets report, or the time after a cut.
"""

from bench.etcd import Etcd
from bench.program import Options, Starter, each, run, tell


class Burst(Options, frozen=True, kw_only=True):
    etcd: str
    pods: int
    turns: int


async def burst(asked: Burst, _: Starter) -> None:
    async with Etcd.at(asked.etcd) as etcd:
        stored = await etcd.pods(asked.namespace, asked.pods)
        for _turn in range(asked.turns):
            await each(range(asked.pods), lambda number: etcd.put(stored[number]))
    tell(events=asked.pods * asked.turns)


if __name__ == "__main__":
    run(Burst, burst)
