"""Watches one job: its status, its pods and their logs, until it has finished or another predicate holds.

Nothing is printed here: a JobObserver is called for each change.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from paddle_operator.api.paddlejob import Role
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import Invalid, KubeError, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import PODS, Pod, StoredObject
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, job_view
from paddle_operator.plan.metadata import JOB_UID_LABEL, MAIN_CONTAINER, ROLE_LABEL

JobPredicate = Callable[[Job, int], bool]
"""Takes the job and the number of its pods."""

LOG_DRAIN_SECONDS = 30.0  # an upper bound: a log is complete when its pod ends


async def list_pods(client: Client, job: Job, role: Role | None = None) -> list[Pod]:
    """The pods of a job, or of one of its roles, by role and index."""
    labels = f"{JOB_UID_LABEL}={job.uid}" + (f",{ROLE_LABEL}={role}" if role else "")
    pods = await client.list_all(PODS, Scope(job.key.namespace, labels=labels))
    return sorted(pods, key=lambda pod: name_and_index(pod.key.name))


def name_and_index(name: str) -> tuple[str, int]:
    """Sort key of pod names: worker-10 after worker-9."""
    head, _, index = name.rpartition("-")
    return (head, int(index)) if index.isdigit() else (name, 0)


class JobObserver(Protocol):
    def on_job(self, job: Job) -> None: ...
    def on_pod(self, pod: Pod) -> None: ...
    def on_pod_deleted(self, pod: Pod) -> None: ...
    def on_log_line(self, pod: Pod, container: str, line: str) -> None: ...


class LatestJob:
    """Keeps the newest state of the job and ignores its pods."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def on_job(self, job: Job) -> None:
        self.job = job

    def on_pod(self, pod: Pod) -> None: ...
    def on_pod_deleted(self, pod: Pod) -> None: ...
    def on_log_line(self, pod: Pod, container: str, line: str) -> None: ...


@dataclass(frozen=True)
class ContainerRun:
    """One run of a container: after a restart it has another log."""

    pod_uid: str
    name: str
    restarts: int


class JobWatcher:
    def __init__(self, client: Client, job: Job, observer: JobObserver, *, with_logs: bool = True) -> None:
        self._client = client
        self._key, self._uid = job.key, job.uid
        self._observer = observer
        self._with_logs = with_logs
        self._jobs: Informer[StoredObject, Job] = Informer(
            client, PADDLE_JOBS, Scope(job.key.namespace, fields=f"metadata.name={job.key.name}"), project=job_view
        )
        self._pods: Informer[Pod, Pod] = Informer(
            client, PODS, Scope(job.key.namespace, labels=f"{JOB_UID_LABEL}={job.uid}")
        )
        self._job: Job | None = None
        self._predicate: JobPredicate = lambda _job, _pods: False  # until both informers have synced
        self._result: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        self._logs: dict[ContainerRun, asyncio.Task[None]] = {}
        self._terminated: set[ContainerRun] = set()  # parameter servers may still run when the job has finished
        self._jobs.store.listen(lambda old, new, _priority: self._job_changed(old, new))
        self._pods.store.listen(lambda old, new, _priority: self._pod_changed(old, new))

    async def wait_finished(self) -> Job | None:
        """The finished job; None if it was deleted."""
        return await self.wait_until(lambda job, _pods: job.finished)

    async def wait_until(self, predicate: JobPredicate) -> Job | None:
        """The job as soon as the predicate holds; None if it was deleted."""
        async with self._running():
            self._predicate = predicate
            self._check()
            job = await asyncio.shield(self._result)
            if unread := [task for container, task in self._logs.items() if container in self._terminated]:
                await asyncio.wait(unread, timeout=LOG_DRAIN_SECONDS)
            return job

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in (self._jobs, self._pods)]
            self._group = group
            await self._jobs.wait_synced()
            await self._pods.wait_synced()
            if self._jobs.store.get(self._key) is None:
                self._finish(None)
            try:
                yield
            finally:
                for task in (*tasks, *self._logs.values()):
                    task.cancel()

    def _job_changed(self, _old: Job | None, new: Job | None) -> None:
        if new is None or new.uid != self._uid:
            self._finish(None)
            return
        self._job = new
        self._observer.on_job(new)
        self._check()

    def _check(self) -> None:
        if self._job and self._predicate(self._job, len(self._pods.store)):
            self._finish(self._job)

    def _finish(self, job: Job | None) -> None:
        if not self._result.done():
            self._result.set_result(job)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            if old is not None:
                self._observer.on_pod_deleted(old)
            self._check()
            return
        self._observer.on_pod(new)
        statuses = (*new.status.init_container_statuses, *new.status.container_statuses)
        for each in statuses:
            container = ContainerRun(new.uid, each.name, each.restart_count)
            has_log = each.state.running or each.state.terminated
            if each.state.terminated:
                self._terminated.add(container)
            if self._with_logs and has_log and container not in self._logs:
                label = "" if each.name == MAIN_CONTAINER or len(statuses) == 1 else each.name
                self._logs[container] = self._group.create_task(self._read_log(new, each.name, label))

    async def _read_log(self, pod: Pod, container: str, label: str) -> None:
        try:
            async with aclosing(self._client.read_log(pod.key, container=container, follow=True)) as lines:
                async for line in lines:
                    self._observer.on_log_line(pod, label, line.decode(errors="replace"))
        except (NotFound, Invalid):
            return  # the pod was deleted before the log was read, or never started: the job's status has the reason
        except KubeError as error:
            self._observer.on_log_line(pod, label, f"(cannot read the log: {error})")
