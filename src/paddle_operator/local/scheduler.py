"""Binds pods that have no node, whatever scheduler they name, in the order in which they were made."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

import msgspec

from paddle_operator.kube.backoff import Backoff
from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import Conflict, KubeError, NotFound
from paddle_operator.kube.events import Recorder, Reference
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Manifest, Object, Resource
from paddle_operator.kube.quantities import Amounts
from paddle_operator.local.kubelet.pod import Condition, LocalPod
from paddle_operator.local.kubelet.status_manager import StatusWriter
from paddle_operator.local.placement import AddNode, Bind, Place, placement

log = logging.getLogger(__name__)

_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Scheduler:
    """`nodes` are those of now, `add_node` makes another, `problem` says what is wrong with a pod's claims."""

    def __init__(
        self,
        client: Client,
        pods: Informer[LocalPod, LocalPod],
        writer: StatusWriter,
        recorder: Recorder,
        *,
        nodes: Callable[[], Mapping[str, Place]],
        new_node: Callable[[], Place],
        add_node: Callable[[], Awaitable[None]],
        problem: Callable[[LocalPod], str],
        machine: Amounts,
        clock: Clock,
    ) -> None:
        self._client = client
        self._pods = pods
        self._writer = writer
        self._recorder = recorder
        self._nodes = nodes
        self._new_node = new_node
        self._add_node = add_node
        self._problem = problem
        self._machine = machine
        self._clock = clock
        self._assumed: dict[str, str] = {}  # by UID: where we have bound a pod that the cache does not show there yet
        self._look = asyncio.Event()

    def look(self) -> None:
        """Something has changed that a pod may wait for."""
        self._look.set()

    async def run(self) -> None:
        """Until cancelled; an unreachable server is waited for."""
        backoff = Backoff(self._clock)
        while True:
            await self._look.wait()
            self._look.clear()
            backoff.begin()
            try:
                await self._pass()
            except KubeError as error:
                log.warning("could not schedule, trying again", extra={"why": str(error)})
                self._look.set()
                await backoff.pause()

    async def _pass(self) -> None:
        self._forget_what_is_known()
        waiting = [pod for pod in self._pods.store if self._waits(pod)]
        for pod in sorted(waiting, key=lambda pod: (pod.metadata.creation_timestamp or _BEGINNING, pod.key)):
            current = self._pods.store.get(pod.key)
            if current and current.uid == pod.uid and self._waits(current):
                await self._place(current)

    def _waits(self, pod: LocalPod) -> bool:
        free = not pod.spec.node_name and pod.uid not in self._assumed
        return free and not pod.being_deleted and not pod.finished and not pod.spec.scheduling_gates

    def _forget_what_is_known(self) -> None:
        unbound = {pod.uid for pod in self._pods.store if not pod.spec.node_name}
        self._assumed = {uid: node for uid, node in self._assumed.items() if uid in unbound}

    async def _place(self, pod: LocalPod) -> None:
        while True:
            nodes = self._nodes()
            bound = (
                (node, other)
                for other in self._pods.store
                if (node := other.spec.node_name or self._assumed.get(other.uid, "")) and not other.finished
            )
            answer = placement(pod, bound, list(nodes.values()), self._machine, self._new_node(), self._problem(pod))
            if not isinstance(answer, AddNode):
                break
            await self._add_node()
        if isinstance(answer, Bind):
            await self._bind(pod, answer.node)
        else:
            await self._writer.write(pod.key, pod.uid, lambda current: self._unschedulable(current, answer.message))

    def _unschedulable(self, pod: LocalPod, message: str) -> Manifest | None:
        """The status that says so, where that is news."""
        before = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if pod.spec.node_name or (before and before.reason == "Unschedulable" and before.message == message):
            return None
        self._recorder.warning(_reference(pod), "FailedScheduling", message, "Scheduling")
        since = before.last_transition_time if before and before.status == "False" else None
        since = since or self._clock.now().replace(microsecond=0)
        condition = Condition("PodScheduled", "False", "Unschedulable", message, since)
        others = [each for each in pod.status.conditions if each is not before]
        conditions: list[Manifest] = msgspec.to_builtins([*others, condition])
        return {"conditions": conditions}

    async def _bind(self, pod: LocalPod, node: str) -> None:
        binding: Resource[Object] = Resource("api/v1", f"pods/{pod.key.name}/binding", Object)
        manifest = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(binding, manifest)
        except (NotFound, Conflict) as error:  # gone, or somebody else was faster: the watch will tell
            log.info("a pod could not be bound", extra={"key": str(pod.key), "why": str(error)})
            return
        self._assumed[pod.uid] = node
        note = f"Successfully assigned {pod.key} to {node}"
        self._recorder.normal(_reference(pod), "Scheduled", note, "Binding")


def _reference(pod: LocalPod) -> Reference:
    return Reference("v1", "Pod", Key(pod.key.namespace, pod.key.name), pod.uid)
