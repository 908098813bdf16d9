"""Makes pods that run on nodes that are not there: created by the operator's hand, reported by a kubelet's."""

from bench.pods import key_of, running, worker
from bench.program import Options, Starter, client_of, each, run, tell
from paddle_operator.kube.objects import PODS

TELL_EVERY = 5_000
NODES = 200


class Fill(Options, frozen=True, kw_only=True):
    first: int = 0
    end: int


async def fill(asked: Fill, _: Starter) -> None:
    async with client_of(asked) as operator, client_of(asked, "kubelet") as kubelet:

        async def make(number: int) -> None:
            await operator.create(PODS, worker(asked.namespace, number, node=f"node-{number % NODES}"))
            await kubelet.merge_status(PODS, key_of(asked.namespace, number), running(number))
            if number % TELL_EVERY == 0:
                tell(pods=number)

        await each(range(asked.first, asked.end), make)
    tell(pods=asked.end)


if __name__ == "__main__":
    run(Fill, fill)
