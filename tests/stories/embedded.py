"""Stories on the embedded API server, with hollow nodes.

There is no scheduler: the n-th pod of a role is bound to the n-th node, modulo their number.
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
        raise NotImplementedError("the embedded server has no audit log")

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        raise NotImplementedError("stories for both servers must use the client")


@asynccontextmanager
async def open_embedded_harness(
    directory: Path, *, labels: Mapping[str, str] | None = None, speed: float = 1.0
) -> AsyncIterator[ClusterHarness]:
    async with ApiServer(directory, served_kinds(), token=TOKEN) as server:
        plane = EmbeddedPlane(server)
        async with (
            Client(plane.connection()) as client,
            lease_namespace(client),
            HollowNodes(client, count=4, gpus=8, labels=labels or {}, speed=speed) as nodes,
            schedule_round_robin(client, [node.name for node in nodes]),
            ClusterHarness(plane, client, nodes, NAMESPACE).open() as harness,
        ):
            yield harness


@asynccontextmanager
async def lease_namespace(client: Client) -> AsyncIterator[None]:
    """Create the namespace of the node leases, which a real API server creates itself."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}}
    await client.create(Resource("api/v1", "namespaces", Object, namespaced=False), manifest)
    yield


@asynccontextmanager
async def schedule_round_robin(client: Client, nodes: Sequence[str]) -> AsyncIterator[None]:
    unbound: asyncio.Queue[Pod] = asyncio.Queue()
    pods: Informer[Pod, Pod] = Informer(client, PODS)
    pods.store.listen(lambda old, new, _priority: unbound.put_nowait(new) if new and old is None else None)

    async def bind() -> None:
        while True:
            pod = await unbound.get()
            if not pod.spec.node_name:
                await bind_pod(client, pod, nodes[int(pod.key.name.rpartition("-")[2]) % len(nodes)])

    tasks = [asyncio.ensure_future(each) for each in (pods.run(), bind())]
    try:
        await pods.wait_synced()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def bind_pod(client: Client, pod: Pod, node: str) -> None:
    binding: Resource[Object] = Resource("api/v1", f"pods/{pod.key.name}/binding", Object)
    metadata = {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    try:
        await client.create(binding, {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})
    except (NotFound, Conflict):
        return  # deleted or bound meanwhile
