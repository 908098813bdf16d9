"""Stories on the embedded API server: hollow nodes work on it as on a real control plane.

A real scheduler is not there, so pods are bound in turn: the n-th of a role to the n-th node.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from paddle_operator.embedded.api_server import served_kinds
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.errors import Conflict, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import PODS, Object, Pod, Resource
from paddle_operator.local.apiserver.http_server import ApiServer
from testbed.audit import AuditLog
from testbed.hollow import HollowNodes
from tests.stories.harness import ClusterHarness

TOKEN = "token-of-the-embedded-server"
NAMESPACE = "default"


class EmbeddedPlane:
    """The embedded server as a Plane. It has one user and no audit log."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def connection(self, user: str = "") -> StaticServerConfig:
        return StaticServerConfig(self._server.url, TOKEN)

    @property
    def audit(self) -> AuditLog:
        raise NotImplementedError("the embedded server keeps no audit log")

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        raise NotImplementedError("stories on both servers speak through the client")


@asynccontextmanager
async def open_embedded_harness(
    directory: Path, *, labels: Mapping[str, str] | None = None, speed: float = 1.0
) -> AsyncIterator[ClusterHarness]:
    async with ApiServer(directory, served_kinds(), token=TOKEN) as server:
        plane = EmbeddedPlane(server)
        async with (
            Client(plane.connection()) as client,
            namespace_of_leases(client),
            HollowNodes(client, count=4, gpus=8, labels=labels or {}, speed=speed) as nodes,
            bound_in_turn(client, [node.name for node in nodes]),
            ClusterHarness(plane, client, nodes, NAMESPACE).open() as harness,
        ):
            yield harness


@asynccontextmanager
async def namespace_of_leases(client: Client) -> AsyncIterator[None]:
    """Where hollow nodes keep their leases; a real API server has it from the start."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}}
    await client.create(Resource("api/v1", "namespaces", Object, namespaced=False), manifest)
    yield


@asynccontextmanager
async def bound_in_turn(client: Client, nodes: Sequence[str]) -> AsyncIterator[None]:
    unbound: asyncio.Queue[Pod] = asyncio.Queue()
    pods: Informer[Pod, Pod] = Informer(client, PODS)
    pods.store.listen(lambda old, new, _lane: unbound.put_nowait(new) if new and old is None else None)

    async def bind() -> None:
        while True:
            pod = await unbound.get()
            if not pod.spec.node_name:
                await bound(client, pod, nodes[int(pod.key.name.rpartition("-")[2]) % len(nodes)])

    tasks = [asyncio.ensure_future(each) for each in (pods.run(), bind())]
    try:
        await pods.wait_synced()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def bound(client: Client, pod: Pod, node: str) -> None:
    binding: Resource[Object] = Resource("api/v1", f"pods/{pod.key.name}/binding", Object)
    metadata = {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    try:
        await client.create(binding, {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})
    except (NotFound, Conflict):
        return  # it went again meanwhile
