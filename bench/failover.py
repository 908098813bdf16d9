"""How long until the second replica leads, when the leader is killed, drained or cut off from the API server?

The figures depend on the lease duration (15 s) and hardly on the machine. SIGSTOP simulates a leader that is cut off.
When it continues it must not write any more: it exits by itself.
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
from paddle_operator.manager import LEASE_NAME
from testbed.ports import find_free_ports

LEADER_SIGNALS = {"killed": signal.SIGKILL, "drained": signal.SIGTERM, "cut_off": signal.SIGSTOP}
POLL_SECONDS = 0.02
TAKEOVER_TIMEOUT_SECONDS = 60.0
EXIT_TIMEOUT_SECONDS = 20.0


async def failover(new_cluster: ClusterFactory, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    async with new_cluster() as cluster:
        for turn in range(rounds):
            for disruption, signal_number in LEADER_SIGNALS.items():
                seconds = await time_takeover(cluster, signal_number)
                report_round(cluster, f"leader {disruption}, round {turn + 1} of {rounds}", {"seconds": seconds})
                samples[f"failover_{disruption}"].append(seconds)
    return samples


async def time_takeover(cluster: BenchCluster, signal_number: signal.Signals) -> float:
    async with AsyncExitStack() as stack:
        common = cluster.common_options(NAMESPACE)
        client = await stack.enter_async_context(Client(load(Path(common["kubeconfig"]))))
        lease = Key(common["namespace"], LEASE_NAME)
        first = await start_replica(cluster, stack)
        leader = await wait_new_holder("", client, lease)
        await start_replica(cluster, stack)
        began_at = time.monotonic()
        os.kill(first.pid, signal_number)
        await wait_new_holder(leader, client, lease)
        seconds = time.monotonic() - began_at
        if signal_number is signal.SIGSTOP:
            os.kill(first.pid, signal.SIGCONT)
            await asyncio.wait_for(first.wait(), EXIT_TIMEOUT_SECONDS)  # it has lost the lease and must exit
    return seconds


async def start_replica(cluster: BenchCluster, stack: AsyncExitStack) -> Program:
    (port,) = find_free_ports(1)
    manager = await stack.enter_async_context(cluster.manager(NAMESPACE, port))
    stack.callback(manager.stop)
    await asyncio.to_thread(wait_until_ready, port)
    return manager


async def wait_new_holder(holder: str, client: Client, lease: Key) -> str:
    """Wait until the lease has another holder, and return it."""
    async with asyncio.timeout(TAKEOVER_TIMEOUT_SECONDS):
        while True:
            new_holder = await lease_holder(client, lease)
            if new_holder and new_holder != holder:
                return new_holder
            await asyncio.sleep(POLL_SECONDS)


async def lease_holder(client: Client, lease: Key) -> str:
    try:
        return (await client.get(LEASES, lease)).spec.holder_identity or ""
    except NotFound:
        return ""
