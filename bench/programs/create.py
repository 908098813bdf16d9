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
from bench.program import Options, ParentProcess, aiohttp_session, make_client, print_figures, run, run_concurrently
from paddle_operator.kube.objects import PODS

WARM_UP = 200  # opens the connections

Deed = Callable[[int], Awaitable[None]]


class Create(Options, frozen=True, kw_only=True):
    by: Literal["ours", "bare"]
    first: int
    slices: int
    pods: int  # in each slice


async def create(arguments: Create, parent: ParentProcess) -> None:
    """A slice whenever we are told to go on: meanwhile the other side waits, and we wait while it works."""
    after_warm_up = arguments.first + WARM_UP
    end = after_warm_up + arguments.slices * arguments.pods
    async with {"ours": ours, "bare": measure_bare}[arguments.by](arguments, range(arguments.first, end)) as action:
        await run_concurrently(range(arguments.first, after_warm_up), action)
        gc.collect()
        gc.freeze()  # as the manager does when its caches are filled
        print_figures(ready=1)
        for first in range(after_warm_up, end, arguments.pods):
            await parent.wait_for_signal()
            began_at, cpu = time.monotonic(), time.process_time()
            await run_concurrently(range(first, first + arguments.pods), action)
            print_figures(cpu=time.process_time() - cpu, seconds=time.monotonic() - began_at)


@asynccontextmanager
async def ours(arguments: Create, numbers: range) -> AsyncIterator[Deed]:
    """From a manifest to the object as stored."""
    manifests = {number: worker(arguments.namespace, number) for number in numbers}
    async with make_client(arguments) as client:

        async def action(number: int) -> None:
            await client.create(PODS, manifests[number])

        yield action


@asynccontextmanager
async def measure_bare(arguments: Create, numbers: range) -> AsyncIterator[Deed]:
    """From bytes to bytes: what cannot be had for less with aiohttp."""
    bodies = {number: msgspec.json.encode(worker(arguments.namespace, number)) for number in numbers}
    path = PODS.path(namespace=arguments.namespace)
    async with aiohttp_session(arguments) as session:

        async def action(number: int) -> None:
            async with session.post(path, data=bodies[number]) as reply:
                assert reply.status == 201, await reply.text()
                await reply.read()

        yield action


if __name__ == "__main__":
    run(Create, create)
