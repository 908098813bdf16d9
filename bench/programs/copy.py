"""Makes many pods of few: what the API server has stored of some is stored again under other names."""

from bench.etcd import OPERATIONS, Etcd, Pair, copy_of
from bench.pods import PODS_PER_JOB, key_of
from bench.program import Options, ParentProcess, print_figures, run, run_concurrently

TELL_EVERY = 5_000


class Copy(Options, frozen=True, kw_only=True):
    etcd: str
    originals: int  # whole jobs
    first: int
    end: int


async def copy(arguments: Copy, _: ParentProcess) -> None:
    assert arguments.originals % PODS_PER_JOB == 0, f"{arguments.originals} pods are not whole jobs"
    async with Etcd.at(arguments.etcd) as etcd:
        stored = {
            pair.key.rpartition(b"/")[2].decode(): pair
            for pair in await etcd.pods(arguments.namespace, arguments.originals)
        }

        def pod(number: int) -> Pair:
            original = number % arguments.originals
            return copy_of(stored[key_of(arguments.namespace, original).name], arguments.namespace, original, number)

        async def put(first: int) -> None:
            await etcd.put_at_once(pod(number) for number in range(first, min(first + OPERATIONS, arguments.end)))
            if first % TELL_EVERY == 0:
                print_figures(pods=first)

        await run_concurrently(range(arguments.first, arguments.end, OPERATIONS), put)
    print_figures(pods=arguments.end)


if __name__ == "__main__":
    run(Copy, copy)
