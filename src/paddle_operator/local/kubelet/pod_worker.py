"""One pod from binding to its end: volumes and an address, init containers in order, then all containers at once.

What ends it early is one thing, a Stop: the pod is deleted, its deadline has passed, or the node is told to end.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from paddle_operator.kube.objects import Manifest
from paddle_operator.local.kubelet.container_worker import ContainerWorker, Stop
from paddle_operator.local.kubelet.ip_allocator import NoAddress
from paddle_operator.local.kubelet.pod import LocalPod
from paddle_operator.local.kubelet.pod_context import PodContext
from paddle_operator.local.kubelet.pod_status import StatusInput, status_of
from paddle_operator.local.kubelet.projected_volume import MountError
from paddle_operator.local.kubelet.states import CONTAINER_CREATING, DEADLINE, SHUTDOWN, Ending, Waiting
from paddle_operator.local.kubelet.status_manager import Report, StatusWriter

log = logging.getLogger(__name__)

FIRST_MOUNT_SECONDS = 0.5
LONGEST_MOUNT_SECONDS = 122.0
GONE_GRACE_SECONDS = 1.0  # of a pod whose object is gone already: its name may be another's by now
LONGEST_WAIT_SECONDS = 86400.0
LAST_WORDS_SECONDS = 5.0


class PodWorker:
    """`address` gives the pod's own, once its volumes are there."""

    def __init__(self, home: PodContext, writer: StatusWriter, address: Callable[[], str]) -> None:
        pod = home.pod
        self.home = home
        self.initial = [ContainerWorker(home, spec, initial=True) for spec in pod.spec.init_containers]
        self.containers = [ContainerWorker(home, spec) for spec in pod.spec.containers]
        self.over = False
        self._clock = home.around.clock
        self._address = address
        self._started_at = pod.status.start_time or self._clock.now()
        self._sandboxed = False
        self._stop: Stop | None = None
        self._ending: Ending | None = None
        self._stop_asked = asyncio.Event()
        self._node_ends = asyncio.Event()
        self._report = Report(pod.key, pod.uid, writer, self._status)
        home.touch = self._report.touch

    @property
    def everything(self) -> list[ContainerWorker]:
        return [*self.initial, *self.containers]

    @property
    def has_run(self) -> bool:
        return any(container.view.has_run for container in self.everything)

    @property
    def _left_for_later(self) -> bool:
        """The node ends before the pod has begun: the next one may take it up."""
        return self._ending is SHUTDOWN and not self.has_run

    # What happens to it

    def saw(self, pod: LocalPod) -> None:
        """The pod's object has changed."""
        asks = pod.asks_otherwise_than(self.home.pod)
        self.home.pod = pod
        if pod.being_deleted:
            self.stop(None, pod.metadata.deletion_grace_period_seconds)
        if asks:
            self.home.nudge()
            self._report.touch()

    def gone(self) -> None:
        """The pod's object is no more."""
        self.stop(None, min(GONE_GRACE_SECONDS, self.home.pod.spec.termination_grace_period_seconds))

    def stop(self, ending: Ending | None, grace_seconds: float | None = None) -> None:
        """End it; asked again it may only be sooner."""
        grace = self.home.pod.spec.termination_grace_period_seconds if grace_seconds is None else grace_seconds
        kill_at = self._clock.monotonic() + grace
        if ending is SHUTDOWN:
            self._node_ends.set()
        if self._stop is None:
            self._stop = Stop(kill_at)
            self._ending = None if self._all_ended else ending  # what has ended by itself was not ended by anybody
            self.home.ending = True
            self._stop_asked.set()
        self._stop.hasten(kill_at)

    # Its life

    async def live(self) -> None:
        """Until it is over and the server knows; cancelled, it kills what runs."""
        try:
            async with asyncio.TaskGroup() as tasks:
                asides = [tasks.create_task(self._report.run()), tasks.create_task(self._keep_deadline())]
                self._report.touch()
                await self._live()
                self._report.touch()
                await self._tell()
                for aside in asides:
                    aside.cancel()
        finally:
            await asyncio.gather(*(container.kill() for container in self.everything))

    async def _tell(self) -> None:
        """Return when the server knows; where the node ends, a server that does not answer is not waited for."""
        told = asyncio.ensure_future(self._report.told())
        ends = asyncio.ensure_future(self._node_ends.wait())
        try:
            await asyncio.wait({told, ends}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({told}, timeout=LAST_WORDS_SECONDS)
        finally:
            told.cancel()
            ends.cancel()

    def fail(self, message: str) -> Manifest:
        """What is said of it where a defect of ours ended its life."""
        self._ending, self.over = Ending("NodeDefect", message), True
        self._lose_waiting()
        return self._status(self._clock.now())

    async def _live(self) -> None:
        work = asyncio.ensure_future(self._work())
        asked = asyncio.ensure_future(self._stop_asked.wait())
        try:
            await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            if not work.done():
                work.cancel()
            await asyncio.wait({work})
        if not work.cancelled():
            work.result()
        if self._stop:
            await self._wind_down(self._stop)
        self.over = not self._left_for_later

    async def _work(self) -> None:
        await self._set_up()
        async with asyncio.TaskGroup() as sidecars:
            running: list[asyncio.Task[None]] = []
            if await self._initialized(sidecars, running):
                async with asyncio.TaskGroup() as tasks:
                    for container in self.containers:
                        tasks.create_task(container.live())
            for sidecar in running:
                sidecar.cancel()
        await self._end_sidecars(Stop(self._clock.monotonic() + self.home.pod.spec.termination_grace_period_seconds))

    async def _initialized(self, tasks: asyncio.TaskGroup, sidecars: list[asyncio.Task[None]]) -> bool:
        """Take the steps before the containers proper; says whether all went well."""
        for container in self.initial:
            if container.view.sidecar:
                sidecars.append(tasks.create_task(container.live()))
                await container.begun.wait()
                continue
            await container.live()
            if not container.view.succeeded:
                return False
        return True

    async def _end_sidecars(self, stop: Stop) -> None:
        for container in reversed(self.initial):
            await container.end(stop)

    async def _set_up(self) -> None:
        """Return when the volumes are there and the pod has an address."""
        pause = FIRST_MOUNT_SECONDS
        while True:
            try:
                self.home.set_up()
                self.home.address = self.home.address or self._address()
                self.home.write_hosts()
            except (MountError, NoAddress, OSError) as error:
                self._cannot_set_up(str(error))
            else:
                break
            await self.home.nudged(pause)
            pause = min(pause * 2, LONGEST_MOUNT_SECONDS)
        self._sandboxed = self.home.ready = True
        for container in self.everything:
            if isinstance(container.state, Waiting):
                container.view.state = Waiting(container.state.reason)
        self._report.touch()

    def _cannot_set_up(self, sentence: str) -> None:
        reason = "FailedMount" if sentence.startswith("MountVolume") else "FailedCreatePodSandBox"
        self.home.warning(reason, sentence)
        for container in self.containers:
            container.view.state = Waiting(CONTAINER_CREATING, sentence)
        self._report.touch()

    async def _wind_down(self, stop: Stop) -> None:
        await asyncio.gather(*(container.end(stop) for container in self.containers))
        await self._end_sidecars(stop)
        if not self._left_for_later:
            self._lose_waiting()

    def _lose_waiting(self) -> None:
        if all(each.view.succeeded or each.view.sidecar for each in self.initial):
            for container in self.containers:
                container.lose(self._clock.now())

    async def _keep_deadline(self) -> None:
        """Also one that is set, or moved, while the pod runs."""
        while not self._stop:
            seconds = self.home.pod.spec.active_deadline_seconds
            left = LONGEST_WAIT_SECONDS
            if seconds is not None:
                ends_at = self._started_at + timedelta(seconds=seconds)
                left = (ends_at - self._clock.now()).total_seconds()
            if left <= 0:
                self.stop(DEADLINE)
                return
            await self.home.nudged(left)

    @property
    def _all_ended(self) -> bool:
        """Already true before the last task of ours has returned, so that an end is told in one write."""
        finished = all(container.view.finished for container in self.containers)
        return finished and not any(container.runs for container in self.initial)

    def _status(self, now: datetime) -> Manifest:
        home = self.home
        account = StatusInput(
            pod=home.pod,
            node_address=home.node_address,
            address=home.address,
            started_at=self._started_at,
            initial=[container.view for container in self.initial],
            containers=[container.view for container in self.containers],
            sandboxed=self._sandboxed,
            over=self.over or self._all_ended,
            told_to_end=self._stop is not None,
            ending=self._ending,
        )
        return status_of(account, now)
