"""The kubelet of all hollow nodes: advances each simulated pod and writes its status, one write a step.

A waiting pod costs a timer and no task. 32 workers write, since an API server is saturated from about eight.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

import msgspec

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import Conflict, KubeError, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key
from paddle_operator.kube.work_queue import Closed, Priority, Queue
from paddle_operator.local.kubelet.pod import PODS, LocalPod
from testbed.hollow_node import HollowNode
from testbed.hollow_pod import SimulatedPod, SimulationDeps
from testbed.hollow_script import NEVER, BehaviourRule

log = logging.getLogger(__name__)

CONFLICT_RETRY_SECONDS = 0.05  # until another client's change has reached our cache


class HollowKubelet:
    """One kubelet for all hollow nodes; `nodes` may be filled later."""

    def __init__(self, client: Client, nodes: Mapping[str, HollowNode], deps: SimulationDeps, clock: Clock) -> None:
        self.pods: Informer[LocalPod, LocalPod] = Informer(client, PODS, Scope(fields="spec.nodeName!="), clock=clock)
        self._pods_of = self.pods.store.index(lambda pod: (pod.spec.node_name,))
        self.pods.store.listen(self._handle_pod)
        self._client = client
        self._nodes = nodes
        self._deps = deps
        self._clock = clock
        self._queue: Queue[Key] = Queue("hollow", clock)
        self._simulations: dict[str, SimulatedPod] = {}  # by UID, since names are reused
        self._written: dict[str, bytes] = {}  # the last written status, by UID
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}  # for the next status write, by UID
        self._deleted: set[str] = set()  # pods that we have deleted on the server

    def pods_of(self, node: str) -> Collection[LocalPod]:
        return self._pods_of[node]

    def matching(self, rule: BehaviourRule) -> list[SimulatedPod]:
        """The pods of live nodes that a rule matches."""
        return [each for each in self._simulations.values() if rule.matches(each.pod.key) and self._node_of(each.pod)]

    def enqueue(self, simulations: Iterable[SimulatedPod]) -> None:
        for simulation in simulations:
            self._queue.add(simulation.pod.key)

    async def write_statuses(self, simulations: Iterable[SimulatedPod]) -> None:
        """Return once the server has the status of these pods."""
        writes = []
        for simulation in simulations:
            writes.append(asyncio.get_running_loop().create_future())
            self._waiters.setdefault(simulation.pod.uid, []).append(writes[-1])
            self._queue.add(simulation.pod.key)
        await asyncio.gather(*writes)

    def resume(self, node: str) -> None:
        """Forget a node's pods and continue from their status, as a kubelet that restarts."""
        for pod in self.pods_of(node):
            self._forget(pod.uid)
            self._queue.add(pod.key)

    async def work(self) -> None:
        """One worker: sync pods from the queue until `close`."""
        while True:
            try:
                key = await self._queue.take()
            except Closed:
                return
            try:
                await self._sync(key)
                self._queue.forget(key)
            except NotFound:
                pass  # the watch will report the deletion
            except Conflict:
                self._queue.add_after(key, CONFLICT_RETRY_SECONDS)
            except KubeError as error:
                log.warning("pod sync failed, retrying", extra={"pod": str(key), "error": str(error)})
                self._queue.retry(key)
            finally:
                self._queue.done(key)

    def close(self) -> None:
        self._queue.close()

    def _handle_pod(self, old: LocalPod | None, new: LocalPod | None, priority: Priority) -> None:
        if new is None:
            if old is not None:
                self._forget(old.uid)
                self._deleted.discard(old.uid)
        elif new.spec.node_name in self._nodes and (old is None or new.needs_sync(old)):
            if simulation := self._simulations.get(new.uid):
                simulation.nudge(self._now())
            self._queue.add(new.key, priority)

    async def _sync(self, key: Key) -> None:
        """Advance one pod, write its status, and requeue it for its next step."""
        pod = self.pods.store.get(key)
        node = self._node_of(pod) if pod else None
        if pod is None or node is None:
            return
        if not pod.finished and not await self._advance(pod, node):
            return
        self._forget(pod.uid)
        if pod.being_deleted and pod.uid not in self._deleted:
            # Also for grace period 0, with which the API server deletes at once: a client that disconnects during its
            # request leaves such a pod behind, and kubelet completes the deletion.
            remaining = await self._client.delete(PODS, key, uid=pod.uid, grace_seconds=0)
            self._deleted.add(pod.uid)
            self.pods.observe_delete(key, pod.uid, remaining)

    async def _advance(self, pod: LocalPod, node: HollowNode) -> bool:
        """Take the steps that are due; returns whether the pod has finished and the server has its status."""
        simulation = self._simulations.get(pod.uid)
        if simulation is None:
            simulation = self._simulations[pod.uid] = SimulatedPod(pod, node.address, self._deps, self._now())
        next_at = simulation.advance(pod, self._now())
        finished = simulation.finished  # as it is written: during the write the test may end the pod
        await self._write_status(simulation)
        if not finished and next_at < NEVER:
            self._queue.add_after(pod.key, next_at - self._now())
        return finished

    async def _write_status(self, simulation: SimulatedPod) -> None:
        """Write the status if it has changed. Raises Conflict if the pod, perhaps a condition, has changed."""
        pod = simulation.pod
        waiters = self._waiters.pop(pod.uid, [])
        status = simulation.status(self._now())
        encoded = msgspec.json.encode(status)
        if self._written.get(pod.uid) != encoded:
            # A merge patch replaces the list of conditions, those of other owners too: hence the resourceVersion.
            precondition = {"uid": pod.uid, "resourceVersion": pod.metadata.resource_version}
            try:
                written = await self._client.merge(
                    PODS, pod.key, {"metadata": precondition, "status": status}, subresource="status"
                )
            except KubeError:
                self._waiters.setdefault(pod.uid, []).extend(waiters)
                raise
            self.pods.observe_write(written)
            self._written[pod.uid] = encoded
        _resolve(waiters)

    def _node_of(self, pod: LocalPod) -> HollowNode | None:
        node = self._nodes.get(pod.spec.node_name)
        return node if node and node.alive else None

    def _forget(self, uid: str) -> None:
        self._simulations.pop(uid, None)
        self._written.pop(uid, None)
        _resolve(self._waiters.pop(uid, []))

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _resolve(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
