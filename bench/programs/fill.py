"""Makes pods that run on nodes that are not there: created by the operator's hand, reported by a kubelet's."""

from bench.pods import key_of, running, worker
from bench.program import Options, ParentProcess, make_client, print_figures, run, run_concurrently
from paddle_operator.kube.objects import PODS

TELL_EVERY = 5_000
NODES = 200


class Fill(Options, frozen=True, kw_only=True):
    first: int = 0
    end: int


async def fill(arguments: Fill, _: ParentProcess) -> None:
    async with make_client(arguments) as operator, make_client(arguments, "kubelet") as kubelet:

        async def make(number: int) -> None:
            await operator.create(PODS, worker(arguments.namespace, number, node=f"node-{number % NODES}"))
            await kubelet.merge_status(PODS, key_of(arguments.namespace, number), running(number))
            if number % TELL_EVERY == 0:
                print_figures(pods=number)

        await run_concurrently(range(arguments.first, arguments.end), make)
    print_figures(pods=arguments.end)


if __name__ == "__main__":
    run(Fill, fill)
