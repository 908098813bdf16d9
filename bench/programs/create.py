"""How fast are pods created, and at what CPU time: by our client, or by a bare loop of ready-made bytes?

Both sides are alive at once and take turns of some tenths of a second, so that a machine that is slow for a while is
slow for both.
"""

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import msgspec

from bench.pods import worker
from bench.program import Options, Starter, bare_session, client_of, each, run, tell
from paddle_operator.kube.objects import PODS

WARM_UP = 200  # opens the connections

Deed = Callable[[int], Awaitable[None]]


class Create(Options, frozen=True, kw_only=True):
    by: Literal["ours", "bare"]
    first: int
    slices: int
    pods: int  # in each slice


async def create(asked: Create, starter: Starter) -> None:
    """A slice whenever we are told to go on: meanwhile the other side waits, and we wait while it works."""
    after_warm_up = asked.first + WARM_UP
    end = after_warm_up + asked.slices * asked.pods
    async with {"ours": ours, "bare": bare}[asked.by](asked, range(asked.first, end)) as deed:
        await each(range(asked.first, after_warm_up), deed)
        gc.collect()
        gc.freeze()  # as the manager does when its caches are filled
        tell(ready=1)
        for first in range(after_warm_up, end, asked.pods):
            await starter.word()
            began_at, cpu = time.monotonic(), time.process_time()
            await each(range(first, first + asked.pods), deed)
            tell(cpu=time.process_time() - cpu, seconds=time.monotonic() - began_at)


@asynccontextmanager
async def ours(asked: Create, numbers: range) -> AsyncIterator[Deed]:
    """From a manifest to the object as stored."""
    manifests = {number: worker(asked.namespace, number) for number in numbers}
    async with client_of(asked) as client:

        async def deed(number: int) -> None:
            await client.create(PODS, manifests[number])

        yield deed


@asynccontextmanager
async def bare(asked: Create, numbers: range) -> AsyncIterator[Deed]:
    """From bytes to bytes: what cannot be had for less with aiohttp."""
    bodies = {number: msgspec.json.encode(worker(asked.namespace, number)) for number in numbers}
    path = PODS.path(namespace=asked.namespace)
    async with bare_session(asked) as session:

        async def deed(number: int) -> None:
            async with session.post(path, data=bodies[number]) as reply:
                assert reply.status == 201, await reply.text()
                await reply.read()

        yield deed


if __name__ == "__main__":
    run(Create, create)
