"""The kubelet's sync loop: starts, updates and cleans up one worker for each pod that is bound to this host."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from paddle_operator.kube.backoff import Backoff
from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock, within
from paddle_operator.kube.errors import Conflict, KubeError, NotFound
from paddle_operator.kube.events import ObjectReference
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.log_format import about
from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.device_manager import DeviceManager, requested_gpus
from paddle_operator.local.kubelet.hosts_file import HostRecordCache
from paddle_operator.local.kubelet.ip_allocator import AddressBlock, IPAllocator
from paddle_operator.local.kubelet.node_status import NodeManager
from paddle_operator.local.kubelet.pod import PODS, LocalPod
from paddle_operator.local.kubelet.pod_context import PodContext, PodDeps
from paddle_operator.local.kubelet.pod_status import LOST, NODE_SHUTDOWN, lost_status
from paddle_operator.local.kubelet.pod_worker import FINAL_STATUS_SECONDS, PodWorker
from paddle_operator.local.kubelet.status_manager import StatusManager
from paddle_operator.local.kubelet.volume_manager import memory_directory, remove_directory

log = logging.getLogger(__name__)

REFRESH_INTERVAL_SECONDS = 0.05  # files of running pods are refreshed at most this often


class Kubelet:
    """Serves the pods of all nodes of this host. `run` once; `stop` ends it."""

    def __init__(
        self,
        client: Client,
        pods: Informer[LocalPod, LocalPod],
        statuses: StatusManager,
        nodes: NodeManager,
        block: AddressBlock,
        hosts: HostRecordCache,
        deps: PodDeps,
    ) -> None:
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self._client = client
        self._pods = pods
        self._statuses = statuses
        self._nodes = nodes
        self._hosts = hosts
        self._deps = deps
        self._clock = deps.clock
        self._addresses = IPAllocator(block)
        self._devices = DeviceManager(deps.machine.gpus)
        self._workers: dict[str, PodWorker] = {}  # by UID, since names are reused
        self._outdated = asyncio.Event()
        self._deleting: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def running_pods(self) -> int:
        return sum(worker.is_running for worker in self._workers.values())

    def stop(self) -> None:
        """Terminate all pods with their grace period; a second call kills them at once."""
        grace = 0.0 if self.stopping.is_set() else None
        self.stopping.set()
        for worker in self._workers.values():
            worker.terminate(NODE_SHUTDOWN, grace)

    async def run(self) -> None:
        """Serve pods until `stop` and the end of all workers; if cancelled, kill all processes."""
        async with asyncio.TaskGroup() as self._tasks:
            for pod in list(self._pods.store):
                self._sync_pod(pod)
            self.ready.set()
            await self.stopping.wait()

    # Events

    def handle_pod(self, old: LocalPod | None, new: LocalPod | None) -> None:
        if new is not None:
            self._sync_pod(new)
        elif old is not None:
            self._handle_deleted(old)

    def _sync_pod(self, pod: LocalPod) -> None:
        if not self._nodes.owns(pod.spec.node_name):
            return
        if worker := self._workers.get(pod.uid):
            worker.update(pod)
        elif pod.finished:
            self._finish_deletion(pod)
        elif not self.stopping.is_set() and self._tasks:
            self._start_worker(pod, self._tasks)

    def _handle_deleted(self, pod: LocalPod) -> None:
        self._deleting.discard(pod.uid)
        if worker := self._workers.get(pod.uid):
            worker.handle_deleted()
        elif self._nodes.owns(pod.spec.node_name):
            self._deps.logs.remove(pod.uid)

    def handle_names_changed(self) -> None:
        self._hosts.invalidate()
        self._outdated.set()

    def handle_config_changed(self, key: Key) -> None:
        self._outdated.set()
        for worker in self._workers.values():
            if worker.context.pod.key.namespace == key.namespace:
                worker.context.notify()

    def handle_claims_changed(self) -> None:
        for worker in self._workers.values():
            worker.context.notify()

    # Workers

    def _start_worker(self, pod: LocalPod, tasks: asyncio.TaskGroup) -> None:
        node_address = self._nodes.address_of(pod.spec.node_name)
        context = PodContext(pod, node_address, self._deps, self._devices.allocate(pod.uid, requested_gpus(pod)))
        if not pod.spec.host_network and self._addresses.reserve(pod.uid, pod.status.pod_ip):
            context.address = pod.status.pod_ip
        worker = PodWorker(context, self._statuses, lambda: self._addresses.allocate(pod.uid))
        self._workers[pod.uid] = worker
        self._deps.logs.register(pod.uid, tuple(each.name for each in pod.spec.all_containers))
        if pod.being_deleted:
            worker.update(pod)
        tasks.create_task(self._run_worker(worker), name=f"pod {pod.key}")

    async def _run_worker(self, worker: PodWorker) -> None:
        pod = worker.context.pod
        with about(pod.key):
            try:
                await worker.run()
            except Exception as error:  # a defect in one pod's worker must not end the others
                log.exception("pod worker failed; please report this bug")
                status = worker.internal_error_status(f"internal error of the local node: {_describe_error(error)}")
                with contextlib.suppress(TimeoutError):
                    writing = self._statuses.write(pod.key, pod.uid, lambda _: status)
                    await within(self._clock, FINAL_STATUS_SECONDS, writing)
            finally:
                await self._remove_worker(worker)

    async def _remove_worker(self, worker: PodWorker) -> None:
        pod = worker.context.pod
        del self._workers[pod.uid]
        self._devices.release(pod.uid)
        self._addresses.release(pod.uid, [worker.context.address])
        await asyncio.to_thread(worker.context.volumes.remove)
        current = self._pods.store.get(pod.key)
        if current is None or current.uid != pod.uid:
            self._deps.logs.remove(pod.uid)
        elif worker.finished:
            self._finish_deletion(current)

    def _finish_deletion(self, pod: LocalPod) -> None:
        """Remove the object of a finished pod that a client has deleted."""
        if pod.being_deleted and pod.uid not in self._deleting and self._tasks:
            self._deleting.add(pod.uid)
            self._tasks.create_task(retry_until_stopped(lambda: self._delete(pod), self._clock, self.stopping))

    async def _delete(self, pod: LocalPod) -> None:
        try:
            remaining = await self._client.delete(PODS, pod.key, uid=pod.uid, grace_seconds=0)
        except (NotFound, Conflict):
            return
        self._pods.observe_delete(pod.key, pod.uid, remaining)

    # Recovery and files

    async def recover(self) -> None:
        """Report the pods that an earlier process ran as lost, and remove directories without a pod."""
        for pod in list(self._pods.store):
            if self._nodes.owns(pod.spec.node_name) and pod.has_run and not pod.finished:
                log.warning("pod lost with an earlier local cluster", extra={"key": str(pod.key)})
                self._deps.recorder.warning(ObjectReference("v1", "Pod", pod.key, pod.uid), LOST.reason, LOST.message)
                await self._statuses.write(pod.key, pod.uid, lambda current: lost_status(current, self._clock.now()))
                await asyncio.to_thread(self._remove_all_but_logs, pod.uid)
        await asyncio.to_thread(self._remove_orphaned_directories)

    def _remove_all_but_logs(self, uid: str) -> None:
        directory = self._deps.directory / "pods" / uid
        for each in (directory / "_volumes", memory_directory(uid), *directory.glob("*/scratch-*")):
            remove_directory(each)

    def _remove_orphaned_directories(self) -> None:
        known = {pod.uid for pod in self._pods.store}
        directory = self._deps.directory / "pods"
        for each in directory.iterdir() if directory.is_dir() else ():
            if each.name not in known:
                remove_directory(memory_directory(each.name))
                remove_directory(each)

    async def refresh_files(self) -> None:
        """Refresh the files of running pods after changes of ConfigMaps, Secrets and names, until cancelled."""
        while True:
            await self._outdated.wait()
            self._outdated.clear()
            for worker in list(self._workers.values()):
                worker.context.refresh()
            await self._clock.sleep(REFRESH_INTERVAL_SECONDS)


async def retry_until_stopped(
    work: Callable[[], Coroutine[Any, Any, None]], clock: Clock, stopping: asyncio.Event
) -> None:
    """Retry a request until it succeeds, or fails after the kubelet was stopped."""
    backoff = Backoff(clock)
    while True:
        backoff.begin()
        try:
            await work()
        except KubeError as error:
            log.warning("request failed, retrying", extra={"error": str(error)})
            if stopping.is_set():
                return
            await backoff.pause()
        else:
            return


def _describe_error(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
