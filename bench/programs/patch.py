"""Updates the status of pods repeatedly, as kubelets do: each write is one watch event."""

from bench.pods import pod_key, running_status
from bench.program import Options, ParentProcess, make_client, print_figures, run, run_concurrently
from paddle_operator.kube.objects import PODS


class Patch(Options, frozen=True, kw_only=True):
    pods: int
    turns: int  # even, so that the first turn of the next run is a change, too


async def patch(arguments: Patch, _: ParentProcess) -> None:
    assert arguments.turns % 2 == 0, f"{arguments.turns} turns: the number must be even"
    async with make_client(arguments, "kubelet") as kubelet:
        for turn in range(arguments.turns):

            async def flip(number: int, ready: bool = bool(turn % 2)) -> None:
                await kubelet.merge_status(
                    PODS, pod_key(arguments.namespace, number), running_status(number, ready=ready)
                )

            await run_concurrently(range(arguments.pods), flip)
    print_figures(patches=arguments.pods * arguments.turns)


if __name__ == "__main__":
    run(Patch, patch)
