"""How fast are pods created, and at what CPU time: by our client, or by a bare loop of ready-made bytes?"""

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import msgspec

from bench.pods import worker
from bench.program import Options, bare_session, client_of, each, run, tell
from paddle_operator.kube.objects import PODS

WARM_UP = 200  # opens the connections

Deed = Callable[[int], Awaitable[None]]


class Create(Options, frozen=True, kw_only=True):
    by: Literal["ours", "bare"]
    pods: int


async def create(asked: Create) -> None:
    async with {"ours": ours, "bare": bare}[asked.by](asked) as deed:
        await each(range(WARM_UP), deed)
        gc.collect()
        gc.freeze()  # as the manager does when its caches are filled
        began_at, cpu = time.monotonic(), time.process_time()
        await each(range(WARM_UP, WARM_UP + asked.pods), deed)
        cpu, seconds = time.process_time() - cpu, time.monotonic() - began_at
    tell(rate=asked.pods / seconds, cpu=cpu / asked.pods * 1e6)


@asynccontextmanager
async def ours(asked: Create) -> AsyncIterator[Deed]:
    """From a manifest to the object as stored."""
    manifests = [worker(asked.namespace, number) for number in range(WARM_UP + asked.pods)]
    async with client_of(asked) as client:

        async def deed(number: int) -> None:
            await client.create(PODS, manifests[number])

        yield deed


@asynccontextmanager
async def bare(asked: Create) -> AsyncIterator[Deed]:
    """From bytes to bytes: what cannot be had for less with aiohttp."""
    bodies = [msgspec.json.encode(worker(asked.namespace, number)) for number in range(WARM_UP + asked.pods)]
    path = PODS.path(namespace=asked.namespace)
    async with bare_session(asked) as session:

        async def deed(number: int) -> None:
            async with session.post(path, data=bodies[number]) as reply:
                assert reply.status == 201, await reply.text()
                await reply.read()

        yield deed


if __name__ == "__main__":
    run(Create, create)
