"""Runs one pod from binding to its end: volumes and an address, init containers in order, then all containers at once.

A pod is terminated early in one way, whatever the cause: deletion, deadline or shutdown of the node.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from paddle_operator.kube.backoff import exponential
from paddle_operator.kube.objects import Manifest
from paddle_operator.local.kubelet.container_worker import ContainerWorker, Termination
from paddle_operator.local.kubelet.ip_allocator import AddressesExhausted
from paddle_operator.local.kubelet.pod import LocalPod, WaitingState
from paddle_operator.local.kubelet.pod_context import PodContext
from paddle_operator.local.kubelet.pod_status import (
    CONTAINER_CREATING,
    DEADLINE_EXCEEDED,
    NODE_SHUTDOWN,
    StatusInput,
    TerminationCause,
    compute_status,
)
from paddle_operator.local.kubelet.projected_volume import MountError
from paddle_operator.local.kubelet.status_manager import StatusManager, StatusReporter

FIRST_MOUNT_RETRY_SECONDS = 0.5
MAX_MOUNT_RETRY_SECONDS = 122.0
DELETED_GRACE_SECONDS = 1.0  # for a pod whose object is deleted already: its name may be reused by now
MAX_DEADLINE_WAIT_SECONDS = 86400.0
FINAL_STATUS_SECONDS = 5.0


class PodWorker:
    """`allocate_address` returns the pod's own address, once its volumes are mounted."""

    def __init__(self, context: PodContext, statuses: StatusManager, allocate_address: Callable[[], str]) -> None:
        pod = context.pod
        self.context = context
        self.finished = False
        self._reporter = StatusReporter(pod.key, pod.uid, statuses, self._status)
        on_change = self._reporter.request_update
        self.init_containers = [
            ContainerWorker(context, spec, on_change, is_init=True) for spec in pod.spec.init_containers
        ]
        self.containers = [ContainerWorker(context, spec, on_change) for spec in pod.spec.containers]
        self._clock = context.deps.clock
        self._allocate_address = allocate_address
        self._started_at = pod.status.start_time or self._clock.now()
        self._termination: Termination | None = None
        self._cause: TerminationCause | None = None
        self._terminated = asyncio.Event()
        self._node_shutdown = asyncio.Event()

    @property
    def all_containers(self) -> list[ContainerWorker]:
        return [*self.init_containers, *self.containers]

    @property
    def is_running(self) -> bool:
        return any(container.is_running for container in self.all_containers)

    @property
    def _can_resume(self) -> bool:
        """The node shuts down before the pod has run: the next node process may run it."""
        return self._cause is NODE_SHUTDOWN and not any(container.view.has_run for container in self.all_containers)

    # Events

    def update(self, pod: LocalPod) -> None:
        """Handle a changed pod object."""
        needs_sync = pod.needs_sync(self.context.pod)
        self.context.pod = pod
        if pod.being_deleted:
            self.terminate(None, pod.metadata.deletion_grace_period_seconds)
        if needs_sync:
            self.context.notify()
            self._reporter.request_update()

    def handle_deleted(self) -> None:
        """Terminate a pod whose object no longer exists."""
        self.terminate(None, min(DELETED_GRACE_SECONDS, self.context.pod.spec.termination_grace_period_seconds))

    def terminate(self, cause: TerminationCause | None, grace_seconds: float | None = None) -> None:
        """Terminate the pod; a further call can only shorten the grace period."""
        grace = self.context.pod.spec.termination_grace_period_seconds if grace_seconds is None else grace_seconds
        kill_at = self._clock.monotonic() + grace
        if cause is NODE_SHUTDOWN:
            self._node_shutdown.set()
        if self._termination is None:
            self._termination = Termination(kill_at)
            self._cause = None if self._all_exited else cause  # a pod that has ended by itself has no cause
            self.context.terminating = True
            self._terminated.set()
        self._termination.shorten_grace(kill_at)

    # Sync

    async def run(self) -> None:
        """Run until the pod is finished and the server has its status; if cancelled, kill all processes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [tasks.create_task(self._reporter.run()), tasks.create_task(self._enforce_deadline())]
                self._reporter.request_update()
                await self._run_until_terminated()
                self._reporter.request_update()
                await self._flush_status()
                for task in background:
                    task.cancel()
        finally:
            await asyncio.gather(*(container.kill() for container in self.all_containers))

    async def _flush_status(self) -> None:
        """Return once the server has the status; during a shutdown, wait for it only a few seconds."""
        wait_flushed = asyncio.ensure_future(self._reporter.wait_flushed())
        shutdown = asyncio.ensure_future(self._node_shutdown.wait())
        try:
            await asyncio.wait({wait_flushed, shutdown}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({wait_flushed}, timeout=FINAL_STATUS_SECONDS)
        finally:
            wait_flushed.cancel()
            shutdown.cancel()

    def internal_error_status(self, message: str) -> Manifest:
        """Finish a pod whose worker raised, and return its final status."""
        self._cause, self.finished = TerminationCause("NodeDefect", message), True
        self._mark_waiting_unknown()
        return self._status(self._clock.now())

    async def _run_until_terminated(self) -> None:
        running = asyncio.ensure_future(self._run_containers())
        terminated = asyncio.ensure_future(self._terminated.wait())
        try:
            await asyncio.wait({running, terminated}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            terminated.cancel()
            if not running.done():
                running.cancel()
            await asyncio.wait({running})
        if not running.cancelled():
            running.result()
        if self._termination:
            await self._terminate_containers(self._termination)
        self.finished = not self._can_resume

    async def _run_containers(self) -> None:
        await self._set_up_sandbox()
        async with asyncio.TaskGroup() as sidecar_tasks:
            sidecars: list[asyncio.Task[None]] = []
            if await self._run_init_containers(sidecar_tasks, sidecars):
                async with asyncio.TaskGroup() as tasks:
                    for container in self.containers:
                        tasks.create_task(container.run())
            for sidecar in sidecars:
                sidecar.cancel()
        grace = self.context.pod.spec.termination_grace_period_seconds
        await self._terminate_sidecars(Termination(self._clock.monotonic() + grace))

    async def _run_init_containers(self, tasks: asyncio.TaskGroup, sidecars: list[asyncio.Task[None]]) -> bool:
        """Run them in order; returns whether all succeeded."""
        for container in self.init_containers:
            if container.view.is_sidecar:
                sidecars.append(tasks.create_task(container.run()))
                await container.started.wait()
                continue
            await container.run()
            if not container.view.succeeded:
                return False
        return True

    async def _set_up_sandbox(self) -> None:
        """Return when the volumes are mounted and the pod has an address."""
        retry = 1
        while True:
            try:
                self.context.set_up()
                self.context.address = self.context.address or self._allocate_address()
                self.context.write_hosts()
                break
            except MountError as error:
                self._report_sandbox_error("FailedMount", str(error))
            except (AddressesExhausted, OSError) as error:
                self._report_sandbox_error("FailedCreatePodSandBox", str(error))
            await self.context.wait_for_change(exponential(retry, FIRST_MOUNT_RETRY_SECONDS, MAX_MOUNT_RETRY_SECONDS))
            retry += 1
        self.context.sandbox_ready = True
        for container in self.all_containers:
            if isinstance(container.state, WaitingState):
                container.view.state = WaitingState(container.state.reason)
        self._reporter.request_update()

    def _report_sandbox_error(self, reason: str, message: str) -> None:
        self.context.emit_warning(reason, message)
        for container in self.containers:
            container.view.state = WaitingState(CONTAINER_CREATING, message)
        self._reporter.request_update()

    async def _terminate_containers(self, termination: Termination) -> None:
        await asyncio.gather(*(container.terminate(termination) for container in self.containers))
        await self._terminate_sidecars(termination)
        if not self._can_resume:
            self._mark_waiting_unknown()

    async def _terminate_sidecars(self, termination: Termination) -> None:
        for container in reversed(self.init_containers):
            await container.terminate(termination)

    def _mark_waiting_unknown(self) -> None:
        if all(each.view.succeeded or each.view.is_sidecar for each in self.init_containers):
            for container in self.containers:
                container.view.mark_unknown(self._clock.now())

    async def _enforce_deadline(self) -> None:
        """Terminate the pod at activeDeadlineSeconds, which may be set or changed while it runs."""
        while not self._termination:
            seconds = self.context.pod.spec.active_deadline_seconds
            remaining = MAX_DEADLINE_WAIT_SECONDS
            if seconds is not None:
                deadline = self._started_at + timedelta(seconds=seconds)
                remaining = (deadline - self._clock.now()).total_seconds()
            if remaining <= 0:
                self.terminate(DEADLINE_EXCEEDED)
                return
            await self.context.wait_for_change(remaining)

    @property
    def _all_exited(self) -> bool:
        """True already before the last task has returned, so that the end of the pod is one status write."""
        finished = all(container.view.finished for container in self.containers)
        return finished and not any(container.is_running for container in self.init_containers)

    def _status(self, now: datetime) -> Manifest:
        context = self.context
        status_input = StatusInput(
            pod=context.pod,
            host_ip=context.node_address,
            pod_ip=context.address,
            started_at=self._started_at,
            init_containers=[container.view for container in self.init_containers],
            containers=[container.view for container in self.containers],
            sandbox_ready=context.sandbox_ready,
            finished=self.finished or self._all_exited,
            terminating=self._termination is not None,
            cause=self._cause,
        )
        return compute_status(status_input, now)
