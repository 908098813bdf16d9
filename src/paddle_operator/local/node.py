"""The local node: composes informers, scheduler, volume binder and kubelet, which runs pods as processes.

It uses the API server as a kubelet and a scheduler do, so that it can also serve a real cluster. Every task has an
owner: when `serve` returns, no task is left.
"""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock, within
from paddle_operator.kube.errors import KubeError
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.work_queue import Priority
from paddle_operator.local.container_logs import LogFiles
from paddle_operator.local.cri import ImageSource, Sandbox
from paddle_operator.local.kubelet.config_manager import ConfigManager
from paddle_operator.local.kubelet.hosts_file import SERVICES, HostRecordCache, Service
from paddle_operator.local.kubelet.ip_allocator import AddressBlock
from paddle_operator.local.kubelet.kubelet import Kubelet, retry_until_stopped
from paddle_operator.local.kubelet.machine import Machine, detect_machine
from paddle_operator.local.kubelet.node_status import NODES, NodeManager, NodeView
from paddle_operator.local.kubelet.pod import PODS, LocalPod
from paddle_operator.local.kubelet.pod_context import PodDeps
from paddle_operator.local.kubelet.status_manager import StatusManager
from paddle_operator.local.scheduler import Scheduler
from paddle_operator.local.volume_binder import ClaimCache, VolumeBinder

log = logging.getLogger(__name__)

LEASE_RENEW_SECONDS = 240.0  # nothing in a local cluster watches a Lease; it is written for clients that read it
FLUSH_EVENTS_SECONDS = 5.0
KUBELET, SCHEDULER = "kubelet", "default-scheduler"  # the reporters that `kubectl describe` shows


class Node:
    """All nodes of one local cluster. `serve` once; `stop` ends it with grace, and a second `stop` at once.

    `namespace` and `name` are for a cluster shared with others; such a cluster binds claims itself.
    """

    def __init__(
        self,
        client: Client,
        directory: Path,
        *,
        images: ImageSource,
        sandbox: Sandbox,
        block: AddressBlock,
        logs: LogFiles | None = None,
        machine: Machine | None = None,
        clock: Clock | None = None,
        namespace: str = "",
        name: str = "local",
        binds_claims: bool = True,
        lease_renew_seconds: float = LEASE_RENEW_SECONDS,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._lease_renew_seconds = lease_renew_seconds
        self.logs = logs or LogFiles(directory, self._clock)
        machine = machine or detect_machine()
        scope = Scope(namespace)
        self._pods: Informer[LocalPod, LocalPod] = Informer(client, PODS, scope, clock=self._clock)
        self._services: Informer[Service, Service] = Informer(client, SERVICES, scope, clock=self._clock)
        self._nodes: Informer[NodeView, NodeView] = Informer(client, NODES, clock=self._clock)
        self._configs = ConfigManager(client, scope, self._clock)
        self._claims = ClaimCache(client, directory, scope, self._clock)
        self._binder = VolumeBinder(client, self._claims, self._clock) if binds_claims else None
        self._recorder = Recorder(client, reporter=KUBELET, clock=self._clock)
        self._scheduler_recorder = Recorder(client, reporter=SCHEDULER, clock=self._clock)
        self._statuses = StatusManager(client, self._pods, self._clock)
        self._node_manager = NodeManager(client, name, block, machine, self._clock)
        self._scheduler = self._build_scheduler(machine)
        hosts = HostRecordCache(self._services.store, self._pods.store)
        deps = self._pod_deps(directory, images, sandbox, machine, hosts)
        self._kubelet = Kubelet(client, self._pods, self._statuses, self._node_manager, block, hosts, deps)

    def _pod_deps(
        self, directory: Path, images: ImageSource, sandbox: Sandbox, machine: Machine, hosts: HostRecordCache
    ) -> PodDeps:
        return PodDeps(
            directory=directory,
            images=images,
            sandbox=sandbox,
            logs=self.logs,
            configs=self._configs,
            claims=self._claims,
            host_records=hosts.records,
            recorder=self._recorder,
            machine=machine,
            clock=self._clock,
        )

    def _build_scheduler(self, machine: Machine) -> Scheduler:
        manager = self._node_manager
        return Scheduler(
            self._client,
            self._pods,
            self._statuses,
            self._scheduler_recorder,
            nodes=lambda: manager.node_infos(each.key.name for each in self._nodes.store if each.spec.unschedulable),
            next_node=manager.next_node_info,
            register_next_node=manager.register_next,
            claim_error=self._claim_error,
            allocatable=machine.allocatable,
            clock=self._clock,
        )

    @property
    def ready(self) -> asyncio.Event:
        return self._kubelet.ready

    @property
    def running_pods(self) -> int:
        """How many pods have processes now."""
        return self._kubelet.running_pods

    def stop(self) -> None:
        """Terminate all pods with their grace period; a second call kills them at once."""
        self._kubelet.stop()

    async def serve(self) -> None:
        """Run until `stop` and until the server has the status of every pod; if cancelled, kill all processes."""
        informers = (
            self._pods,
            self._services,
            self._nodes,
            self._configs.config_maps,
            self._configs.secrets,
            self._claims.claims,
            self._claims.volumes,
        )
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(each.run(), name=f"informer {each.kind}") for each in informers]
            background += [tasks.create_task(each.run()) for each in (self._recorder, self._scheduler_recorder)]
            await asyncio.gather(*(informer.wait_synced() for informer in informers))
            background += [tasks.create_task(work) for work in await self._start()]
            self._scheduler.wake()
            await self._kubelet.run()
            await self._flush_events()
            for task in background:
                task.cancel()

    async def _start(self) -> list[Coroutine[Any, Any, None]]:
        """Recover from an earlier process and register the listeners; returns what has to run from now on."""
        bound = [self._node_manager.index_of(pod.spec.node_name) for pod in self._pods.store]
        count = max([1, *bound])
        await retry_until_stopped(lambda: self._node_manager.register_up_to(count), self._clock, self._kubelet.stopping)
        await self._kubelet.recover()
        self._pods.store.listen(self._handle_pod)
        self._services.store.listen(lambda *_: self._kubelet.handle_names_changed())
        self._nodes.store.listen(lambda *_: self._scheduler.wake())
        self._configs.listen(self._kubelet.handle_config_changed)
        self._claims.listen(self._handle_claims_changed)
        works = [self._scheduler.run(), self._kubelet.refresh_files(), self._renew_leases()]
        return [*works, self._binder.run()] if self._binder else works

    async def _flush_events(self) -> None:
        for recorder in (self._scheduler_recorder, self._recorder):
            try:
                await within(self._clock, FLUSH_EVENTS_SECONDS, recorder.flush())
            except (KubeError, TimeoutError) as error:
                log.info("events not sent at shutdown", extra={"error": str(error) or "no response"})

    def _handle_pod(self, old: LocalPod | None, new: LocalPod | None, _priority: Priority) -> None:
        self._kubelet.handle_pod(old, new)
        if old is None or new is None or _affects_others(old, new):
            self._scheduler.wake()
            self._kubelet.handle_names_changed()

    def _handle_claims_changed(self) -> None:
        self._scheduler.wake()
        self._kubelet.handle_claims_changed()

    async def _renew_leases(self) -> None:
        while True:
            await self._clock.sleep(self._lease_renew_seconds)
            try:
                await self._node_manager.renew_leases()
            except KubeError as error:
                log.warning("node lease not renewed", extra={"error": str(error)})

    def _claim_error(self, pod: LocalPod) -> str:
        claims = (volume.persistent_volume_claim for volume in pod.spec.volumes)
        errors = (self._claims.claim_error(pod.key.namespace, claim.claim_name) for claim in claims if claim)
        return next(filter(None, errors), "")


def _affects_others(old: LocalPod, new: LocalPod) -> bool:
    """Whether a change matters to the scheduler or to the names that other pods resolve."""
    return (
        old.spec.node_name != new.spec.node_name
        or old.finished != new.finished
        or old.being_deleted != new.being_deleted
        or old.status.pod_ip != new.status.pod_ip
        or old.status.ready != new.status.ready
        or old.metadata.labels != new.metadata.labels
        or old.spec.scheduling_gates != new.spec.scheduling_gates
    )
