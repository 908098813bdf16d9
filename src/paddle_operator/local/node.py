"""Runs pods as processes of this machine: who starts a task waits for it, and when serve has ended nothing is left.

It speaks to its API server as a kubelet and a scheduler do, so that it can serve a real cluster, too.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from paddle_operator.kube.backoff import Backoff
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock, within
from paddle_operator.kube.errors import Conflict, KubeError, NotFound
from paddle_operator.kube.events import Recorder, Reference
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.log_format import about
from paddle_operator.kube.objects import Key
from paddle_operator.kube.work_queue import Priority
from paddle_operator.local.container_logs import LogFiles
from paddle_operator.local.cri import Images, Sandbox
from paddle_operator.local.kubelet.config_manager import WatchedContents
from paddle_operator.local.kubelet.hosts_file import SERVICES, Name, Service, names_of
from paddle_operator.local.kubelet.ip_allocator import Block, PodAddresses
from paddle_operator.local.kubelet.machine import Gpus, Machine, this_machine
from paddle_operator.local.kubelet.node_status import NODES, MachineNodes, NodeView
from paddle_operator.local.kubelet.pod import PODS, LocalPod
from paddle_operator.local.kubelet.pod_context import PodContext, PodDeps, gpus_asked
from paddle_operator.local.kubelet.pod_status import lost_status
from paddle_operator.local.kubelet.pod_worker import PodWorker
from paddle_operator.local.kubelet.states import LOST, SHUTDOWN
from paddle_operator.local.kubelet.status_manager import StatusWriter
from paddle_operator.local.kubelet.volume_manager import memory_folder, remove_folder
from paddle_operator.local.scheduler import Scheduler
from paddle_operator.local.volume_binder import ClaimBinder, ClaimFolders

log = logging.getLogger(__name__)

RENEW_SECONDS = 240.0  # nobody here watches a Lease; it is written for those who look
GATHER_SECONDS = 0.05  # names and files are refreshed at most this often
LAST_WORDS_SECONDS = 5.0  # for events that are still unsent at the end
KUBELET, SCHEDULER = "kubelet", "default-scheduler"  # who tells of what in `kubectl describe`


class Node:
    """All nodes of one local cluster. `serve` once; `stop` ends it with grace, and asked again, at once.

    `namespace` and `name` are for a cluster that it shares with others; such a cluster binds claims by itself.
    """

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        images: Images,
        sandbox: Sandbox,
        block: Block,
        logs: LogFiles | None = None,
        machine: Machine | None = None,
        clock: Clock | None = None,
        namespace: str = "",
        name: str = "local",
        binds_claims: bool = True,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self._client = client
        self._folder = folder
        self._clock = clock or SystemClock()
        self._renew_seconds = renew_seconds
        self.logs = logs or LogFiles(folder, self._clock)
        self.ready = asyncio.Event()
        machine = machine or this_machine()
        scope = Scope(namespace)
        self._pods: Informer[LocalPod, LocalPod] = Informer(client, PODS, scope, clock=self._clock)
        self._services: Informer[Service, Service] = Informer(client, SERVICES, scope, clock=self._clock)
        self._nodes: Informer[NodeView, NodeView] = Informer(client, NODES, clock=self._clock)
        self._contents = WatchedContents(client, scope, self._clock)
        self._claims = ClaimFolders(client, folder, scope, self._clock)
        self._binder = ClaimBinder(client, self._claims, self._clock) if binds_claims else None
        self._recorder = Recorder(client, reporter=KUBELET, clock=self._clock)
        self._scheduler_recorder = Recorder(client, reporter=SCHEDULER, clock=self._clock)
        self._writer = StatusWriter(client, self._pods, self._clock)
        self._machine_nodes = MachineNodes(client, name, block, machine, self._clock)
        self._addresses = PodAddresses(block)
        self._gpus = Gpus(machine.gpus)
        self._scheduler = self._made_scheduler(machine)
        self._around = PodDeps(
            folder=folder,
            images=images,
            sandbox=sandbox,
            logs=self.logs,
            contents=self._contents,
            claims=self._claims,
            names=self._known_names,
            recorder=self._recorder,
            machine=machine,
            clock=self._clock,
        )
        self._lives: dict[str, PodWorker] = {}  # by UID, so that a pod of the same name is another
        self._names: tuple[Name, ...] | None = None
        self._stale = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._letting_go: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None

    def _made_scheduler(self, machine: Machine) -> Scheduler:
        nodes = self._machine_nodes
        return Scheduler(
            self._client,
            self._pods,
            self._writer,
            self._scheduler_recorder,
            nodes=lambda: nodes.places(each.key.name for each in self._nodes.store if each.spec.unschedulable),
            new_node=nodes.next_place,
            add_node=nodes.add,
            problem=self._claim_problem,
            machine=machine.amounts,
            clock=self._clock,
        )

    @property
    def running(self) -> int:
        """How many pods have processes now."""
        return sum(any(container.runs for container in life.everything) for life in self._lives.values())

    def stop(self) -> None:
        """End all pods with their grace; a second call kills what is left at once."""
        grace = 0.0 if self._stop_asked.is_set() else None
        self._stop_asked.set()
        for life in self._lives.values():
            life.stop(SHUTDOWN, grace)

    async def serve(self) -> None:
        """Until `stop`, when every pod has ended and the server knows; cancelled, it kills all at once."""
        informers = (
            self._pods,
            self._services,
            self._nodes,
            self._contents.config_maps,
            self._contents.secrets,
            self._claims.claims,
            self._claims.volumes,
        )
        async with asyncio.TaskGroup() as tasks:
            asides = [tasks.create_task(informer.run(), name=f"following {informer.kind}") for informer in informers]
            asides += [tasks.create_task(each.run()) for each in (self._recorder, self._scheduler_recorder)]
            await asyncio.gather(*(informer.wait_synced() for informer in informers))
            asides += [tasks.create_task(work) for work in await self._open()]
            await self._serve_pods()
            await self._last_words()
            for aside in asides:
                aside.cancel()

    async def _open(self) -> list[Coroutine[Any, Any, None]]:
        """Take stock of what an earlier process left; what is to be done from now on."""
        bound = [self._machine_nodes.index_of(pod.spec.node_name) for pod in self._pods.store]
        await self._persistently(lambda: self._machine_nodes.add_until(max([1, *bound])))
        await self._report_lost()
        await asyncio.to_thread(self._sweep)
        self._pods.store.listen(self._heard)
        self._services.store.listen(lambda *_: self._names_changed())
        self._nodes.store.listen(lambda *_: self._scheduler.look())
        self._contents.listen(self._content_changed)
        self._claims.listen(self._claims_changed)
        works: list[Coroutine[Any, Any, None]] = [self._scheduler.run(), self._refresh(), self._renew()]
        return [*works, self._binder.run()] if self._binder else works

    async def _serve_pods(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            for pod in list(self._pods.store):
                self._heard(None, pod, Priority.LOW)
            self._scheduler.look()
            self.ready.set()
            await self._stop_asked.wait()

    async def _last_words(self) -> None:
        for recorder in (self._scheduler_recorder, self._recorder):
            try:
                await within(self._clock, LAST_WORDS_SECONDS, recorder.flush())
            except (KubeError, TimeoutError) as error:
                log.info("some events were not sent", extra={"why": str(error) or "no answer"})

    # What is heard

    def _heard(self, old: LocalPod | None, new: LocalPod | None, _lane: Priority) -> None:
        if new is None:
            assert old
            self._pod_is_gone(old)
        elif self._machine_nodes.has(new.spec.node_name):
            self._pod_is_ours(new)
        if old is None or new is None or _placed_otherwise(old, new):
            self._scheduler.look()
            self._names_changed()

    def _pod_is_gone(self, pod: LocalPod) -> None:
        self._letting_go.discard(pod.uid)
        if life := self._lives.get(pod.uid):
            life.gone()
        elif self._machine_nodes.has(pod.spec.node_name):
            self.logs.remove(pod.uid)

    def _pod_is_ours(self, pod: LocalPod) -> None:
        life = self._lives.get(pod.uid)
        if life:
            life.saw(pod)
        elif pod.finished:
            self._let_go(pod)
        elif not self._stop_asked.is_set() and self._tasks:
            self._begin(pod, self._tasks)

    def _names_changed(self) -> None:
        self._names = None
        self._stale.set()

    def _content_changed(self, _kind: str, key: Key) -> None:
        self._stale.set()
        for life in self._lives.values():
            if life.home.pod.key.namespace == key.namespace:
                life.home.nudge()

    def _claims_changed(self) -> None:
        self._scheduler.look()
        for life in self._lives.values():
            life.home.nudge()

    # What is done

    def _begin(self, pod: LocalPod, tasks: asyncio.TaskGroup) -> None:
        node_address = self._machine_nodes.address_of(pod.spec.node_name)
        home = PodContext(pod, node_address, self._around, self._gpus.take(pod.uid, gpus_asked(pod)))
        if not pod.spec.host_network and self._addresses.keep(pod.uid, pod.status.pod_ip):
            home.address = pod.status.pod_ip
        life = PodWorker(home, self._writer, lambda: self._addresses.take(pod.uid))
        self._lives[pod.uid] = life
        self.logs.register(pod.uid, tuple(each.name for each in pod.spec.every_container))
        if pod.being_deleted:
            life.saw(pod)
        tasks.create_task(self._run(life), name=f"pod {pod.key}")

    async def _run(self, life: PodWorker) -> None:
        pod = life.home.pod
        with about(pod.key):
            try:
                await life.live()
            except Exception as defect:  # a defect in one pod's life must not end the others'
                log.exception("a pod's life ended by a defect of the node")
                told = life.fail(f"a defect of the local node ended the pod: {_in_short(defect)}")
                with contextlib.suppress(TimeoutError):
                    telling = self._writer.write(pod.key, pod.uid, lambda _: told)
                    await within(self._clock, LAST_WORDS_SECONDS, telling)
            finally:
                await self._after(life)

    async def _after(self, life: PodWorker) -> None:
        pod = life.home.pod
        del self._lives[pod.uid]
        self._gpus.give_back(pod.uid)
        self._addresses.give_back(pod.uid, [life.home.address])
        await asyncio.to_thread(life.home.volumes.remove)
        current = self._pods.store.get(pod.key)
        if current is None or current.uid != pod.uid:
            self.logs.remove(pod.uid)
        elif life.over:
            self._let_go(current)

    def _let_go(self, pod: LocalPod) -> None:
        """A pod that is over and that somebody has deleted: its object may go now."""
        if pod.being_deleted and pod.uid not in self._letting_go and self._tasks:
            self._letting_go.add(pod.uid)
            self._tasks.create_task(self._persistently(lambda: self._delete(pod)))

    async def _delete(self, pod: LocalPod) -> None:
        try:
            left = await self._client.delete(PODS, pod.key, uid=pod.uid, grace_seconds=0)
        except (NotFound, Conflict):
            return
        self._pods.deleted(pod.key, pod.uid, left)

    async def _report_lost(self) -> None:
        """An earlier process ran these; all that it started ended with it."""
        for pod in list(self._pods.store):
            if self._machine_nodes.has(pod.spec.node_name) and pod.has_run and not pod.finished:
                log.warning("a pod was lost with an earlier local cluster", extra={"key": str(pod.key)})
                self._recorder.warning(Reference("v1", "Pod", pod.key, pod.uid), LOST.reason, LOST.message)
                await self._writer.write(pod.key, pod.uid, lambda now: lost_status(now, self._clock.now()))
                await asyncio.to_thread(self._remove_all_but_logs, pod.uid)

    def _remove_all_but_logs(self, uid: str) -> None:
        folder = self._folder / "pods" / uid
        for each in (folder / "_volumes", memory_folder(uid), *folder.glob("*/scratch-*")):
            remove_folder(each)

    def _sweep(self) -> None:
        """What is left of pods that are no more."""
        known = {pod.uid for pod in self._pods.store}
        folder = self._folder / "pods"
        for each in folder.iterdir() if folder.is_dir() else ():
            if each.name not in known:
                remove_folder(memory_folder(each.name))
                remove_folder(each)

    async def _refresh(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            for life in list(self._lives.values()):
                life.home.refresh()
            await self._clock.sleep(GATHER_SECONDS)

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._renew_seconds)
            try:
                await self._machine_nodes.renew()
            except KubeError as error:
                log.warning("could not renew a node's lease", extra={"why": str(error)})

    async def _persistently(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Again and again, until the server has taken it or the node is to end."""
        backoff = Backoff(self._clock)
        while True:
            backoff.begin()
            try:
                await work()
            except KubeError as error:
                log.warning("the server did not take it, trying again", extra={"why": str(error)})
                if self._stop_asked.is_set():
                    return
                await backoff.pause()
            else:
                return

    def _known_names(self) -> tuple[Name, ...]:
        if self._names is None:
            self._names = names_of(self._services.store, self._pods.store)
        return self._names

    def _claim_problem(self, pod: LocalPod) -> str:
        claims = (volume.persistent_volume_claim for volume in pod.spec.volumes)
        problems = (self._claims.problem(pod.key.namespace, claim.claim_name) for claim in claims if claim)
        return next(filter(None, problems), "")


def _placed_otherwise(old: LocalPod, new: LocalPod) -> bool:
    """Whether the scheduler or who looks for names sees another pod."""
    return (
        old.spec.node_name != new.spec.node_name
        or old.finished != new.finished
        or old.being_deleted != new.being_deleted
        or old.status.pod_ip != new.status.pod_ip
        or old.status.ready != new.status.ready
        or old.metadata.labels != new.metadata.labels
        or old.spec.scheduling_gates != new.spec.scheduling_gates
    )


def _in_short(defect: BaseException) -> str:
    while isinstance(defect, BaseExceptionGroup):
        defect = defect.exceptions[0]
    return f"{type(defect).__name__}: {defect}"
