"""Follows one job: its status, its pods and what they print, until it has finished or something else is true of it.

What is seen is told to a Screen; nothing is printed here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import Invalid, KubeError, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import PODS, Pod
from paddle_operator.plan.children import Job
from paddle_operator.plan.job_view import PADDLE_JOBS, StoredJob, job_view
from paddle_operator.plan.metadata import JOB_UID_LABEL, MAIN_CONTAINER

Claim = Callable[[Job, int], bool]
"""Of a job and how many pods it has."""

DRAIN_SECONDS = 30.0  # what a program printed last has been written when its pod ends; this is only a bound


class Screen(Protocol):
    def job(self, job: Job) -> None: ...
    def pod(self, pod: Pod) -> None: ...
    def gone(self, pod: Pod) -> None: ...
    def line(self, pod: Pod, container: str, text: str) -> None: ...


class Silent:
    """Shows nothing, and remembers the job."""

    def __init__(self, job: Job) -> None:
        self.seen = job

    def job(self, job: Job) -> None:
        self.seen = job

    def pod(self, pod: Pod) -> None: ...
    def gone(self, pod: Pod) -> None: ...
    def line(self, pod: Pod, container: str, text: str) -> None: ...


@dataclass(frozen=True)
class Container:
    """One life of one container: started again, it has another log."""

    pod_uid: str
    name: str
    restarts: int


class Follower:
    def __init__(self, client: Client, job: Job, screen: Screen, *, with_logs: bool = True) -> None:
        self._client = client
        self._key, self._uid = job.key, job.uid
        self._screen = screen
        self._with_logs = with_logs
        self._jobs: Informer[StoredJob, Job] = Informer(
            client, PADDLE_JOBS, Scope(job.key.namespace, fields=f"metadata.name={job.key.name}"), project=job_view
        )
        self._pods: Informer[Pod, Pod] = Informer(
            client, PODS, Scope(job.key.namespace, labels=f"{JOB_UID_LABEL}={job.uid}")
        )
        self._job: Job | None = None
        self._claim: Claim = lambda _job, _pods: False  # until both stores are known
        self._claimed: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        self._logs: dict[Container, asyncio.Task[None]] = {}
        self._ended: set[Container] = set()  # parameter servers are still about to end when the job has finished
        self._jobs.store.listen(lambda old, new, _lane: self._job_changed(old, new))
        self._pods.store.listen(lambda old, new, _lane: self._pod_changed(old, new))

    async def until_finished(self) -> Job | None:
        """The job as it ended; None where somebody has deleted it."""
        return await self.until(lambda job, _pods: job.finished)

    async def until(self, claim: Claim) -> Job | None:
        """The job as soon as the claim is true of it; None where somebody has deleted it."""
        async with self._following():
            self._claim = claim
            self._look()
            job = await asyncio.shield(self._claimed)
            if last := [task for container, task in self._logs.items() if container in self._ended]:
                await asyncio.wait(last, timeout=DRAIN_SECONDS)
            return job

    @asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in (self._jobs, self._pods)]
            self._group = group
            await self._jobs.wait_synced()
            await self._pods.wait_synced()
            if self._jobs.store.get(self._key) is None:
                self._end(None)
            try:
                yield
            finally:
                for task in (*tasks, *self._logs.values()):
                    task.cancel()

    def _job_changed(self, _old: Job | None, new: Job | None) -> None:
        if new is None or new.uid != self._uid:
            self._end(None)
            return
        self._job = new
        self._screen.job(new)
        self._look()

    def _look(self) -> None:
        if self._job and self._claim(self._job, len(self._pods.store)):
            self._end(self._job)

    def _end(self, job: Job | None) -> None:
        if not self._claimed.done():
            self._claimed.set_result(job)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            if old is not None:
                self._screen.gone(old)
            self._look()
            return
        self._screen.pod(new)
        statuses = (*new.status.init_container_statuses, *new.status.container_statuses)
        for each in statuses:
            container = Container(new.uid, each.name, each.restart_count)
            started = each.state.running or each.state.terminated
            if each.state.terminated:
                self._ended.add(container)
            if self._with_logs and started and container not in self._logs:
                name = "" if each.name == MAIN_CONTAINER or len(statuses) == 1 else each.name
                self._logs[container] = self._group.create_task(self._read(new, each.name, name))

    async def _read(self, pod: Pod, container: str, shown: str) -> None:
        try:
            async with aclosing(self._client.logs(pod.key, container=container, follow=True)) as lines:
                async for line in lines:
                    self._screen.line(pod, shown, line.decode(errors="replace"))
        except (NotFound, Invalid):
            return  # it went before we could read, or never began: the job's status tells how it ended
        except KubeError as error:
            self._screen.line(pod, shown, f"(its log cannot be read: {error})")
