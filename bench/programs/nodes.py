"""Ten hollow nodes: they run pods as soon as those are bound to them, and workers end well some seconds later."""

from bench.jobs import WORKERS
from bench.program import Options, ParentProcess, make_client, print_figures, run
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits

COUNT = 10
FAILURE = 3
FAILS_AFTER_SECONDS = 2.0


class Nodes(Options, frozen=True, kw_only=True):
    pods: int  # that all nodes together have room for
    exits_after: float
    fails_once: str = ""  # a pod whose first life ends with FAILURE


async def nodes(arguments: Nodes, parent: ParentProcess) -> None:
    """Until it is told to go."""
    async with (
        make_client(arguments, "kubelet") as client,
        HollowNodes(client, count=COUNT, pods=arguments.pods // COUNT + 1) as hollow,
    ):
        hollow.script(WORKERS, exits(0, after=arguments.exits_after))
        if arguments.fails_once:
            hollow.script(arguments.fails_once, exits(FAILURE, after=FAILS_AFTER_SECONDS), times=1)
        print_figures(ready=1)
        await parent.wait_for_signal()


if __name__ == "__main__":
    run(Nodes, nodes)
