"""Hollow nodes: the kubelet's share of a pod's life against a real API server, and no process behind it.

A pod's straight life costs one status write to Running and one at its end. What pods do is said in rules, see
hollow_script.py. As a process of its own, so that a bench does not count it: python -m testbed.hollow --kubeconfig …
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
from testbed.hollow_config import WatchedConfig
from testbed.hollow_container import Running
from testbed.hollow_kubelet import Kubelet
from testbed.hollow_life import Life, Surroundings
from testbed.hollow_node import NODES, HollowNode, Size
from testbed.hollow_pod import PODS, HollowPod
from testbed.hollow_script import NEVER, Behaviour, Rule, Script, exits

log = logging.getLogger(__name__)

WORKERS = 32
RENEW_SECONDS = 2.0  # a stall of 10 s in between, and the node is still not given up: flags.py has 16 s
SCHEDULABLE_WITHIN_SECONDS = 100.0
POLL_SECONDS = 0.05
NODE_NETWORK = ipaddress.IPv4Network("198.18.0.0/16")  # for benchmarks (RFC 2544): nothing answers there
POD_NETWORK = ipaddress.IPv4Network("10.128.0.0/9")  # not the bed's Services, which have 10.96.0.0/16


class HollowNodes:
    """Nodes for the length of a test: `async with HollowNodes(client, count=3) as nodes`. Raises KubeError.

    They serve every pod that is bound to them, of whatever namespace, so that no pod of another test hangs on them;
    leaving removes the nodes and what is still bound to them. `speed` divides kubelet's own pauses and back-offs.
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
        self._config = WatchedConfig(client, self._clock)
        self._nodes: dict[str, HollowNode] = {}
        around = Surroundings(self._script, self._config, _addresses(POD_NETWORK).__next__, speed)
        self._kubelet = Kubelet(client, self._nodes, around, self._clock)
        self._tasks: list[asyncio.Task[None]] = []
        size = Size(cpu, memory, pods, gpus, labels or {})
        name = name or f"hollow-{secrets.token_hex(3)}"
        hosts = _addresses(NODE_NETWORK)
        for index in range(count):
            node = HollowNode(client, f"{name}-{index}", next(hosts), size, self._kubelet, self._clock)
            self._nodes[node.name] = node

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(node.register() for node in self))
            self._start("renewing leases", self._renew())
            informers = (self._kubelet.pods, self._config.config_maps, self._config.secrets)
            for informer in informers:
                self._start(f"following {informer.kind}", informer.run())
            await asyncio.gather(*(informer.wait_synced() for informer in informers))
            for index in range(WORKERS):
                self._start(f"worker {index}", self._kubelet.work())
            await within(self._clock, SCHEDULABLE_WITHIN_SECONDS, self._schedulable())
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[HollowNode]:
        return iter(self._nodes.values())

    def __getitem__(self, which: int | str) -> HollowNode:
        """A node by its place or its name."""
        return self._nodes[which] if isinstance(which, str) else list(self)[which]

    def node_of(self, pod: str, *, namespace: str = "*") -> HollowNode:
        """The node that a pod is bound to. Raises LookupError."""
        rule = Rule(pod, namespace)
        for node in self:
            if any(rule.names(bound.key) for bound in node.pods):
                return node
        raise LookupError(f"no pod {pod} is bound to {', '.join(self._nodes)}")

    # What the test decides

    def script(
        self, pod: str, *behaviours: Behaviour, namespace: str = "*", container: str = "", times: float = NEVER
    ) -> None:
        """Pods of such a name (a glob) behave so from now on, running ones too; of two rules the later one counts.

        Without a container it is about all but the init containers. With `times` it holds for so many lives of
        containers and then no more: `times=1` makes the first attempt fail and the second one run.
        """
        rule = Rule(pod, namespace, container, behaviours, self._now(), times)
        self._script.add(rule)
        self._kubelet.look_at(self._kubelet.lives(rule))

    async def exits(self, pod: str, code: int, *, reason: str = "", namespace: str = "*", container: str = "*") -> None:
        """The matching containers end now; returns when the server knows. Raises LookupError if none is running."""
        rule = Rule(pod, namespace, container)
        ended: list[Life] = []
        for life in self._kubelet.lives(rule):
            running = [one for one in life.everything if isinstance(one.state, Running) and rule.serves(one.who)]
            for one in running:
                one.exit(self._now(), code, reason)
            ended += [life] if running else []
        if not ended:
            raise LookupError(f"no pod {pod} with a running container {container}: {self._alive()}")
        await self._kubelet.tell_of(ended)

    async def evicts(
        self, pod: str, *, message: str = "The node was low on resource: memory.", namespace: str = "*"
    ) -> None:
        """Kubelet is short of something: the pods fail as Evicted. (An eviction by the API is `client.evict`.)"""
        evicted = self._kubelet.lives(Rule(pod, namespace))
        if not evicted:
            raise LookupError(f"no pod {pod}: {self._alive()}")
        for life in evicted:
            life.evict(self._now(), message)
        await self._kubelet.tell_of(evicted)

    def _alive(self) -> str:
        names = sorted(str(life.pod.key) for life in self._kubelet.lives(Rule("*")))
        return f"there are {', '.join(names[:20])}" if names else "no pod of living nodes is alive"

    # What the nodes do

    async def _renew(self) -> None:
        while True:
            renewals = (node.renew() for node in self if node.alive)
            for outcome in await asyncio.gather(*renewals, return_exceptions=True):
                if isinstance(outcome, KubeError):
                    log.warning("could not renew a node's lease", extra={"why": str(outcome)})
                elif isinstance(outcome, BaseException):
                    raise outcome
            await self._clock.sleep(RENEW_SECONDS)

    async def _schedulable(self) -> None:
        """The controller manager has seen that the nodes are ready, and has taken away the taint of new ones."""
        while True:
            nodes = await self._client.list_all(NODES)
            if all(node.schedulable for node in nodes if node.key.name in self._nodes):
                return
            await self._clock.sleep(POLL_SECONDS)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _start(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=f"hollow nodes, {name}")
        task.add_done_callback(_complain)
        self._tasks.append(task)

    async def _end(self) -> None:
        """Nothing of ours is left, nor in the cluster if that still answers. Raises what a task of ours died of."""
        self._kubelet.close()
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await asyncio.gather(*(node.remove() for node in self))  # first, or the scheduler binds more
            await asyncio.gather(*(self._delete(pod) for node in self for pod in node.pods))
        except KubeError as error:
            log.warning("could not remove the hollow nodes", extra={"why": str(error)})
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _delete(self, pod: HollowPod) -> None:
        try:
            await self._client.delete(PODS, pod.key, uid=pod.uid, grace_seconds=0)
        except (NotFound, Conflict):
            return  # gone already


def _addresses(network: ipaddress.IPv4Network) -> Iterator[str]:
    """One after the other from anywhere in the network, so that the nodes of two tests hardly ever share one."""
    size = network.num_addresses - 2
    first = random.SystemRandom().randrange(size)
    return (str(network[1 + (first + count) % size]) for count in itertools.count())


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("a task of the hollow nodes has died", extra={"task": task.get_name()}, exc_info=error)


async def _serve(options: argparse.Namespace) -> None:
    told_to_end = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told_to_end.set)
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
        await told_to_end.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.hollow", description="Nodes without processes.")
    parser.add_argument("--kubeconfig", type=Path, help="the cluster; KUBECONFIG where it is not given")
    parser.add_argument("--count", type=int, default=3, help="of nodes")
    parser.add_argument("--cpu", default="32")
    parser.add_argument("--memory", default="256Gi")
    parser.add_argument("--pods", type=int, default=110, help="how many each node takes")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--name", default="", help="of the nodes, without their index")
    parser.add_argument("--startup-seconds", type=float, default=0.0, help="from binding to running")
    parser.add_argument("--exits-after", type=float, help="seconds after which every container ends well")
    parser.add_argument("--speed", type=float, default=1.0, help="divides kubelet's own pauses")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
