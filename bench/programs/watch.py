"""What does an event cost from the socket to the queue: in our informer, or in a bare loop that only decodes?

Events come as fast as the API server takes the writes behind them, so that most reads bring only a few.
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
    by: Literal["ours", "bare"]
    events: int


class Meter:
    """CPU time from the moment it is ready until so many events have come."""

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


async def ours(arguments: Watch) -> None:
    """Decode, project, store, index by owner, add the job to the queue; and a worker that takes it from there."""
    meter = Meter(arguments.events)
    async with make_client(arguments) as client:
        informer = Informer(client, PODS, Scope(arguments.namespace), project=pod_view)
        informer.store.index(lambda pod: (pod.owner_uid,))
        queue: Queue[str] = Queue("bench")

        def on_change(old: PodView | None, new: PodView | None, lane: Priority) -> None:
            pod = new or old
            assert pod
            queue.add(pod.owner_uid, lane)
            if lane is Priority.LIVE:
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
    """Read lines, decode them into the same Structs, and forget them."""
    meter = Meter(arguments.events)
    path = PODS.path(namespace=arguments.namespace)
    async with aiohttp_session(arguments) as session:
        async with session.get(path, params={"limit": "1"}) as reply:
            since = PODS.page.decode(await reply.read()).metadata.resource_version
        meter.begin()
        while not meter.finished.is_set():  # the server cuts off who is too slow for a while
            async with session.get(path, params={"watch": "true", "resourceVersion": since}) as reply:
                since = await read(reply, meter, since)
    meter.print_figures()


async def read(reply: aiohttp.ClientResponse, meter: Meter, since: str) -> str:
    """The last version that was seen when the stream ended, or when enough events were."""
    rest = b""
    while not meter.finished.is_set() and (chunk := await reply.content.readany()):
        lines, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            for change in PODS.change.decode_lines(lines):
                assert isinstance(change, Added | Modified | Deleted), change
                since = change.object.metadata.resource_version
                meter.count()
    return since


async def watch(arguments: Watch, _: ParentProcess) -> None:
    await {"ours": ours, "bare": measure_bare}[arguments.by](arguments)


if __name__ == "__main__":
    run(Watch, watch)
