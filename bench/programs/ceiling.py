"""The live ceiling: how fast does a bare loop create the pods of a load while the hollow nodes work on them?

No operator runs. The ConfigMaps exist, so that containers start at once, and the pods equal the operator's to the byte.
Their jobs exist, so that the garbage collector keeps the pods. With `submitted`, the jobs are created during the
measurement, as in a load, and the pods of each when the API server has stored it; one process does both.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp
import msgspec

from bench.jobs import Shape, build_pods, make_job
from bench.program import (
    IN_FLIGHT,
    Options,
    ParentProcess,
    aiohttp_session,
    make_client,
    print_figures,
    run,
    run_concurrently,
)
from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import CONFIG_MAPS, PODS
from paddle_operator.plan.job_view import PADDLE_JOBS, job_view


class Ceiling(Options, frozen=True, kw_only=True):
    shape: Shape
    submitted: bool = False  # the jobs are created during the measurement, not before


async def ceiling(arguments: Ceiling, parent: ParentProcess) -> None:
    path = PODS.path(namespace=arguments.namespace)
    async with aiohttp_session(arguments) as session, make_client(arguments, "submitter") as client:
        jobs = Jobs(client, arguments)
        await run_concurrently(range(arguments.shape.jobs), jobs.prepare)
        if not arguments.submitted:
            await jobs.submit()
        await open_connections(session, path)
        print_figures(ready=1)
        await parent.wait_for_signal()
        began_at = time.monotonic()
        async with asyncio.TaskGroup() as group:
            if arguments.submitted:
                group.create_task(jobs.submit())
            for _ in range(IN_FLIGHT):
                group.create_task(create(session, path, jobs))
        print_figures(rate=arguments.shape.pods / (time.monotonic() - began_at))


async def open_connections(session: aiohttp.ClientSession, path: str) -> None:
    """Open the connections before the measurement begins."""

    async def read(_: int) -> None:
        async with session.get(path, params={"limit": "1"}) as response:
            await response.read()

    await run_concurrently(range(100), read)


async def create(session: aiohttp.ClientSession, path: str, jobs: "Jobs") -> None:
    async for body in jobs.pods():
        async with session.post(path, data=body) as response:
            assert response.status == 201, await response.text()
            await response.read()


class Jobs:
    """The jobs to submit, and the pods of those already submitted."""

    def __init__(self, client: Client, arguments: Ceiling) -> None:
        self._client = client
        self._namespace, self._shape = arguments.namespace, arguments.shape
        self._ready: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def prepare(self, number: int) -> None:
        metadata = {"name": f"bare-{number}", "namespace": self._namespace}
        await self._client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    async def submit(self) -> None:
        await run_concurrently(range(self._shape.jobs), self._send)
        for _ in range(IN_FLIGHT):
            self._ready.put_nowait(None)

    async def pods(self) -> AsyncIterator[bytes]:
        while body := await self._ready.get():
            yield body

    async def _send(self, number: int) -> None:
        stored = await self._client.create(PADDLE_JOBS, make_job(self._namespace, f"bare-{number}", self._shape))
        for pod in build_pods(job_view(stored)):
            self._ready.put_nowait(msgspec.json.encode(pod))


if __name__ == "__main__":
    run(Ceiling, ceiling)
