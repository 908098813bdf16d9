"""Multiplies pods: copies those that the API server has stored, under other names, in etcd."""

from bench.etcd import MAX_OPERATIONS, Etcd, KeyValue, copy_pod
from bench.pods import PODS_PER_JOB, pod_key
from bench.program import Options, ParentProcess, print_figures, run, run_concurrently

PROGRESS_INTERVAL_PODS = 5_000


class Copy(Options, frozen=True, kw_only=True):
    etcd: str
    originals: int  # a multiple of PODS_PER_JOB
    first: int
    end: int


async def copy(arguments: Copy, _: ParentProcess) -> None:
    assert arguments.originals % PODS_PER_JOB == 0, (
        f"{arguments.originals} is no multiple of {PODS_PER_JOB} pods per job"
    )
    async with Etcd.at(arguments.etcd) as etcd:
        stored = {
            pair.key.rpartition(b"/")[2].decode(): pair
            for pair in await etcd.pods(arguments.namespace, arguments.originals)
        }

        def pod(number: int) -> KeyValue:
            original = number % arguments.originals
            return copy_pod(stored[pod_key(arguments.namespace, original).name], arguments.namespace, original, number)

        async def put(first: int) -> None:
            await etcd.put_in_one_transaction(
                pod(number) for number in range(first, min(first + MAX_OPERATIONS, arguments.end))
            )
            if first % PROGRESS_INTERVAL_PODS == 0:
                print_figures(pods=first)

        await run_concurrently(range(arguments.first, arguments.end, MAX_OPERATIONS), put)
    print_figures(pods=arguments.end)


if __name__ == "__main__":
    run(Copy, copy)
