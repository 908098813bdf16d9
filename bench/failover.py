"""Two replicas, of which one leads: how long until the other does, when the first is killed, drained or cut off?

The figures are those of the lease's own terms (15 s) and hardly of the machine. A replica that is frozen, which is how
being cut off looks to the others, must not write any more when it is thawed: it ends by itself.
"""

import asyncio
import os
import signal
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path

from bench.cluster import BenchCluster, Program
from bench.figures import Samples, report_round, wait_until_ready
from bench.loads import NAMESPACE, ClusterFactory
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.load import load
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import LEASES, Key
from paddle_operator.manager import LEASE
from testbed.ports import find_free_ports

WAYS = {"killed": signal.SIGKILL, "drained": signal.SIGTERM, "cut_off": signal.SIGSTOP}
POLL_SECONDS = 0.02
MAX_SECONDS = 60.0
LAST_WORD_SECONDS = 20.0


async def failover(new_cluster: ClusterFactory, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    async with new_cluster() as cluster:
        for turn in range(rounds):
            for way, word in WAYS.items():
                seconds = await one(cluster, word)
                report_round(cluster, f"the leader is {way}, round {turn + 1} of {rounds}", {"seconds": seconds})
                samples[f"failover_{way}"].append(seconds)
    return samples


async def one(cluster: BenchCluster, word: signal.Signals) -> float:
    async with AsyncExitStack() as stack:
        common = cluster.common_options(NAMESPACE)
        client = await stack.enter_async_context(Client(load(Path(common["kubeconfig"]))))
        lease = Key(common["namespace"], LEASE)
        first = await start_replica(cluster, stack)
        leader = await changed_from("", client, lease)
        await start_replica(cluster, stack)
        began_at = time.monotonic()
        os.kill(first.pid, word)
        await changed_from(leader, client, lease)
        seconds = time.monotonic() - began_at
        if word is signal.SIGSTOP:
            os.kill(first.pid, signal.SIGCONT)
            await asyncio.wait_for(first.wait(), LAST_WORD_SECONDS)  # it has lost the lease and must not go on
    return seconds


async def start_replica(cluster: BenchCluster, stack: AsyncExitStack) -> Program:
    (port,) = find_free_ports(1)
    manager = await stack.enter_async_context(cluster.manager(NAMESPACE, port))
    stack.callback(manager.stop)
    await asyncio.to_thread(wait_until_ready, port)
    return manager


async def changed_from(holder: str, client: Client, lease: Key) -> str:
    """Who holds it, once it is somebody else."""
    async with asyncio.timeout(MAX_SECONDS):
        while True:
            found = await held_by(client, lease)
            if found and found != holder:
                return found
            await asyncio.sleep(POLL_SECONDS)


async def held_by(client: Client, lease: Key) -> str:
    try:
        return (await client.get(LEASES, lease)).spec.holder_identity or ""
    except NotFound:
        return ""
