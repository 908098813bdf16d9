"""A node with real processes, on either API server, and the words in which its tests speak of pods."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.objects import Key, Manifest, Object, Resource
from paddle_operator.local.container_logs import LogFiles, LogOptions
from paddle_operator.local.cri import Image, ImageError, Progress, Sandbox
from paddle_operator.local.kubelet.ip_allocator import AddressBlock
from paddle_operator.local.kubelet.machine import Machine
from paddle_operator.local.node import Node
from paddle_operator.local.sandbox.sandbox import detect_sandbox
from testbed.followed import Followed, followed

PATIENCE_SECONDS = 100.0  # each takes a moment, but a machine may stall
UNBOUND = "nobody"  # a scheduler's name that the real control plane has nobody for


class Whole(Object, frozen=True):
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
        """A container's status; empty while there is none."""
        status = self.status or {}
        every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return next((each for each in every if each["name"] == name), {})

    def state(self, name: str = "main") -> dict[str, Any]:
        """waiting, running or terminated: what it says."""
        return next(iter(self.container(name).get("state", {}).values()), {})

    def waits(self, name: str = "main") -> str:
        return str(self.container(name).get("state", {}).get("waiting", {}).get("reason", ""))

    def condition(self, kind: str) -> dict[str, Any]:
        return next((each for each in (self.status or {}).get("conditions", ()) if each["type"] == kind), {})


class Event(Object, frozen=True):
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: dict[str, Any] | None = None


PODS = Resource("api/v1", "pods", Whole)
SERVICES = Resource("api/v1", "services", Whole)
CONFIG_MAPS = Resource("api/v1", "configmaps", Whole)
SECRETS = Resource("api/v1", "secrets", Whole)
CLAIMS = Resource("api/v1", "persistentvolumeclaims", Whole)
VOLUMES = Resource("api/v1", "persistentvolumes", Whole, namespaced=False)
NODES = Resource("api/v1", "nodes", Whole, namespaced=False)
EVENTS = Resource("apis/events.k8s.io/v1", "events", Event)


class ShelfImages:
    """Images by name; every other name is one that nobody knows."""

    def __init__(self) -> None:
        self.known = {"python": Image("python"), "sh": Image("sh", entrypoint=("sh", "-c"), command=("true",))}
        self.asked: list[str] = []

    async def find(self, name: str, progress: Progress) -> Image:
        self.asked.append(name)
        if name not in self.known:
            raise ImageError("ErrImagePull", f"nobody knows the image {name}")
        return self.known[name]


def pod(name: str, script: str = "exit 0", **more: Any) -> dict[str, Any]:
    """A pod that runs a shell script once; `more` is for its spec, with `container` for its container."""
    container = {"name": "main", "image": "python", "command": ["sh", "-c", script]} | more.pop("container", {})
    metadata = {"name": name} | more.pop("metadata", {})
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,  # no stall of the machine makes a kill of what ends by itself
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "schedulerName": UNBOUND,
        "containers": [container],
    } | more
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@dataclass
class Bed:
    client: Client
    node: Node
    folder: Path
    namespace: str
    images: ShelfImages
    pods: Followed[Whole]
    block: AddressBlock
    served: asyncio.Task[None]

    async def create(self, manifest: Manifest, kind: Resource[Whole] = PODS) -> Whole:
        metadata = {**manifest["metadata"], **({"namespace": self.namespace} if kind.namespaced else {})}
        return await self.client.create(kind, {**manifest, "metadata": metadata})

    async def run(self, name: str, script: str = "exit 0", **more: Any) -> Whole:
        """A pod's object, once it has ended."""
        await self.create(pod(name, script, **more))
        return await self.finished(name)

    async def finished(self, name: str) -> Whole:
        return await self.until(name, lambda pod: pod.phase in ("Succeeded", "Failed"))

    async def running(self, name: str) -> Whole:
        return await self.until(name, lambda pod: pod.phase == "Running")

    async def until(self, name: str, claim: Callable[[Whole], bool]) -> Whole:
        return await self.pods.until(name, claim, within_seconds=PATIENCE_SECONDS)

    async def gone(self, name: str) -> None:
        await self.pods.until_gone(name, within_seconds=PATIENCE_SECONDS)

    async def swept(self, pod: Whole, part: str = "") -> None:
        """Return when nothing of the pod is left on the disk: that is done behind what is told."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (self.folder / "pods" / pod.uid / part).exists():
                await asyncio.sleep(0.01)

    async def log(self, pod: Whole, container: str = "main", **options: Any) -> str:
        pieces = self.node.logs.stream(pod.key, pod.uid, LogOptions(container, **options))
        return b"".join([piece async for piece in pieces]).decode()

    async def printed(self, pod: Whole, text: str, container: str = "main") -> str:
        """The log up to now, as soon as the text is in it."""
        seen = b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for piece in self.node.logs.stream(pod.key, pod.uid, LogOptions(container, follow=True)):
                seen += piece
                if text.encode() in seen:
                    return seen.decode()
        raise AssertionError(f"{text!r} is not in {seen.decode()!r}, and the container has ended")

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and note of all that was told of a pod, in the order of its being told."""
        every = await self.client.list_all(EVENTS, Scope(self.namespace))
        own = [each for each in every if (each.regarding or {}).get("name") == name]
        return [(each.reason, each.note) for each in sorted(own, key=lambda each: each.version)]

    async def event(self, name: str, reason: str, text: str = "") -> str:
        """The note of the first such event, which is waited for: events are sent behind the work."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for found, note in await self.events(name):
                    if found == reason and text in note:
                        return note
                await asyncio.sleep(0.02)

    async def knows_node(self, node: Whole) -> None:
        """Return when the bed's node has heard of this version of a Node object."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.node._nodes.store.version < node.version:
                await asyncio.sleep(0.01)

    async def annotate(self, name: str, **annotations: str) -> None:
        await self.client.merge(PODS, Key(self.namespace, name), {"metadata": {"annotations": annotations}})

    async def delete(self, name: str, grace_seconds: int | None = None) -> None:
        await self.client.delete(PODS, Key(self.namespace, name), grace_seconds=grace_seconds)


@asynccontextmanager
async def opened_bed(
    client: Client,
    folder: Path,
    namespace: str,
    *,
    sandbox: Sandbox | None = None,
    clock: Clock | None = None,
    machine: Machine | None = None,
    **settings: Any,
) -> AsyncIterator[Bed]:
    """A node that serves a namespace; leaving ends its pods at once and waits for that."""
    images = ShelfImages()
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
        pods = await stack.enter_async_context(followed(client, PODS, Scope(namespace)))
        async with serving(node) as served:
            yield Bed(client, node, folder, namespace, images, pods, block, served)


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


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def labelled(manifest: Mapping[str, Any], **labels: str) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}
