"""Keeps PaddleJobs going: looks in the cache, asks the plan, writes the status down, then does what the plan wants.

The status goes out first, so that a crash in between loses no attempt and runs no finished job again. All writes can be
done twice without harm: names are fixed, deletes and patches name a UID.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from paddle_operator.api.paddlejob import API_VERSION, KIND, PaddleJobStatus, Phase
from paddle_operator.controllers import metrics
from paddle_operator.controllers.host_ports import PortBlocks
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.controller import Controller
from paddle_operator.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from paddle_operator.kube.events import Recorder, Reference
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key, Object, Pod, Resource, T
from paddle_operator.kube.work_queue import Priority, Queue
from paddle_operator.kube.writes import (
    NAME_CONFLICT,
    Create,
    Delete,
    DeleteAll,
    EventIntent,
    Patch,
    Refusal,
    StatusOrder,
    Write,
)
from paddle_operator.plan.children import (
    Children,
    ChildView,
    Job,
    JobPlan,
    PodView,
    child_view,
    pod_view,
    terminating_pod_view,
)
from paddle_operator.plan.job_view import PADDLE_JOBS, StoredJob, cached_job_view
from paddle_operator.plan.metadata import POD_NAME_LABEL, ROLE_LABEL
from paddle_operator.plan.paddlejob import PlanContext, plan
from paddle_operator.plan.pod_group import POD_GROUPS, GroupView, PodGroup, group_view

log = logging.getLogger(__name__)

WRITES_OF_A_JOB = 24  # at once: fewer than the client sends, so that a small job is not behind a large one
WRITES_OF_ALL_JOBS = 64  # at once or waiting to be sent; each is a task, and a job has two at least
WAKES_BESIDE_CREATES = 4  # at once: a pod that is made early is scheduled early, and others have only to be woken
LARGE_ANSWERS = 2  # at once: the answer to the delete of all pods has every one of them, 6 KB each
LOW_PRIORITY_WORKER_SHARE = (
    4  # of the workers one in so many, at most, is busy with what pods do: others have what is asked for
)
COUNTERS_EVERY = timedelta(seconds=1)  # for each job whose counters change: all together write about one a second
LONGEST_COUNTERS = timedelta(minutes=1)
# A pass costs 3 to 8 µs a pod, and changes of pods come one by one: so a job rests between two passes, the longer the
# larger it is and the more others change, and looks at many changes at once.
REST_PER_POD_SECONDS = 0.0001
REST_FOR_ANOTHER = 4  # times as long again for each other job whose pods have changed
SHORTEST_REST_SECONDS = 0.005
LONGEST_REST_SECONDS = 4.0
FIRST_RETRY = timedelta(seconds=1)
LONGEST_RETRY = timedelta(minutes=1)
TAKEN = (NAME_CONFLICT, "another object has this name: delete it, or rename the job")


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    namespace: str = ""  # empty is all of them
    name: str = "paddlejob"  # of the controller, in metrics and logs
    etcd: str = ""
    port_range: range = range(35000, 65000)
    workers: int = 64  # they wait for answers most of the time
    scheduling: str = ""  # volcano, where it is to schedule whole jobs


class JobState:
    """What is known of a job beyond the cluster; lost with the process, and learnt again."""

    def __init__(self) -> None:
        self.generation = 0
        self.refusals: dict[tuple[str, Key], Refusal] = {}
        self.tries: dict[tuple[str, Key], int] = {}
        self.status_written_at: datetime | None = None
        self.phase_since: datetime | None = None  # where it was seen to begin

    def look_at(self, job: Job) -> None:
        """What was refused of an earlier spec says nothing about this one."""
        if job.metadata.generation != self.generation:
            self.generation = job.metadata.generation
            self.refusals.clear()
            self.tries.clear()


class PaddleJobs:
    """The controller of PaddleJobs and the caches that it looks at."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ports: PortBlocks | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._client = client
        self._recorder = recorder
        self._clock = clock or SystemClock()
        scope = Scope(self._settings.namespace)
        named = Scope(self._settings.namespace, labels=POD_NAME_LABEL)
        of_a_role = Scope(self._settings.namespace, labels=ROLE_LABEL)
        self.jobs: Informer[StoredJob, Job] = Informer(
            client, PADDLE_JOBS, scope, project=lambda stored: cached_job_view(stored, self.jobs.store.get(stored.key))
        )
        self.pods: Informer[Pod, PodView] = Informer(client, PODS, of_a_role, project=self._pod_view)
        self.config_maps: Informer[Object, ChildView] = Informer(client, CONFIG_MAPS, named, project=child_view)
        self.services: Informer[Object, ChildView] = Informer(client, SERVICES, scope, project=child_view)
        self.groups: Informer[PodGroup, GroupView] | None = None
        if self._settings.scheduling:
            self.groups = Informer(client, POD_GROUPS, scope, project=group_view, optional=True)
            self.groups.store.listen(self._group_changed)
            self.groups.on_presence(self._look_at_all)
        self._job_of_uid = self.jobs.store.index(lambda job: (job.uid,))
        self._pods_of = self.pods.store.index(lambda pod: (pod.owner_uid,))
        self._config_maps_of = self.config_maps.store.index(lambda child: (child.owner_uid,))
        self._services_of = self.services.store.index(lambda child: (child.owner_uid,))
        self._ports = ports or PortBlocks.of(self._settings.port_range)
        self._ports.register(self.jobs.store)
        self._ports.on_return(self._look_at)
        metrics.JOBS.register(self.jobs.store, self.pods.store)
        self._memory: dict[str, JobState] = {}
        self._writing = 0  # jobs whose writes are on their way
        self._creating = 0  # pods that are on their way
        self._wakes_beside_creates = asyncio.Semaphore(WAKES_BESIDE_CREATES)
        self._large_answers = asyncio.Semaphore(LARGE_ANSWERS)
        self._expected: set[str] = set()  # UIDs of the jobs whose children have changed since the last look at them
        self._counters_wait: set[str] = set()  # UIDs of the jobs that have something to count and did not tell it yet
        self.queue: Queue[Key] = Queue(
            self._settings.name,
            self._clock,
            max_low_priority=max(1, self._settings.workers // LOW_PRIORITY_WORKER_SHARE),
        )
        self.controller = Controller(
            self._settings.name, self.queue, self.reconcile, workers=self._settings.workers, clock=self._clock
        )
        self.jobs.store.listen(self._job_changed)
        for informer in (self.pods, self.config_maps, self.services):
            informer.store.listen(self._child_changed)

    @property
    def informers(self) -> list[Informer[Any, Any]]:
        return [self.jobs, self.pods, self.config_maps, self.services, *([self.groups] if self.groups else [])]

    def _pod_view(self, pod: Pod) -> PodView:
        if pod.metadata.deletion_timestamp is None:
            return pod_view(pod)
        return terminating_pod_view(pod, self.pods.store.get(pod.key), self._clock.now())

    def _job_changed(self, old: Job | None, new: Job | None, lane: Priority) -> None:
        changed = new or old
        assert changed
        if new is None:
            self._memory.pop(changed.uid, None)
            self._counters_wait.discard(changed.uid)
            self._expected.discard(changed.uid)
        if new is None or (new.finished and old is not None and not old.finished):
            self._ports.give_back(changed.uid)
        asked = (
            old is None or new is None or old.requested_state != new.requested_state
        )  # and not only told, as our own status is
        self.queue.add(changed.key, lane if asked else Priority.LOW)

    def _child_changed(self, old: PodView | ChildView | None, new: PodView | ChildView | None, _: Priority) -> None:
        """What somebody has just asked for goes before what pods do: in a storm, jobs without pods come first."""
        child = new or old
        assert child
        self._look_soon(child.owner_uid)
        if old and old.owner_uid != child.owner_uid:  # somebody gave it another
            self._look_soon(old.owner_uid)

    def _look_soon(self, uid: str) -> None:
        if uid in self._expected:  # most changes: those of a large job's pods come one by one
            return
        for job in self._job_of_uid[uid]:
            crowd = 1 + REST_FOR_ANOTHER * len(self._expected)
            self._expected.add(uid)
            rest = min(len(self._pods_of[uid]) * crowd * REST_PER_POD_SECONDS, LONGEST_REST_SECONDS)
            if rest < SHORTEST_REST_SECONDS:
                self.queue.add(job.key, Priority.LOW)
            else:
                self.queue.add_after(job.key, rest, Priority.LOW)

    def _group_changed(self, old: GroupView | None, new: GroupView | None, _: Priority) -> None:
        """Found by its name and not by its owner: a user may have made it."""
        for each in (old, new):
            if each:
                self.queue.add(each.key, Priority.LOW)

    def _look_at(self, waiting: Collection[str]) -> None:
        """Ports are free again, perhaps of a job that another of us looks after."""
        for job in (job for uid in waiting for job in self._job_of_uid[uid]):
            self.queue.add(job.key, Priority.LOW)

    def _look_at_all(self) -> None:
        """PodGroups have come, or are gone."""
        for job in self.jobs.store:
            self.queue.add(job.key, Priority.LOW)

    async def reconcile(self, key: Key) -> datetime | None:
        """Bring one job nearer to its plan; the answer is when to look again if no event comes first."""
        job = self.jobs.store.get(key)
        if job is None:
            return None  # owner references take the children along
        self._expected.discard(job.uid)
        memory = self._memory.setdefault(job.uid, JobState())
        memory.look_at(job)
        desired = plan(job, self._children_of(job, memory), self._clock.now(), self._around(job, memory))
        (self._counters_wait.add if desired.status_order is StatusOrder.THROTTLED else self._counters_wait.discard)(
            job.uid
        )
        if desired.status_order is StatusOrder.DEFERRED:
            await self._carry_out(job, desired, memory)
            return desired.requeue_at
        await self._tell(job, desired.events)
        try:
            await self._write_status(job, desired.status, memory)
            self._count(job, desired, memory)
        except Invalid as refusal:
            if job.spec is not None:
                raise
            # A type that CEL cannot read keeps every status out, whatever it says: the event has to do, until a change.
            log.warning("the API server takes no status of this job, an event says why", extra={"why": str(refusal)})
            return None
        await self._carry_out(job, desired, memory)
        return desired.requeue_at

    def _children_of(self, job: Job, memory: JobState) -> Children:
        return Children(
            tuple(self._pods_of[job.uid]),
            tuple(self._config_maps_of[job.uid]),
            tuple(self._services_of[job.uid]),
            tuple(memory.refusals.values()),
            self.groups.store.get(job.key) if self.groups else None,
        )

    def _around(self, job: Job, memory: JobState) -> PlanContext:
        free = self._ports.block_for(job)
        crowd = max(1, len(self._counters_wait), len(self._expected))
        every = min(COUNTERS_EVERY * crowd, LONGEST_COUNTERS)
        return PlanContext(
            etcd=self._settings.etcd,
            scheduling=self._settings.scheduling,
            groups_absent=self.groups is not None and self.groups.absent,
            free_port=free,
            status_written_at=memory.status_written_at,
            counters_every=every,
        )

    async def _tell(self, job: Job, events: tuple[EventIntent, ...]) -> None:
        """Before the status, which says that it has been told: so a crash in between loses no news."""
        about = Reference(API_VERSION, KIND, job.key, job.uid)
        for each in events:
            await self._recorder.tell(about, each.reason, each.note, warning=each.warning)

    async def _write_status(self, job: Job, desired: PaddleJobStatus, memory: JobState) -> None:
        change = difference(msgspec.to_builtins(job.status), msgspec.to_builtins(desired))
        if not change:
            return
        metadata = {"uid": job.uid, "resourceVersion": job.metadata.resource_version}
        body = {"metadata": metadata, "status": change}
        self.jobs.observe_write(await self._client.merge(PADDLE_JOBS, job.key, body, subresource="status"))
        memory.status_written_at = self._clock.now()

    def _count(self, job: Job, desired: JobPlan, memory: JobState) -> None:
        if desired.restart_cause:
            metrics.count_restart(desired.restart_cause)
        before, after, now = job.status.phase, desired.status.phase, self._clock.now()
        if before == after:
            return
        if memory.phase_since:
            metrics.count_phase(before, (now - memory.phase_since).total_seconds())
        memory.phase_since = now
        if after in (Phase.COMPLETED, Phase.FAILED):
            metrics.count_end(after)

    async def _carry_out(self, job: Job, desired: JobPlan, memory: JobState) -> None:
        """Wave after wave; within one, several at a time; none where somebody else has a name that is needed."""
        for kind, key in desired.required_names:
            if not await self._is_free(kind, key, job, memory):
                return
        refused: set[Resource[Any]] = set()  # kinds of which the API server takes no more for now
        self._writing += 1
        try:
            for wave in desired.waves:
                share = max(2, WRITES_OF_ALL_JOBS // self._writing)
                writes = iter(wave)
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(WRITES_OF_A_JOB, share, len(wave))):
                        group.create_task(self._send(writes, job, memory, refused))
        except BaseExceptionGroup as failed:
            raise first_of(failed) from None  # the controller knows what a Conflict is, and no group of them
        finally:
            self._writing -= 1

    async def _send(self, writes: Iterator[Write], job: Job, memory: JobState, refused: set[Resource[Any]]) -> None:
        """One after the other, as many as are left; a few of us share them."""
        for write in writes:
            match write:
                case Create() if write.kind in refused:
                    continue
                case Create():
                    if not await self._create(job, write, memory):
                        refused.add(write.kind)
                case Patch() if self._creating and write.kind is PODS:
                    async with self._wakes_beside_creates:
                        await self._patch(write)
                case Patch():
                    await self._patch(write)
                case Delete():
                    await self._delete(write)
                case DeleteAll():
                    await self._delete_all(write)

    async def _create(self, job: Job, write: Create, memory: JobState) -> bool:
        """Says whether the API server would perhaps take more of the kind."""
        place = (write.kind.plural, write.key)
        self._creating += write.kind is PODS
        try:
            created = await self._client.create(write.kind, write.manifest)
        except AlreadyExists:
            there = await self._found(write.kind, write.key)
            if there is None:  # gone since: look again
                self.queue.add(job.key)
                return True
            if there.metadata.owner_uid != job.uid:
                self._refused(memory, place, *TAKEN, job)
                return True
            created = there
        except (Forbidden, Invalid, NotFound) as error:
            # Not the status' own reason: a webhook may have put whole sentences there, and this is a label of a metric.
            reason = "QuotaExceeded" if "exceeded quota" in error.status.message else type(error).__name__
            self._refused(memory, place, reason, error.status.message, job)
            return False
        finally:
            self._creating -= write.kind is PODS
        memory.refusals.pop(place, None)
        memory.tries.pop(place, None)
        self._informer_of(write.kind).observe_write(created)
        return True

    async def _is_free(self, kind: Resource[Any], key: Key, job: Job, memory: JobState) -> bool:
        """Nobody has the name, or the job itself."""
        place = (kind.plural, key)
        found = await self._found(kind, key)
        if found is None:
            memory.refusals.pop(place, None)
            memory.tries.pop(place, None)
            return True
        if found.metadata.owner_uid == job.uid:
            self._informer_of(kind).observe_write(found)
            return True
        self._refused(memory, place, *TAKEN, job)
        return False

    async def _found(self, kind: Resource[T], key: Key) -> T | None:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None

    def _refused(self, memory: JobState, place: tuple[str, Key], reason: str, message: str, job: Job) -> None:
        tries = memory.tries[place] = memory.tries.get(place, 0) + 1
        pause = min(FIRST_RETRY * 2 ** min(tries - 1, 10), LONGEST_RETRY)
        memory.refusals[place] = Refusal(place[0], place[1], reason, message, self._clock.now() + pause)
        self.queue.add(job.key)  # to say so in the status

    async def _patch(self, write: Patch) -> None:
        change = {**write.change, "metadata": {**write.change.get("metadata", {}), "uid": write.uid}}
        try:
            patched = await self._client.merge(write.kind, write.key, change)
        except (NotFound, Conflict):
            return  # it is gone, or another has its name: the watch tells
        self._informer_of(write.kind).observe_write(patched)

    async def _delete(self, write: Delete) -> None:
        informer = self._informer_of(write.kind)
        try:
            grace = 0 if write.force else None
            left = await self._client.delete(
                write.kind, write.key, uid=write.uid, propagation="Background", grace_seconds=grace
            )
        except NotFound:
            left = None
        except Conflict:
            return  # another has its name since
        informer.deleted(write.key, write.uid, left)

    async def _delete_all(self, write: DeleteAll) -> None:
        """The answer has them as they were before: whether a pod ends at once or takes its time, only the watch tells.
        Until then they are on their way out; taken for gone, their names would be asked for again and again.
        """
        store = self._informer_of(write.kind).store
        async with self._large_answers:
            for deleted in await self._client.delete_all(write.kind, Scope(write.namespace, labels=write.labels)):
                known = store.get(deleted.key)
                if known and known.uid == deleted.uid and not known.terminating:
                    store.amend(msgspec.structs.replace(known, terminating=True))

    def _informer_of(self, kind: Resource[Any]) -> Informer[Any, Any]:
        return next(each for each in self.informers if each.kind is kind)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


def difference(old: Any, new: Any) -> dict[str, Any]:
    """The JSON merge patch that makes `new` of `old`; lists are replaced whole."""
    change: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in _changed(old, new):
        before = old.get(name)
        change[name] = difference(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    return change


def _changed(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in new.items() if old.get(name) != value)
