"""What does it take to fill a fresh process' cache with every pod there is: CPU time, memory then and on the way?"""

import asyncio
import gc
import time
from typing import Literal

from bench.program import Options, Starter, bare_session, client_of, peak_megabytes, resident_megabytes, run, tell
from paddle_operator.kube.client import PAGE_SIZE, Client, Scope
from paddle_operator.kube.informer import Informer, ListBy
from paddle_operator.kube.objects import CONFIG_MAPS, PODS
from paddle_operator.kube.work_queue import Priority, Queue
from paddle_operator.plan.children import PodView, pod_view


class Sync(Options, frozen=True, kw_only=True):
    by: Literal["pages", "stream", "bare"]
    pods: int


async def sync(asked: Sync, _: Starter) -> None:
    if asked.by == "bare":
        await bare(asked)
        return
    async with client_of(asked) as client:
        await client.list_all(CONFIG_MAPS, Scope(asked.namespace))  # connected: TLS and its certificates are loaded
        await filled(client, asked)


async def filled(client: Client, asked: Sync) -> None:
    informer = Informer(client, PODS, Scope(asked.namespace), project=pod_view, list_by=ListBy(asked.by))
    informer.store.index(lambda pod: (pod.owner_uid,))
    queue: Queue[str] = Queue("bench")

    def hear(old: PodView | None, new: PodView | None, lane: Priority) -> None:
        pod = new or old
        assert pod
        queue.add(pod.owner_uid, lane)

    informer.store.listen(hear)
    gc.collect()
    before, began_at, cpu = resident_megabytes(), time.monotonic(), time.process_time()
    task = asyncio.ensure_future(informer.run())
    await informer.wait_synced()
    cpu, seconds = time.process_time() - cpu, time.monotonic() - began_at
    assert len(informer.store) == asked.pods, f"{len(informer.store)} pods instead of {asked.pods}"
    gc.collect()
    gc.freeze()  # as the manager does
    resident = resident_megabytes()
    tell(cpu=cpu, seconds=seconds, cache=resident - before, resident=resident, peak=peak_megabytes())
    task.cancel()
    await asyncio.wait((task,))


async def bare(asked: Sync) -> None:
    """The same pages decoded into the same Structs, and forgotten."""
    path = PODS.path(namespace=asked.namespace)
    params = {"limit": str(PAGE_SIZE), "continue": ""}
    seen = 0
    async with bare_session(asked) as session:
        async with session.get(CONFIG_MAPS.path(namespace=asked.namespace)) as reply:
            await reply.read()
        began_at, cpu = time.monotonic(), time.process_time()
        while seen == 0 or params["continue"]:
            async with session.get(path, params=params) as reply:
                page = PODS.page.decode(await reply.read())
            params["continue"] = page.metadata.continue_
            seen += len(page.items or ())
        cpu, seconds = time.process_time() - cpu, time.monotonic() - began_at
    assert seen == asked.pods, f"{seen} pods instead of {asked.pods}"
    tell(cpu=cpu, seconds=seconds, peak=peak_megabytes())


if __name__ == "__main__":
    run(Sync, sync)
