"""Ten hollow nodes: they run pods as soon as those are bound to them, and workers end well some seconds later."""

from bench.jobs import WORKERS
from bench.program import Options, Starter, client_of, run, tell
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits

COUNT = 10


class Nodes(Options, frozen=True, kw_only=True):
    pods: int  # that all nodes together have room for
    exits_after: float


async def nodes(asked: Nodes, starter: Starter) -> None:
    """Until it is told to go."""
    async with (
        client_of(asked, "kubelet") as client,
        HollowNodes(client, count=COUNT, pods=asked.pods // COUNT + 1) as hollow,
    ):
        hollow.script(WORKERS, exits(0, after=asked.exits_after))
        tell(ready=1)
        await starter.word()


if __name__ == "__main__":
    run(Nodes, nodes)
