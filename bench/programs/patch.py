"""Writes the status of pods again and again, as kubelets do: each write is one event for whoever watches."""

from bench.pods import key_of, running
from bench.program import Options, ParentProcess, make_client, print_figures, run, run_concurrently
from paddle_operator.kube.objects import PODS


class Patch(Options, frozen=True, kw_only=True):
    pods: int
    turns: int  # an even number, so that the first of the next run changes something, too


async def patch(arguments: Patch, _: ParentProcess) -> None:
    assert arguments.turns % 2 == 0, f"{arguments.turns} turns are not even"
    async with make_client(arguments, "kubelet") as kubelet:
        for turn in range(arguments.turns):

            async def flip(number: int, ready: bool = bool(turn % 2)) -> None:
                await kubelet.merge_status(PODS, key_of(arguments.namespace, number), running(number, ready=ready))

            await run_concurrently(range(arguments.pods), flip)
    print_figures(patches=arguments.pods * arguments.turns)


if __name__ == "__main__":
    run(Patch, patch)
