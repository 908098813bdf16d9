"""Takes every pod of the hollow nodes through its life and tells the server of it, one status write a step.

A pod that waits costs a timer and no task; 32 workers write, since an API server is saturated from about eight.
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
from testbed.hollow_life import Life, Surroundings
from testbed.hollow_node import HollowNode
from testbed.hollow_pod import PODS, HollowPod
from testbed.hollow_script import NEVER, Rule
from testbed.hollow_status import status_of

log = logging.getLogger(__name__)

CONFLICT_SECONDS = 0.05  # until the change that we did not know of has reached our cache


class Kubelet:
    """The kubelets of all hollow nodes in one; `nodes` may be filled after it was made."""

    def __init__(self, client: Client, nodes: Mapping[str, HollowNode], around: Surroundings, clock: Clock) -> None:
        self.pods: Informer[HollowPod, HollowPod] = Informer(client, PODS, Scope(fields="spec.nodeName!="), clock=clock)
        self._pods_of = self.pods.store.index(lambda pod: (pod.spec.node_name,))
        self.pods.store.listen(self._heard)
        self._client = client
        self._nodes = nodes
        self._around = around
        self._clock = clock
        self._queue: Queue[Key] = Queue("hollow", clock)
        self._lives: dict[str, Life] = {}  # by UID, so that a pod of the same name is another
        self._told: dict[str, bytes] = {}  # the status that the server has of each life
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}  # who waits until the news of a life are told
        self._let_go: set[str] = set()  # pods whose objects we have asked the server to remove

    def pods_of(self, node: str) -> Collection[HollowPod]:
        return self._pods_of[node]

    def lives(self, rule: Rule) -> list[Life]:
        """The pods that a rule names and whose node is alive."""
        return [life for life in self._lives.values() if rule.names(life.pod.key) and self._node_of(life.pod)]

    def look_at(self, lives: Iterable[Life]) -> None:
        """Something has changed for these pods that the server does not know of."""
        for life in lives:
            self._queue.add(life.pod.key)

    async def tell_of(self, lives: Iterable[Life]) -> None:
        """Return when the server knows how these pods are now."""
        told = []
        for life in lives:
            told.append(asyncio.get_running_loop().create_future())
            self._waiters.setdefault(life.pod.uid, []).append(told[-1])
            self._queue.add(life.pod.key)
        await asyncio.gather(*told)

    def resume(self, node: str) -> None:
        """Forget what was known of a node's pods and go on from their status."""
        for pod in self.pods_of(node):
            self._forget(pod.uid)
            self._queue.add(pod.key)

    async def work(self) -> None:
        """One worker: serve whichever pod is next until `close`."""
        while True:
            try:
                key = await self._queue.take()
            except Closed:
                return
            try:
                await self._serve(key)
                self._queue.forget(key)
            except NotFound:
                pass  # its end will be heard of
            except Conflict:
                self._queue.add_after(key, CONFLICT_SECONDS)
            except KubeError as error:
                log.warning("could not serve a pod, trying again", extra={"pod": str(key), "why": str(error)})
                self._queue.retry(key)
            finally:
                self._queue.done(key)

    def close(self) -> None:
        self._queue.close()

    def _heard(self, old: HollowPod | None, new: HollowPod | None, lane: Priority) -> None:
        if new is None:
            if old is not None:
                self._forget(old.uid)
                self._let_go.discard(old.uid)
        elif new.spec.node_name in self._nodes and (old is None or new.asks_otherwise_than(old)):
            if life := self._lives.get(new.uid):
                life.nudge(self._now())
            self._queue.add(new.key, lane)

    async def _serve(self, key: Key) -> None:
        """Bring one pod as far as it is due, tell the server, and come back at the next step."""
        pod = self.pods.store.get(key)
        node = self._node_of(pod) if pod else None
        if pod is None or node is None:
            return
        if not pod.finished and not await self._live(pod, node):
            return
        self._forget(pod.uid)
        if pod.being_deleted and pod.uid not in self._let_go:
            # Also with grace 0, with which the API server deletes at once: a client that went away in the middle of its
            # request leaves such a pod behind, and kubelet is who finishes it.
            left = await self._client.delete(PODS, key, uid=pod.uid, grace_seconds=0)
            self._let_go.add(pod.uid)
            self.pods.deleted(key, pod.uid, left)

    async def _live(self, pod: HollowPod, node: HollowNode) -> bool:
        """Take the steps that are due; says whether the life is over, and the server knows."""
        life = self._lives.get(pod.uid)
        if life is None:
            life = self._lives[pod.uid] = Life(pod, node.address, self._around, self._now())
        wake_at = life.advance(pod, self._now())
        over = life.over  # as it will be told: while we write, the test may end the pod
        await self._tell(life)
        if not over and wake_at < NEVER:
            self._queue.add_after(pod.key, wake_at - self._now())
        return over

    async def _tell(self, life: Life) -> None:
        """Write the status if it is news. Raises Conflict where the pod, perhaps a condition of it, has changed."""
        pod = life.pod
        waiters = self._waiters.pop(pod.uid, [])
        status = status_of(life, self._now())
        text = msgspec.json.encode(status)
        if self._told.get(pod.uid) != text:
            # A merge replaces the list of conditions, those of others too: hence the version.
            known = {"uid": pod.uid, "resourceVersion": pod.metadata.resource_version}
            try:
                written = await self._client.merge(
                    PODS, pod.key, {"metadata": known, "status": status}, subresource="status"
                )
            except KubeError:
                self._waiters.setdefault(pod.uid, []).extend(waiters)
                raise
            self.pods.observe_write(written)
            self._told[pod.uid] = text
        _release(waiters)

    def _node_of(self, pod: HollowPod) -> HollowNode | None:
        node = self._nodes.get(pod.spec.node_name)
        return node if node and node.alive else None

    def _forget(self, uid: str) -> None:
        self._lives.pop(uid, None)
        self._told.pop(uid, None)
        _release(self._waiters.pop(uid, []))

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
