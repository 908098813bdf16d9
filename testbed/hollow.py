"""Hollow nodes: kubelets against a real API server that simulate their pods and run no process.

A pod without incidents costs one status write to Running and one at its end. Rules decide what pods do, see
hollow_script.py. A bench runs them as a separate process: python -m testbed.hollow --kubeconfig …
"""

import argparse
import asyncio
import ipaddress
import itertools
import logging
import random
import secrets
import signal
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Self

import uvloop

from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock, SystemClock, within
from paddle_operator.kube.config import load
from paddle_operator.kube.errors import Conflict, KubeError, NotFound
from paddle_operator.local.kubelet.pod import PODS, LocalPod
from testbed.hollow_config import ConfigCache
from testbed.hollow_kubelet import HollowKubelet
from testbed.hollow_node import NODES, HollowNode, NodeSize
from testbed.hollow_pod import SimulatedPod, SimulationDeps
from testbed.hollow_script import NEVER, Behaviour, BehaviourRule, Script, exits

log = logging.getLogger(__name__)

WORKERS = 32
LEASE_RENEW_SECONDS = 2.0  # with a stall of 10 s in between a node stays ready: flags.py has 16 s
SCHEDULABLE_TIMEOUT_SECONDS = 100.0
POLL_SECONDS = 0.05
NODE_NETWORK = ipaddress.IPv4Network("198.18.0.0/16")  # for benchmarks (RFC 2544): no host has such an address
POD_NETWORK = ipaddress.IPv4Network("10.128.0.0/9")  # the Services of the testbed have 10.96.0.0/16


class HollowNodes:
    """Nodes for the duration of a test: `async with HollowNodes(client, count=3) as nodes`. Raises KubeError.

    They serve all pods that are bound to them, in any namespace, so that no pod of another test hangs. On exit the
    nodes and the pods that are still bound to them are deleted. `speed` divides kubelet's own delays and back-offs.
    """

    def __init__(
        self,
        client: Client,
        *,
        count: int = 1,
        cpu: str = "32",
        memory: str = "256Gi",
        pods: int = 110,
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
        name: str = "",
        startup_seconds: float = 0.0,
        speed: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._script = Script(startup_seconds)
        self._config = ConfigCache(client, self._clock)
        self._nodes: dict[str, HollowNode] = {}
        deps = SimulationDeps(self._script, self._config, _address_sequence(POD_NETWORK).__next__, speed)
        self._kubelet = HollowKubelet(client, self._nodes, deps, self._clock)
        self._tasks: list[asyncio.Task[None]] = []
        size = NodeSize(cpu, memory, pods, gpus, labels or {})
        name = name or f"hollow-{secrets.token_hex(3)}"
        node_addresses = _address_sequence(NODE_NETWORK)
        for index in range(count):
            node = HollowNode(client, f"{name}-{index}", next(node_addresses), size, self._kubelet, self._clock)
            self._nodes[node.name] = node

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(node.register() for node in self))
            self._start_task("lease renewal", self._renew_leases())
            informers = (self._kubelet.pods, self._config.config_maps, self._config.secrets)
            for informer in informers:
                self._start_task(f"informer {informer.kind}", informer.run())
            await asyncio.gather(*(informer.wait_synced() for informer in informers))
            for index in range(WORKERS):
                self._start_task(f"worker {index}", self._kubelet.work())
            await within(self._clock, SCHEDULABLE_TIMEOUT_SECONDS, self._wait_schedulable())
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[HollowNode]:
        return iter(self._nodes.values())

    def __getitem__(self, index: int | str) -> HollowNode:
        """A node by its index or its name."""
        return self._nodes[index] if isinstance(index, str) else list(self)[index]

    def node_of(self, pod: str, *, namespace: str = "*") -> HollowNode:
        """The node that a pod is bound to. Raises LookupError."""
        rule = BehaviourRule(pod, namespace)
        for node in self:
            if any(rule.matches(bound.key) for bound in node.pods):
                return node
        raise LookupError(f"no pod {pod} is bound to {', '.join(self._nodes)}")

    # Called by tests

    def script(
        self, pod: str, *behaviours: Behaviour, namespace: str = "*", container: str = "", times: float = NEVER
    ) -> None:
        """Make pods whose name matches a glob behave so from now on, running ones too; later rules override.

        Without `container` it is about all but the init containers. `times` limits it to that many container runs:
        `times=1` makes the first attempt fail and the second one run.
        """
        rule = BehaviourRule(pod, namespace, container, behaviours, self._now(), times)
        self._script.add(rule)
        self._kubelet.enqueue(self._kubelet.matching(rule))

    async def exit(self, pod: str, code: int, *, reason: str = "", namespace: str = "*", container: str = "*") -> None:
        """End the matching containers and return once the server knows. Raises LookupError if none is running."""
        rule = BehaviourRule(pod, namespace, container)
        changed: list[SimulatedPod] = []
        for simulation in self._kubelet.matching(rule):
            running = [each for each in simulation.all_containers if each.is_running and rule.applies_to(each.run)]
            for each in running:
                each.exit(self._now(), code, reason)
            changed += [simulation] if running else []
        if not changed:
            raise LookupError(f"no pod {pod} with a running container {container}: {self._describe_pods()}")
        await self._kubelet.write_statuses(changed)

    async def evict(
        self, pod: str, *, message: str = "The node was low on resource: memory.", namespace: str = "*"
    ) -> None:
        """Evict pods as a kubelet under pressure: they fail as Evicted. (The eviction API is `client.evict`.)"""
        evicted = self._kubelet.matching(BehaviourRule(pod, namespace))
        if not evicted:
            raise LookupError(f"no pod {pod}: {self._describe_pods()}")
        for simulation in evicted:
            simulation.evict(self._now(), message)
        await self._kubelet.write_statuses(evicted)

    def _describe_pods(self) -> str:
        names = sorted(str(simulation.pod.key) for simulation in self._kubelet.matching(BehaviourRule("*")))
        return f"there are {', '.join(names[:20])}" if names else "no live node has a pod"

    # Tasks

    async def _renew_leases(self) -> None:
        while True:
            renewals = (node.renew() for node in self if node.alive)
            for outcome in await asyncio.gather(*renewals, return_exceptions=True):
                if isinstance(outcome, KubeError):
                    log.warning("node lease not renewed", extra={"error": str(outcome)})
                elif isinstance(outcome, BaseException):
                    raise outcome
            await self._clock.sleep(LEASE_RENEW_SECONDS)

    async def _wait_schedulable(self) -> None:
        """Return once the controller manager has removed the taints of the new nodes."""
        while True:
            nodes = await self._client.list_all(NODES)
            if all(node.schedulable for node in nodes if node.key.name in self._nodes):
                return
            await self._clock.sleep(POLL_SECONDS)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _start_task(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=f"hollow nodes, {name}")
        task.add_done_callback(_log_failure)
        self._tasks.append(task)

    async def _close(self) -> None:
        """End all tasks and delete nodes and pods, if the server responds. Raises the error of a task that failed."""
        self._kubelet.close()
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await asyncio.gather(*(node.remove() for node in self))  # first, or the scheduler binds more
            await asyncio.gather(*(self._delete(pod) for node in self for pod in node.pods))
        except KubeError as error:
            log.warning("hollow nodes not removed", extra={"error": str(error)})
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _delete(self, pod: LocalPod) -> None:
        try:
            await self._client.delete(PODS, pod.key, uid=pod.uid, grace_seconds=0)
        except (NotFound, Conflict):
            return  # deleted already


def _address_sequence(network: ipaddress.IPv4Network) -> Iterator[str]:
    """Consecutive addresses from a random start, so that the nodes of two tests hardly ever share one."""
    size = network.num_addresses - 2
    first = random.SystemRandom().randrange(size)
    return (str(network[1 + (first + count) % size]) for count in itertools.count())


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("hollow nodes task failed", extra={"task": task.get_name()}, exc_info=error)


async def _serve(options: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with (
        Client(load.load(options.kubeconfig), user_agent="hollow-nodes") as client,
        HollowNodes(
            client,
            count=options.count,
            cpu=options.cpu,
            memory=options.memory,
            pods=options.pods,
            gpus=options.gpus,
            name=options.name,
            startup_seconds=options.startup_seconds,
            speed=options.speed,
        ) as nodes,
    ):
        if options.exits_after is not None:
            nodes.script("*", exits(0, after=options.exits_after))
        print(f"{len(nodes)} hollow nodes are ready, the first is {nodes[0]}", flush=True)
        await stopping.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.hollow", description="Nodes without processes.")
    parser.add_argument("--kubeconfig", type=Path, help="the cluster; by default KUBECONFIG")
    parser.add_argument("--count", type=int, default=3, help="number of nodes")
    parser.add_argument("--cpu", default="32")
    parser.add_argument("--memory", default="256Gi")
    parser.add_argument("--pods", type=int, default=110, help="capacity of each node")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--name", default="", help="name of the nodes, without their index")
    parser.add_argument("--startup-seconds", type=float, default=0.0, help="seconds from binding to running")
    parser.add_argument("--exits-after", type=float, help="seconds after which every container exits 0")
    parser.add_argument("--speed", type=float, default=1.0, help="divides kubelet's own delays")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
