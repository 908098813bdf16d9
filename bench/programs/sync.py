"""What does it cost to fill the cache of a new process with all pods: CPU time, RSS and peak RSS?"""

import asyncio
import gc
import time
from typing import Literal

from bench.program import (
    Options,
    ParentProcess,
    aiohttp_session,
    make_client,
    peak_megabytes,
    print_figures,
    resident_megabytes,
    run,
)
from paddle_operator.kube.client import PAGE_SIZE, Client, Scope
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, PODS
from paddle_operator.kube.work_queue import Priority, Queue
from paddle_operator.plan.children import PodView, pod_view


class Sync(Options, frozen=True, kw_only=True):
    side: Literal["pages", "bare"]
    pods: int


async def sync(arguments: Sync, _: ParentProcess) -> None:
    if arguments.side == "bare":
        await measure_bare(arguments)
        return
    async with make_client(arguments) as client:
        await client.list_all(CONFIG_MAPS, Scope(arguments.namespace))  # opens a connection, loads the certificates
        await fill_cache(client, arguments)


async def fill_cache(client: Client, arguments: Sync) -> None:
    informer = Informer(client, PODS, Scope(arguments.namespace), project=pod_view)
    informer.store.index(lambda pod: (pod.owner_uid,))
    queue: Queue[str] = Queue("bench")

    def on_change(old: PodView | None, new: PodView | None, priority: Priority) -> None:
        pod = new or old
        assert pod
        queue.add(pod.owner_uid, priority)

    informer.store.listen(on_change)
    gc.collect()
    before, began_at, cpu = resident_megabytes(), time.monotonic(), time.process_time()
    task = asyncio.ensure_future(informer.run())
    await informer.wait_synced()
    cpu, seconds = time.process_time() - cpu, time.monotonic() - began_at
    assert len(informer.store) == arguments.pods, f"{len(informer.store)} pods instead of {arguments.pods}"
    gc.collect()
    gc.freeze()  # as the manager does
    resident = resident_megabytes()
    print_figures(cpu=cpu, seconds=seconds, cache=resident - before, resident=resident, peak=peak_megabytes())
    task.cancel()
    await asyncio.wait((task,))


async def measure_bare(arguments: Sync) -> None:
    """The same pages, decoded into the same Structs and discarded."""
    path = PODS.path(namespace=arguments.namespace)
    params = {"limit": str(PAGE_SIZE), "continue": ""}
    seen = 0
    async with aiohttp_session(arguments) as session:
        async with session.get(CONFIG_MAPS.path(namespace=arguments.namespace)) as response:
            await response.read()
        began_at, cpu = time.monotonic(), time.process_time()
        while seen == 0 or params["continue"]:
            async with session.get(path, params=params) as response:
                page = PODS.page.decode(await response.read())
            params["continue"] = page.metadata.continue_
            seen += len(page.items or ())
        cpu, seconds = time.process_time() - cpu, time.monotonic() - began_at
    assert seen == arguments.pods, f"{seen} pods instead of {arguments.pods}"
    print_figures(cpu=cpu, seconds=seconds, peak=peak_megabytes())


if __name__ == "__main__":
    run(Sync, sync)
