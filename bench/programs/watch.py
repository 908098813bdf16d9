"""What CPU time does a watch event cost from socket to queue: in our informer, or in a loop that only decodes?

Events arrive as fast as the API server accepts writes, so that most reads return only a few.
"""

import asyncio
import gc
import time
from typing import Literal

import aiohttp

from bench.program import Options, ParentProcess, aiohttp_session, make_client, print_figures, run
from paddle_operator.kube.client import Scope
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import PODS, Added, Deleted, Modified
from paddle_operator.kube.work_queue import Priority, Queue
from paddle_operator.plan.children import PodView, pod_view


class Watch(Options, frozen=True, kw_only=True):
    side: Literal["ours", "bare"]
    events: int


class Meter:
    """CPU time from `begin` until a number of events has arrived."""

    def __init__(self, events: int) -> None:
        self.finished = asyncio.Event()
        self._events = events
        self._seen = 0
        self._first_at = 0.0
        self._cpu = 0.0

    def begin(self) -> None:
        gc.collect()
        gc.freeze()  # as the manager does when its caches are filled
        self._cpu = time.process_time()
        print_figures(ready=1)

    def count(self) -> None:
        if not self._seen:
            self._first_at = time.monotonic()
        self._seen += 1
        if self._seen == self._events:
            self.finished.set()

    def print_figures(self) -> None:
        cpu, seconds = time.process_time() - self._cpu, time.monotonic() - self._first_at
        print_figures(cpu=cpu / self._seen * 1e6, rate=self._seen / seconds)


async def run_informer(arguments: Watch) -> None:
    """Decode, project, store, index by owner, and enqueue the job; a worker dequeues it."""
    meter = Meter(arguments.events)
    async with make_client(arguments) as client:
        informer = Informer(client, PODS, Scope(arguments.namespace), project=pod_view)
        informer.store.index(lambda pod: (pod.owner_uid,))
        queue: Queue[str] = Queue("bench")

        def on_change(old: PodView | None, new: PodView | None, priority: Priority) -> None:
            pod = new or old
            assert pod
            queue.add(pod.owner_uid, priority)
            if priority is Priority.LIVE:
                meter.count()

        informer.store.listen(on_change)
        tasks = [asyncio.ensure_future(informer.run()), asyncio.ensure_future(take_all(queue))]
        await informer.wait_synced()
        meter.begin()
        await meter.finished.wait()
        meter.print_figures()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def take_all(queue: Queue[str]) -> None:
    while True:
        queue.done(await queue.take())


async def measure_bare(arguments: Watch) -> None:
    """Read lines, decode them into the same Structs and discard them."""
    meter = Meter(arguments.events)
    path = PODS.path(namespace=arguments.namespace)
    async with aiohttp_session(arguments) as session:
        async with session.get(path, params={"limit": "1"}) as response:
            since = PODS.page.decode(await response.read()).metadata.resource_version
        meter.begin()
        while not meter.finished.is_set():  # the API server disconnects slow clients
            async with session.get(path, params={"watch": "true", "resourceVersion": since}) as response:
                since = await count_events(response, meter, since)
    meter.print_figures()


async def count_events(response: aiohttp.ClientResponse, meter: Meter, since: str) -> str:
    """Count events until the stream ends or there are enough; return the last resourceVersion."""
    buffer = b""
    while not meter.finished.is_set() and (chunk := await response.content.readany()):
        lines, newline, buffer = (buffer + chunk).rpartition(b"\n")
        if newline:
            for change in PODS.change.decode_lines(lines):
                assert isinstance(change, Added | Modified | Deleted), change
                since = change.object.metadata.resource_version
                meter.count()
    return since


async def watch(arguments: Watch, _: ParentProcess) -> None:
    await {"ours": run_informer, "bare": measure_bare}[arguments.side](arguments)


if __name__ == "__main__":
    run(Watch, watch)
