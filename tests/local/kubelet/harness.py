"""A node with real processes on either API server: what its tests do with pods and wait for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.objects import Key, Manifest, Object, Resource
from paddle_operator.local.container_logs import LogFiles, PodLogOptions
from paddle_operator.local.cri import Image, ImageError, Progress, Sandbox
from paddle_operator.local.kubelet.ip_allocator import AddressBlock
from paddle_operator.local.kubelet.machine import Machine
from paddle_operator.local.node import Node
from paddle_operator.local.sandbox.sandbox import detect_sandbox
from testbed.watch_until import WatchedObjects, watch_objects

TIMEOUT_SECONDS = 100.0  # each wait takes a moment, but a machine may stall
UNKNOWN_SCHEDULER = "none"  # so that the scheduler of the real control plane ignores the pods


class RawObject(Object, frozen=True):
    spec: Any = None
    status: Any = None
    data: Any = None

    @property
    def phase(self) -> str:
        return str((self.status or {}).get("phase", ""))

    @property
    def address(self) -> str:
        return str(self.status.get("podIP", ""))

    def container(self, name: str = "main") -> dict[str, Any]:
        """A container's status; empty if there is none yet."""
        status = self.status or {}
        every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return next((each for each in every if each["name"] == name), {})

    def state(self, name: str = "main") -> dict[str, Any]:
        """The fields of the container's waiting, running or terminated state."""
        return next(iter(self.container(name).get("state", {}).values()), {})

    def waiting_reason(self, name: str = "main") -> str:
        return str(self.container(name).get("state", {}).get("waiting", {}).get("reason", ""))

    def condition(self, kind: str) -> dict[str, Any]:
        return next((each for each in (self.status or {}).get("conditions", ()) if each["type"] == kind), {})


class Event(Object, frozen=True):
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: dict[str, Any] | None = None


PODS = Resource("api/v1", "pods", RawObject)
SERVICES = Resource("api/v1", "services", RawObject)
CONFIG_MAPS = Resource("api/v1", "configmaps", RawObject)
SECRETS = Resource("api/v1", "secrets", RawObject)
CLAIMS = Resource("api/v1", "persistentvolumeclaims", RawObject)
VOLUMES = Resource("api/v1", "persistentvolumes", RawObject, namespaced=False)
NODES = Resource("api/v1", "nodes", RawObject, namespaced=False)
EVENTS = Resource("apis/events.k8s.io/v1", "events", Event)


class FakeImages:
    """Images by name; any other name cannot be pulled."""

    def __init__(self) -> None:
        self.known = {"python": Image("python"), "sh": Image("sh", entrypoint=("sh", "-c"), command=("true",))}
        self.requested: list[str] = []

    async def find(self, name: str, progress: Progress) -> Image:
        self.requested.append(name)
        if name not in self.known:
            raise ImageError("ErrImagePull", f"unknown image {name}")
        return self.known[name]


def make_pod(name: str, script: str = "exit 0", **more: Any) -> dict[str, Any]:
    """A pod that runs a shell script once; `more` are fields of its spec, `container` those of its container."""
    container = {"name": "main", "image": "python", "command": ["sh", "-c", script]} | more.pop("container", {})
    metadata = {"name": name} | more.pop("metadata", {})
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,  # no stall of the machine turns a normal exit into a kill
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "schedulerName": UNKNOWN_SCHEDULER,
        "containers": [container],
    } | more
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def make_config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@dataclass
class NodeHarness:
    client: Client
    node: Node
    folder: Path
    namespace: str
    images: FakeImages
    pods: WatchedObjects[RawObject]
    block: AddressBlock
    served: asyncio.Task[None]

    async def create(self, manifest: Manifest, kind: Resource[RawObject] = PODS) -> RawObject:
        metadata = {**manifest["metadata"], **({"namespace": self.namespace} if kind.namespaced else {})}
        return await self.client.create(kind, {**manifest, "metadata": metadata})

    async def run_pod(self, name: str, script: str = "exit 0", **more: Any) -> RawObject:
        """Create a pod and return its object once it has finished."""
        await self.create(make_pod(name, script, **more))
        return await self.wait_finished(name)

    async def wait_finished(self, name: str) -> RawObject:
        return await self.wait_until(name, lambda pod: pod.phase in ("Succeeded", "Failed"))

    async def wait_running(self, name: str) -> RawObject:
        return await self.wait_until(name, lambda pod: pod.phase == "Running")

    async def wait_until(self, name: str, condition: Callable[[RawObject], bool]) -> RawObject:
        return await self.pods.until(name, condition, timeout_seconds=TIMEOUT_SECONDS)

    async def wait_deleted(self, name: str) -> None:
        await self.pods.wait_deleted(name, timeout_seconds=TIMEOUT_SECONDS)

    async def wait_removed(self, pod: RawObject, part: str = "") -> None:
        """Return when nothing of the pod is left on disk, which happens after the status write."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (self.folder / "pods" / pod.uid / part).exists():
                await asyncio.sleep(0.01)

    async def read_log(self, pod: RawObject, container: str = "main", **options: Any) -> str:
        pieces = self.node.logs.stream(pod.key, pod.uid, PodLogOptions(container, **options))
        return b"".join([piece async for piece in pieces]).decode()

    async def wait_printed(self, pod: RawObject, text: str, container: str = "main") -> str:
        """Return the log as soon as it contains the text."""
        seen = b""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for piece in self.node.logs.stream(pod.key, pod.uid, PodLogOptions(container, follow=True)):
                seen += piece
                if text.encode() in seen:
                    return seen.decode()
        raise AssertionError(f"{text!r} is not in {seen.decode()!r}, and the container has exited")

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and note of all events of a pod, in the order of their creation."""
        every = await self.client.list_all(EVENTS, Scope(self.namespace))
        own = [each for each in every if (each.regarding or {}).get("name") == name]
        return [(each.reason, each.note) for each in sorted(own, key=lambda each: each.version)]

    async def wait_event(self, name: str, reason: str, text: str = "") -> str:
        """Wait for the first such event and return its note; events are sent asynchronously."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                for found, note in await self.events(name):
                    if found == reason and text in note:
                        return note
                await asyncio.sleep(0.02)

    async def wait_observed(self, node: RawObject) -> None:
        """Return when the node has observed this version of a Node object."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.node._nodes.store.version < node.version:
                await asyncio.sleep(0.01)

    async def annotate(self, name: str, **annotations: str) -> None:
        await self.client.merge(PODS, Key(self.namespace, name), {"metadata": {"annotations": annotations}})

    async def delete(self, name: str, grace_seconds: int | None = None) -> None:
        await self.client.delete(PODS, Key(self.namespace, name), grace_seconds=grace_seconds)


@asynccontextmanager
async def run_node(
    client: Client,
    folder: Path,
    namespace: str,
    *,
    sandbox: Sandbox | None = None,
    clock: Clock | None = None,
    machine: Machine | None = None,
    **settings: Any,
) -> AsyncIterator[NodeHarness]:
    """A node that serves a namespace; on exit its pods are killed, and that is waited for."""
    images = FakeImages()
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        block = stack.enter_context(AddressBlock.claim())
        node = Node(
            client,
            folder,
            images=images,
            sandbox=sandbox or await detect_sandbox(),
            block=block,
            logs=LogFiles(folder, clock),
            machine=machine or Machine(cpu=8, memory_bytes=16 * 1024**3),
            clock=clock,
            namespace=namespace,
            **settings,
        )
        pods = await stack.enter_async_context(watch_objects(client, PODS, Scope(namespace)))
        async with serving(node) as served:
            yield NodeHarness(client, node, folder, namespace, images, pods, block, served)


@asynccontextmanager
async def serving(node: Node) -> AsyncIterator[asyncio.Task[None]]:
    served = asyncio.create_task(node.serve(), name="node")
    ready = asyncio.create_task(node.ready.wait())
    try:
        await asyncio.wait({served, ready}, return_when=asyncio.FIRST_COMPLETED)
        if served.done():
            served.result()
        yield served
    finally:
        ready.cancel()
        node.stop()
        node.stop()
        if not served.cancelled():
            await served
