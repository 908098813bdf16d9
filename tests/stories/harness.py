"""The harness of the stories: applies a YAML, ends its pods and waits until a predicate holds.

`wait_…` methods use a watch, nothing is polled. `get_…` and `list_…` methods read from the API server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from paddle_operator.controllers.paddlejob import PaddleJobs
from paddle_operator.controllers.settings import Settings
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.errors import Forbidden, NotFound
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key, Manifest, Object, Resource, T
from paddle_operator.kube.reconciler import build_manager
from paddle_operator.kube.round_trip import Call, RoundTripper
from testbed.audit import AuditedWrites, AuditLog
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.watch_until import WAIT_TIMEOUT_SECONDS, WatchedObjects, watch_objects
from tests.support.objects import FullObject as FullObject
from tests.support.service_account import create_operator_connection


class Event(Object, frozen=True):
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: dict[str, Any] | None = None
    series: dict[str, Any] | None = None

    @property
    def times(self) -> int:
        return int((self.series or {}).get("count", 1))


# A story runs on a real control plane unless it or its module is marked. Stories that need no audit log, kubectl,
# quota, admission plugin, RBAC, scheduler or node controller run on the embedded API server. Each file keeps at least
# one story on the real one.
on_real_plane = pytest.mark.planes("real")
on_embedded_plane = pytest.mark.planes("embedded")
on_both_planes = pytest.mark.planes("embedded", "real")

FULL_JOBS = Resource("apis/batch.paddlepaddle.org/v1", "paddlejobs", FullObject)
FULL_PODS = Resource(PODS.prefix, PODS.plural, FullObject)
FULL_SERVICES = Resource(SERVICES.prefix, SERVICES.plural, FullObject)
FULL_CONFIG_MAPS = Resource(CONFIG_MAPS.prefix, CONFIG_MAPS.plural, FullObject)
FULL_EVENTS = Resource("apis/events.k8s.io/v1", "events", Event)


class RecordingRoundTripper(RoundTripper):
    def __init__(self, client: "RecordingClient", *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._client = client

    async def send(self, call: Call, *, obey_retry_after: bool = True) -> bytes:
        try:
            return await super().send(call, obey_retry_after=obey_retry_after)
        except Forbidden as error:
            if " cannot " in error.status.message:  # the message of RBAC, not of a quota
                self._client.forbidden.append(str(error))
            raise


class RecordingClient(Client):
    """The operator's client. It records the manifests it created, as sent, and requests that RBAC forbade."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, round_tripper=partial(RecordingRoundTripper, self), **named)
        self.created: list[Manifest] = []
        self.forbidden: list[str] = []

    async def create(self, kind: Resource[T], manifest: Manifest, *, dry_run: bool = False, strict: bool = False) -> T:
        created = await super().create(kind, manifest, dry_run=dry_run, strict=strict)
        if kind.plural != "events":
            self.created.append(manifest)
        return created


class Plane(Protocol):
    """The part of a server that a harness uses: implemented by ControlPlane and EmbeddedPlane."""

    def connection(self, user: str = ...) -> StaticServerConfig: ...
    async def kubectl(self, *arguments: str, stdin: str = "") -> str: ...
    @property
    def audit(self) -> AuditLog: ...


class ClusterHarness:
    """One namespace of a control plane with hollow nodes; the operator runs inside a `run_operator` block."""

    def __init__(self, control_plane: Plane, client: Client, nodes: HollowNodes, namespace: str) -> None:
        self.control_plane = control_plane
        self.client = client
        self.nodes = nodes
        self.namespace = namespace
        self._scope = Scope(namespace)
        self._jobs: WatchedObjects[FullObject]
        self._pods: WatchedObjects[FullObject]
        self._services: WatchedObjects[FullObject]
        self._config_maps: WatchedObjects[FullObject]
        self._events: WatchedObjects[Event]

    @asynccontextmanager
    async def open(self) -> AsyncIterator["ClusterHarness"]:
        async with AsyncExitStack() as stack:
            watch = stack.enter_async_context
            self._jobs = await watch(watch_objects(self.client, FULL_JOBS, self._scope))
            self._pods = await watch(watch_objects(self.client, FULL_PODS, self._scope))
            self._services = await watch(watch_objects(self.client, FULL_SERVICES, self._scope))
            self._config_maps = await watch(watch_objects(self.client, FULL_CONFIG_MAPS, self._scope))
            self._events = await watch(watch_objects(self.client, FULL_EVENTS, self._scope))
            yield self

    @asynccontextmanager
    async def run_operator(self, *, clock: Clock | None = None, **settings: Any) -> AsyncIterator[RecordingClient]:
        """Run the operator as its process would, without leader election, and stop it as SIGTERM does.

        The clock is for its decisions only; connections and events use real time.
        """
        plane = self.control_plane
        connection = await create_operator_connection(plane) if isinstance(plane, ControlPlane) else plane.connection()
        async with RecordingClient(connection) as client:
            recorder = Recorder(client, reporter="paddle-operator")
            jobs = PaddleJobs(client, recorder, Settings(namespace=self.namespace, **settings), clock)
            manager = build_manager(recorder, [jobs])
            running = asyncio.ensure_future(manager.run())
            await asyncio.gather(*(informer.wait_synced() for informer in jobs.informers))
            try:
                yield client
            finally:
                manager.stop()
                await running
            assert client.forbidden == [], "the manifests do not give the operator this right"

    # Actions of a user

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return await self.control_plane.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    async def apply(self, manifest: Manifest | str | Path) -> None:
        match manifest:
            case Path():
                await self.kubectl("apply", f"--filename={manifest}")
            case str():
                await self.kubectl("apply", "--filename=-", stdin=manifest)
            case _:
                await self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(dict(manifest)))

    async def submit(self, *jobs: Manifest) -> None:
        """Create jobs without kubectl."""
        for job in jobs:
            await self.create(FULL_JOBS, job)

    async def create(self, kind: Resource[T], manifest: Manifest) -> T:
        metadata = {**manifest["metadata"], "namespace": self.namespace}
        return await self.client.create(kind, {**manifest, "metadata": metadata})

    async def delete(self, kind: Resource[Any], name: str) -> None:
        await self.client.delete(kind, Key(self.namespace, name))

    async def patch_spec(self, name: str, spec: Manifest) -> FullObject:
        return await self.client.merge(FULL_JOBS, Key(self.namespace, name), {"spec": spec})

    async def exit_pods(self, *pods: str, code: int = 0) -> None:
        """End the containers of these pods; names are globs."""
        for pod in pods:
            await self.nodes.exit(pod, code, namespace=self.namespace)

    async def cordon(self) -> None:
        """Cordon all nodes and wait until the scheduler has observed it."""
        for node in self.nodes:
            await node.cordon()
        all_cordoned = f"{len(self.nodes)} node(s) were unschedulable"
        while all_cordoned not in await self._probe_scheduler("probe"):
            pass

    async def _probe_scheduler(self, name: str) -> str:
        """Create and delete a probe pod; returns the message of its PodScheduled condition, "" if it was scheduled."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        containers = [{"name": "probe", "image": "probe"}]
        await self.create(FULL_PODS, {**pod, "spec": {"containers": containers}})
        pods = await self.wait_pods(lambda pods: name in pods and has_scheduling_result(pods[name]))
        message: str = pods[name].condition("PodScheduled").get("message", "")
        await self.client.delete(FULL_PODS, pods[name].key, grace_seconds=0)
        await self._pods.wait_deleted(name)
        return message

    async def run_unrelated_job(self, name: str) -> None:
        """Run a job of one worker from creation to cleanup, which gives the operator time for all other jobs, too."""
        worker = {"replicas": 1, "template": {"spec": {"containers": [{"name": "paddle", "image": "paddle"}]}}}
        kind = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob"}
        await self.submit({**kind, "metadata": {"name": name}, "spec": {"worker": worker}})
        await self.wait_phase(name, "Running")
        await self.exit_pods(f"{name}-worker-0")
        await self.wait_phase(name, "Completed")
        await self.wait_pods(lambda pods: not pods_of_job(pods, name))

    @asynccontextmanager
    async def record_writes(self) -> AsyncIterator[AuditedWrites]:
        """An empty list that is filled at the end of the block with all writes to this namespace during it."""
        writes = AuditedWrites()
        async with self.control_plane.audit.recording() as found:
            yield writes
        writes.extend(write for write in found if write.namespace == self.namespace)

    async def wait_idle(self, user: str) -> None:
        """Return once this user wrote nothing here for two seconds; counters are written after one."""
        while True:
            async with self.record_writes() as writes:
                await asyncio.sleep(2)
            if not writes.by(user):
                return

    # Reads

    async def get_job(self, name: str) -> FullObject:
        return await self.client.get(FULL_JOBS, Key(self.namespace, name))

    async def list_pods(self) -> dict[str, FullObject]:
        return {pod.key.name: pod for pod in await self.client.list_all(FULL_PODS, self._scope)}

    async def list_services(self) -> dict[str, FullObject]:
        return {each.key.name: each for each in await self.client.list_all(FULL_SERVICES, self._scope)}

    async def get_barrier(self, name: str) -> FullObject | None:
        try:
            return await self.client.get(FULL_CONFIG_MAPS, Key(self.namespace, name))
        except NotFound:
            return None

    async def get_environments(self, name: str) -> dict[str, dict[str, str]]:
        """The environment of each training container, by pod. Raises AssertionError without a barrier ConfigMap."""
        barrier = await self.get_barrier(name)
        assert barrier, f"there is no ConfigMap {name}"
        return {pod: environment(each, barrier.data) for pod, each in (await self.list_pods()).items()}

    async def list_events(self, name: str) -> list[Event]:
        """The events of the job so far."""
        found = await self.client.list_all(FULL_EVENTS, self._scope)
        return [each for each in found if _is_about(each, name)]

    # Waits

    async def wait_job(
        self, name: str, predicate: Callable[[FullObject], bool], *, timeout_seconds: float = WAIT_TIMEOUT_SECONDS
    ) -> FullObject:
        """The job once the predicate holds. Raises AssertionError with the present job on a timeout."""
        return await self._jobs.until(name, predicate, timeout_seconds=timeout_seconds)

    async def wait_phase(self, name: str, phase: str, *, timeout_seconds: float = WAIT_TIMEOUT_SECONDS) -> FullObject:
        return await self.wait_job(name, lambda job: job.phase == phase, timeout_seconds=timeout_seconds)

    async def wait_running(self, attempt: int, name: str = "mnist") -> FullObject:
        """The job once it runs in this attempt."""
        return await self.wait_job(name, lambda job: job.phase == "Running" and job.status.get("attempt", 0) == attempt)

    async def wait_not_running(self, name: str, reason: str) -> FullObject:
        """The job once its condition Running is False with this reason."""
        return await self.wait_job(name, lambda job: running_condition(job) == ("False", reason))

    async def wait_deleted(self, name: str) -> None:
        await self._jobs.wait_deleted(name)

    async def wait_pods(
        self, predicate: Callable[[dict[str, FullObject]], bool], *, timeout_seconds: float = WAIT_TIMEOUT_SECONDS
    ) -> dict[str, FullObject]:
        """The pods by name once the predicate holds. Raises AssertionError with their statuses on a timeout."""
        found: dict[str, FullObject] = {}

        def holds() -> bool:
            found.clear()
            found.update({pod.key.name: pod for pod in self._pods.store})
            return predicate(found)

        def describe() -> str:
            return str({name: pod.status for name, pod in found.items()})[:3000]

        await self._pods.wait_until(holds, timeout_seconds=timeout_seconds, describe=describe)
        return found

    async def wait_cleaned_up(self) -> None:
        """Return once the namespace has neither pods nor Services."""
        await self.wait_pods(lambda pods: not pods)
        await self._services.wait_until(lambda: not len(self._services.store))

    async def wait_children_deleted(self, name: str) -> None:
        """Return once the job has no pod, Service or ConfigMap left."""
        await self.wait_pods(lambda pods: not pods_of_job(pods, name))
        await self._services.wait_until(
            lambda: not any(belongs_to_job(each.key.name, name) for each in self._services.store)
        )
        await self._config_maps.wait_deleted(name)

    async def wait_barrier(self, name: str, predicate: Callable[[FullObject], bool] = lambda _: True) -> FullObject:
        """The barrier ConfigMap, once it exists and the predicate holds."""
        return await self._config_maps.until(name, predicate)

    async def wait_event(self, name: str, reason: str) -> Event:
        """The event of the job with this reason, once there is one. Raises AssertionError with the present events."""
        found: list[Event] = []

        def holds() -> bool:
            found[:] = [each for each in self._events.store if _is_about(each, name)]
            return any(each.reason == reason for each in found)

        def describe() -> str:
            return f"{name} has no event {reason}, only {[(each.reason, each.note) for each in found]}"

        await self._events.wait_until(holds, describe=describe)
        return next(each for each in found if each.reason == reason)

    async def wait_finished_event(self, name: str, phase: str) -> FullObject:
        """The finished job, once its event exists, too."""
        await self.wait_event(name, phase)
        return await self.get_job(name)

    async def wait_single_event(self, name: str, reason: str) -> Event:
        """Like `wait_event`; asserts that this reason was emitted once."""
        event = await self.wait_event(name, reason)
        same_reason = [each for each in await self.list_events(name) if each.reason == reason]
        assert [each.times for each in same_reason] == [1], [(each.note, each.times) for each in same_reason]
        return event


def _is_about(event: Event, name: str) -> bool:
    about = event.regarding or {}
    return (about.get("kind"), about.get("name")) == ("PaddleJob", name)


def has_scheduling_result(pod: FullObject) -> bool:
    """Whether the pod has a condition PodScheduled."""
    return any(each["type"] == "PodScheduled" for each in (pod.status or {}).get("conditions", ()))


def belongs_to_job(child: str, job: str) -> bool:
    """Whether a child or an event of this name is the job's; no job name is a prefix of another."""
    return child == job or child.startswith((f"{job}-", f"{job}."))


def pods_of_job(pods: Mapping[str, FullObject], job: str) -> dict[str, FullObject]:
    return {name: pod for name, pod in pods.items() if belongs_to_job(name, job)}


def writes_for_job(writes: AuditedWrites, job: str) -> AuditedWrites:
    """The writes to the job and its children."""
    return AuditedWrites(write for write in writes if belongs_to_job(write.name, job))


def conditions(job: FullObject) -> list[tuple[str, str, str]]:
    """Type, status and reason of each condition."""
    return [(each["type"], each["status"], each["reason"]) for each in job.status["conditions"]]


def parse_time(text: str) -> datetime:
    """Parse a timestamp of an object."""
    return datetime.fromisoformat(text)


def running_condition(job: FullObject) -> tuple[str, str]:
    """Status and reason of the condition Running."""
    found = [each for each in (job.status or {}).get("conditions", ()) if each["type"] == "Running"]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def main_container(pod: FullObject) -> dict[str, Any]:
    containers: list[dict[str, Any]] = pod.spec["containers"]
    return next((each for each in containers if each["name"] == "paddle"), containers[0])


def environment(pod: FullObject, barrier: Mapping[str, str]) -> dict[str, str]:
    """The environment of the training container as kubelet builds it: envFrom first, then env in order."""
    container = main_container(pod)
    env = dict(barrier) if container.get("envFrom") else {}
    for each in container["env"]:
        if "value" in each:
            value = each["value"]
            for name, known in env.items():
                value = value.replace(f"$({name})", known)
            env[each["name"]] = value
        elif each["valueFrom"].get("fieldRef", {}).get("fieldPath") == "status.podIP":
            env[each["name"]] = pod.status["podIP"]
    return env
