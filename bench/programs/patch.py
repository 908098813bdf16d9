"""Writes the status of pods again and again, as kubelets do: each write is one event for whoever watches."""

from bench.pods import key_of, running
from bench.program import Options, Starter, client_of, each, run, tell
from paddle_operator.kube.objects import PODS


class Patch(Options, frozen=True, kw_only=True):
    pods: int
    turns: int  # an even number, so that the first of the next run changes something, too


async def patch(asked: Patch, _: Starter) -> None:
    assert asked.turns % 2 == 0, f"{asked.turns} turns are not even"
    async with client_of(asked, "kubelet") as kubelet:
        for turn in range(asked.turns):

            async def flip(number: int, ready: bool = bool(turn % 2)) -> None:
                await kubelet.merge_status(PODS, key_of(asked.namespace, number), running(number, ready=ready))

            await each(range(asked.pods), flip)
    tell(patches=asked.pods * asked.turns)


if __name__ == "__main__":
    run(Patch, patch)
