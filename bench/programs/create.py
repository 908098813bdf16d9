"""How fast are pods created, and at what CPU time: by our client, or by a bare loop that sends prepared bytes?

Both sides run at once and alternate every few tenths of a second, so that a slow phase of the machine affects both.
"""

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import msgspec

from bench.pods import build_pod
from bench.program import Options, ParentProcess, aiohttp_session, make_client, print_figures, run, run_concurrently
from paddle_operator.kube.objects import PODS

WARM_UP_PODS = 200  # to open the connections

Action = Callable[[int], Awaitable[None]]


class Create(Options, frozen=True, kw_only=True):
    side: Literal["ours", "bare"]
    first: int
    slices: int
    pods: int  # in each slice


async def create(arguments: Create, parent: ParentProcess) -> None:
    """Measure a slice each time the parent signals; the other side waits meanwhile."""
    after_warm_up = arguments.first + WARM_UP_PODS
    end = after_warm_up + arguments.slices * arguments.pods
    async with {"ours": open_client, "bare": open_bare_session}[arguments.side](
        arguments, range(arguments.first, end)
    ) as action:
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
async def open_client(arguments: Create, numbers: range) -> AsyncIterator[Action]:
    """Our client: from a manifest to the decoded object."""
    manifests = {number: build_pod(arguments.namespace, number) for number in numbers}
    async with make_client(arguments) as client:

        async def action(number: int) -> None:
            await client.create(PODS, manifests[number])

        yield action


@asynccontextmanager
async def open_bare_session(arguments: Create, numbers: range) -> AsyncIterator[Action]:
    """The minimum with aiohttp: from bytes to bytes."""
    bodies = {number: msgspec.json.encode(build_pod(arguments.namespace, number)) for number in numbers}
    path = PODS.path(namespace=arguments.namespace)
    async with aiohttp_session(arguments) as session:

        async def action(number: int) -> None:
            async with session.post(path, data=bodies[number]) as response:
                assert response.status == 201, await response.text()
                await response.read()

        yield action


if __name__ == "__main__":
    run(Create, create)
