"""Runs ten hollow nodes: they run bound pods at once, and workers exit with 0 some seconds later."""

from bench.jobs import WORKERS
from bench.program import Options, ParentProcess, make_client, print_figures, run
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits

NODES = 10
FAILURE_EXIT_CODE = 3
FAILS_AFTER_SECONDS = 2.0


class Nodes(Options, frozen=True, kw_only=True):
    pods: int  # capacity of all nodes together
    exits_after: float
    fails_once: str = ""  # name of a pod that first exits with FAILURE_EXIT_CODE


async def nodes(arguments: Nodes, parent: ParentProcess) -> None:
    """Run until the parent signals."""
    async with (
        make_client(arguments, "kubelet") as client,
        HollowNodes(client, count=NODES, pods=arguments.pods // NODES + 1) as hollow,
    ):
        hollow.script(WORKERS, exits(0, after=arguments.exits_after))
        if arguments.fails_once:
            hollow.script(arguments.fails_once, exits(FAILURE_EXIT_CODE, after=FAILS_AFTER_SECONDS), times=1)
        print_figures(ready=1)
        await parent.wait_for_signal()


if __name__ == "__main__":
    run(Nodes, nodes)
