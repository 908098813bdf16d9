"""Makes many pods of few: what the API server has stored of some is stored again under other names."""

from bench.etcd import OPERATIONS, Etcd, Pair, copy_of
from bench.pods import PODS_PER_JOB, key_of
from bench.program import Options, Starter, each, run, tell

TELL_EVERY = 5_000


class Copy(Options, frozen=True, kw_only=True):
    etcd: str
    originals: int  # whole jobs
    first: int
    end: int


async def copy(asked: Copy, _: Starter) -> None:
    assert asked.originals % PODS_PER_JOB == 0, f"{asked.originals} pods are not whole jobs"
    async with Etcd.at(asked.etcd) as etcd:
        stored = {
            pair.key.rpartition(b"/")[2].decode(): pair for pair in await etcd.pods(asked.namespace, asked.originals)
        }

        def pod(number: int) -> Pair:
            original = number % asked.originals
            return copy_of(stored[key_of(asked.namespace, original).name], asked.namespace, original, number)

        async def put(first: int) -> None:
            await etcd.put_at_once(pod(number) for number in range(first, min(first + OPERATIONS, asked.end)))
            if first % TELL_EVERY == 0:
                tell(pods=first)

        await each(range(asked.first, asked.end, OPERATIONS), put)
    tell(pods=asked.end)


if __name__ == "__main__":
    run(Copy, copy)
