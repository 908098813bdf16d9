"""What does an event cost from the socket to the queue: in our informer, or in a bare loop that only decodes?

Events come as fast as the API server takes the writes behind them, so that most reads bring only a few.
"""

import asyncio
import gc
import time
from typing import Literal

import aiohttp

from bench.program import Options, Starter, bare_session, client_of, run, tell
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
        tell(ready=1)

    def count(self) -> None:
        if not self._seen:
            self._first_at = time.monotonic()
        self._seen += 1
        if self._seen == self._events:
            self.finished.set()

    def tell(self) -> None:
        cpu, seconds = time.process_time() - self._cpu, time.monotonic() - self._first_at
        tell(cpu=cpu / self._seen * 1e6, rate=self._seen / seconds)


async def ours(asked: Watch) -> None:
    """Decode, project, store, index by owner, add the job to the queue; and a worker that takes it from there."""
    meter = Meter(asked.events)
    async with client_of(asked) as client:
        informer = Informer(client, PODS, Scope(asked.namespace), project=pod_view)
        informer.store.index(lambda pod: (pod.owner_uid,))
        queue: Queue[str] = Queue("bench")

        def hear(old: PodView | None, new: PodView | None, lane: Priority) -> None:
            pod = new or old
            assert pod
            queue.add(pod.owner_uid, lane)
            if lane is Priority.LIVE:
                meter.count()

        informer.store.listen(hear)
        tasks = [asyncio.ensure_future(informer.run()), asyncio.ensure_future(take_all(queue))]
        await informer.wait_synced()
        meter.begin()
        await meter.finished.wait()
        meter.tell()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def take_all(queue: Queue[str]) -> None:
    while True:
        queue.done(await queue.take())


async def bare(asked: Watch) -> None:
    """Read lines, decode them into the same Structs, and forget them."""
    meter = Meter(asked.events)
    path = PODS.path(namespace=asked.namespace)
    async with bare_session(asked) as session:
        async with session.get(path, params={"limit": "1"}) as reply:
            since = PODS.page.decode(await reply.read()).metadata.resource_version
        meter.begin()
        while not meter.finished.is_set():  # the server cuts off who is too slow for a while
            async with session.get(path, params={"watch": "true", "resourceVersion": since}) as reply:
                since = await read(reply, meter, since)
    meter.tell()


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


async def watch(asked: Watch, _: Starter) -> None:
    await {"ours": ours, "bare": bare}[asked.by](asked)


if __name__ == "__main__":
    run(Watch, watch)
