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
from tests.stories.jobs import Job, a_job, a_template, with_template

FULL_POD_GROUPS = Resource("apis/scheduling.volcano.sh/v1beta1", "podgroups", FullObject)
QUEUES = Resource("apis/scheduling.volcano.sh/v1beta1", "queues", Object, namespaced=False)
PRIORITIES = Resource("apis/scheduling.k8s.io/v1", "priorityclasses", Object, namespaced=False)


def a_gang(name: str = "mnist", *, ps: int = 0, workers: int = 2, cpu: str = "2", **spec: Any) -> Job:
    """A job whose pods ask for that much each; further fields of its spec are given as they are spelled there."""
    template = a_template(resources={"requests": {"cpu": cpu}})
    job = with_template(a_job(name, ps=ps, workers=workers), template)
    return job | {"spec": job["spec"] | spec}


def a_group(name: str = "mnist", **spec: Any) -> Job:
    """A PodGroup as a user writes it."""
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    return {**kind, "metadata": {"name": name, "labels": {"made-by": "a-user"}}, "spec": spec}


class GangHarness(ClusterHarness):
    """A harness that follows PodGroups, too."""

    def __init__(self, volcano: Volcano, *harness: Any) -> None:
        super().__init__(*harness)
        self.volcano = volcano
        self.history: list[Counter[str]] = []  # after each change of a pod: how many of each job are on nodes
        self._groups: WatchedObjects[FullObject]

    @asynccontextmanager
    async def open(self) -> AsyncIterator["GangHarness"]:
        async with super().open(), watch_objects(self.client, FULL_POD_GROUPS, Scope(self.namespace)) as self._groups:
            self._pods.store.listen(lambda *_: self.history.append(self.on_nodes()))
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
        """A queue that holds at most so much, for the length of a block."""
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
        await self.client.create(QUEUES, {**kind, "spec": {"weight": 1, "capability": capability}})
        yield
        await self.kubectl("delete", "queues.scheduling.volcano.sh", name)

    async def create_priority(self, name: str, value: int) -> None:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await self.client.create(PRIORITIES, {**kind, "value": value})

    # What is true

    def on_nodes(self) -> Counter[str]:
        """How many pods of each job are on nodes, and stay there."""
        return Counter(job_of(pod) for pod in self._pods.store if pod.spec.get("nodeName") and not leaves(pod))

    async def list_groups(self) -> dict[str, FullObject]:
        return {each.key.name: each for each in await self.client.list_all(FULL_POD_GROUPS, Scope(self.namespace))}

    # Waiting

    async def wait_group(self, name: str = "mnist", claim: Callable[[FullObject], bool] = lambda _: True) -> FullObject:
        return await self._groups.until(name, claim)

    async def wait_group_deleted(self, name: str = "mnist") -> None:
        await self._groups.wait_deleted(name)

    async def wait_not_running_for_volcano(self, name: str = "mnist") -> FullObject:
        """The job as soon as it says that Volcano holds it back."""
        return await self.wait_job(name, lambda job: "is not yet enqueued in queue" in running_message(job))

    async def wait_running_with(self, pods: int, name: str = "mnist") -> FullObject:
        """The job as soon as it runs with exactly so many pods."""
        ready = f"{pods}/{pods}"
        return await self.wait_job(name, lambda job: job.phase == "Running" and job.status["ready"] == ready)


def job_of(pod: FullObject) -> str:
    return pod.key.name.rsplit("-", 2)[0]


def leaves(pod: FullObject) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.phase in ("Succeeded", "Failed")


def running_message(job: FullObject) -> str:
    found = [each for each in (job.status or {}).get("conditions", ()) if each["type"] == "Running"]
    return str(found[0]["message"]) if found else ""


async def serve_paddlejobs(control_plane: ControlPlane) -> None:
    """On a control plane of one's own; its garbage collector knows them, and Volcano's kinds if they are there."""
    definition = Path(__file__).parents[2] / "deploy/v1/crd.yaml"
    await control_plane.kubectl("apply", f"--filename={definition}")
    path = "/apis/batch.paddlepaddle.org/v1/paddlejobs"
    await asyncio.to_thread(wait_until, lambda: is_served(control_plane, path), f"{path} is not served")
    await control_plane.controller_manager.kill()
    await control_plane.controller_manager.start()
