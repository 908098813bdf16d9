"""Creates running pods on nodes that do not exist, as the operator creates them and a kubelet reports them."""

from bench.pods import build_pod, pod_key, running_status
from bench.program import Options, ParentProcess, make_client, print_figures, run, run_concurrently
from paddle_operator.kube.objects import PODS

PROGRESS_INTERVAL_PODS = 5_000
NODES = 200


class Fill(Options, frozen=True, kw_only=True):
    first: int = 0
    end: int


async def fill(arguments: Fill, _: ParentProcess) -> None:
    async with make_client(arguments) as operator, make_client(arguments, "kubelet") as kubelet:

        async def create_running_pod(number: int) -> None:
            await operator.create(PODS, build_pod(arguments.namespace, number, node=f"node-{number % NODES}"))
            await kubelet.merge_status(PODS, pod_key(arguments.namespace, number), running_status(number))
            if number % PROGRESS_INTERVAL_PODS == 0:
                print_figures(pods=number)

        await run_concurrently(range(arguments.first, arguments.end), create_running_pod)
    print_figures(pods=arguments.end)


if __name__ == "__main__":
    run(Fill, fill)
