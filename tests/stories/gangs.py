"""A harness whose pods a real Volcano schedules: two nodes of 4 CPUs, and a worker requests 2."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from paddle_operator.kube.client import Scope
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.objects import Object, Resource
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.volcano import Volcano, is_served, wait_until
from testbed.watch_until import WatchedObjects, watch_objects
from tests.stories.harness import ClusterHarness, FullObject, RecordingClient
from tests.stories.jobs import Job, make_job, make_template, with_template

FULL_POD_GROUPS = Resource("apis/scheduling.volcano.sh/v1beta1", "podgroups", FullObject)
QUEUES = Resource("apis/scheduling.volcano.sh/v1beta1", "queues", Object, namespaced=False)
PRIORITIES = Resource("apis/scheduling.k8s.io/v1", "priorityclasses", Object, namespaced=False)


def make_gang(name: str = "mnist", *, ps: int = 0, workers: int = 2, cpu: str = "2", **spec: Any) -> Job:
    """A job whose pods request `cpu` each; `spec` are further fields of its spec, in their YAML spelling."""
    template = make_template(resources={"requests": {"cpu": cpu}})
    job = with_template(make_job(name, ps=ps, workers=workers), template)
    return job | {"spec": job["spec"] | spec}


def make_pod_group(name: str = "mnist", **spec: Any) -> Job:
    """A PodGroup of a user."""
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    return {**kind, "metadata": {"name": name, "labels": {"made-by": "a-user"}}, "spec": spec}


class GangHarness(ClusterHarness):
    """A harness that watches PodGroups, too."""

    def __init__(self, volcano: Volcano, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.volcano = volcano
        self.history: list[Counter[str]] = []  # the bound pods per job, after each change of a pod
        self._groups: WatchedObjects[FullObject]

    @asynccontextmanager
    async def open(self) -> AsyncIterator["GangHarness"]:
        async with super().open(), watch_objects(self.client, FULL_POD_GROUPS, Scope(self.namespace)) as self._groups:
            self._pods.store.listen(lambda *_: self.history.append(self.bound_pods()))
            yield self

    @asynccontextmanager
    async def run_gang_operator(self, clock: Clock | None = None) -> AsyncIterator[RecordingClient]:
        async with self.run_operator(scheduling="volcano", clock=clock) as client:
            yield client

    @asynccontextmanager
    async def add_nodes(self, count: int) -> AsyncIterator[HollowNodes]:
        async with HollowNodes(self.client, count=count, cpu="4") as nodes:
            yield nodes

    @asynccontextmanager
    async def queue(self, name: str, **capability: str) -> AsyncIterator[None]:
        """A queue with this capability for the length of a block."""
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
        await self.client.create(QUEUES, {**kind, "spec": {"weight": 1, "capability": capability}})
        yield
        await self.kubectl("delete", "queues.scheduling.volcano.sh", name)

    async def create_priority(self, name: str, value: int) -> None:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await self.client.create(PRIORITIES, {**kind, "value": value})

    # Reads

    def bound_pods(self) -> Counter[str]:
        """The number of bound pods of each job that are neither finished nor terminating."""
        return Counter(job_name(pod) for pod in self._pods.store if pod.spec.get("nodeName") and not is_ending(pod))

    async def list_groups(self) -> dict[str, FullObject]:
        return {each.key.name: each for each in await self.client.list_all(FULL_POD_GROUPS, Scope(self.namespace))}

    # Waits

    async def wait_group(
        self, name: str = "mnist", predicate: Callable[[FullObject], bool] = lambda _: True
    ) -> FullObject:
        return await self._groups.until(name, predicate)

    async def wait_group_deleted(self, name: str = "mnist") -> None:
        await self._groups.wait_deleted(name)

    async def wait_not_running_for_volcano(self, name: str = "mnist") -> FullObject:
        """The job once its condition Running says that its PodGroup is not enqueued."""
        return await self.wait_job(name, lambda job: "is not yet enqueued in queue" in running_message(job))

    async def wait_running_with(self, pods: int, name: str = "mnist") -> FullObject:
        """The job once it runs with exactly that many pods."""
        ready = f"{pods}/{pods}"
        return await self.wait_job(name, lambda job: job.phase == "Running" and job.status["ready"] == ready)


def job_name(pod: FullObject) -> str:
    return pod.key.name.rsplit("-", 2)[0]


def is_ending(pod: FullObject) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.phase in ("Succeeded", "Failed")


def running_message(job: FullObject) -> str:
    found = [each for each in (job.status or {}).get("conditions", ()) if each["type"] == "Running"]
    return str(found[0]["message"]) if found else ""


async def serve_paddlejobs(control_plane: ControlPlane) -> None:
    """Apply our CRD and restart the controller manager, whose garbage collector then knows all CRDs."""
    definition = Path(__file__).parents[2] / "deploy/v1/crd.yaml"
    await control_plane.kubectl("apply", f"--filename={definition}")
    path = "/apis/batch.paddlepaddle.org/v1/paddlejobs"
    await asyncio.to_thread(wait_until, lambda: is_served(control_plane, path), f"{path} is not served")
    await control_plane.controller_manager.kill()
    await control_plane.controller_manager.start()
