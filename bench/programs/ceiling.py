"""The live ceiling: how fast does a bare loop create the pods of a load while the hollow nodes work on them?

The ConfigMaps are there, so that containers start at once; no operator is. The pods are those that it would write, to
the byte. Their jobs are there, too, so that nobody collects them; or, with `submitted`, they are sent while the loop is
at work, as a load's are, and each job's pods are made as soon as the API server has the job; one process does both.
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
    submitted: bool = False  # while the pods are made, and not before


async def ceiling(arguments: Ceiling, parent: ParentProcess) -> None:
    path = PODS.path(namespace=arguments.namespace)
    async with aiohttp_session(arguments) as session, make_client(arguments, "submitter") as client:
        jobs = Jobs(client, arguments)
        await run_concurrently(range(arguments.shape.jobs), jobs.prepare)
        if not arguments.submitted:
            await jobs.submit()
        await opened(session, path)
        print_figures(ready=1)
        await parent.wait_for_signal()
        began_at = time.monotonic()
        async with asyncio.TaskGroup() as result:
            if arguments.submitted:
                result.create_task(jobs.submit())
            for _ in range(IN_FLIGHT):
                result.create_task(create(session, path, jobs))
        print_figures(rate=arguments.shape.pods / (time.monotonic() - began_at))


async def opened(session: aiohttp.ClientSession, path: str) -> None:
    """Connections that are there before they are needed."""

    async def read(_: int) -> None:
        async with session.get(path, params={"limit": "1"}) as reply:
            await reply.read()

    await run_concurrently(range(100), read)


async def create(session: aiohttp.ClientSession, path: str, jobs: "Jobs") -> None:
    async for body in jobs.pods():
        async with session.post(path, data=body) as reply:
            assert reply.status == 201, await reply.text()
            await reply.read()


class Jobs:
    """What is to be submitted, and the pods of those that have been."""

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
