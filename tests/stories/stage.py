"""Where a job's life is played: apply a YAML, let things happen to its pods, wait until something is true."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key, Object, Resource
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes

Manifest = dict[str, Any]
WITHIN_SECONDS = 30


class Whole(Object, frozen=True):
    """An object with everything that it has; only tests want that."""

    spec: Any = None
    status: Any = None
    data: Any = None
    binary_data: Any = None
    reason: str = ""
    note: str = ""
    type: str = ""


WHOLE_JOBS = Resource("apis/batch.paddlepaddle.org/v1", "paddlejobs", Whole)
WHOLE_EVENTS = Resource("apis/events.k8s.io/v1", "events", Whole)


def whole(kind: Resource[Any]) -> Resource[Whole]:
    return Resource(kind.prefix, kind.plural, Whole)


class Stage:
    def __init__(self, control_plane: ControlPlane, client: Client, nodes: HollowNodes, namespace: str) -> None:
        self.control_plane = control_plane
        self.client = client
        self.nodes = nodes
        self.namespace = namespace

    async def apply(self, manifest: Manifest | str) -> None:
        text = manifest if isinstance(manifest, str) else yaml.safe_dump(manifest)
        await self.control_plane.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=text)

    async def job(self, name: str) -> Whole:
        return await self.client.get(WHOLE_JOBS, Key(self.namespace, name))

    async def until(self, name: str, claim: Callable[[Whole], bool]) -> Whole:
        """The job as soon as the claim is true of it. Raises TimeoutError with its status."""
        found: Whole | None = None
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                while True:
                    found = await self.job(name)
                    if claim(found):
                        return found
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise TimeoutError(f"{name}: {found.status if found else 'not there'}") from None

    async def phase(self, name: str, phase: str) -> Whole:
        return await self.until(name, lambda job: bool(job.status) and job.status.get("phase") == phase)

    async def pods(self) -> dict[str, Whole]:
        return {pod.key.name: pod for pod in await self.client.list_all(whole(PODS), Scope(self.namespace))}

    async def services(self) -> dict[str, Whole]:
        return {each.key.name: each for each in await self.client.list_all(whole(SERVICES), Scope(self.namespace))}

    async def barrier(self, name: str) -> Whole | None:
        try:
            return await self.client.get(whole(CONFIG_MAPS), Key(self.namespace, name))
        except NotFound:
            return None

    async def until_pods(self, claim: Callable[[dict[str, Whole]], bool]) -> dict[str, Whole]:
        pods: dict[str, Whole] = {}
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                while not claim(pods := await self.pods()):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise TimeoutError(str({name: pod.status for name, pod in pods.items()})) from None
        return pods

    async def events(self) -> list[tuple[str, str]]:
        found = await self.client.list_all(WHOLE_EVENTS, Scope(self.namespace))
        ours = [each for each in found if each.note and not each.key.name.startswith("kube")]
        return [(each.reason, each.note) for each in ours]


def environment(pod: Whole, barrier: Whole) -> dict[str, str]:
    """What the container named `paddle` would see, as kubelet puts it together."""
    container = next(each for each in pod.spec["containers"] if each["name"] == "paddle")
    env: dict[str, str] = dict(barrier.data)
    for each in container["env"]:
        if "value" in each:
            value = each["value"]
            for name, known in env.items():
                value = value.replace(f"$({name})", known)
            env[each["name"]] = value
        elif each["valueFrom"].get("fieldRef", {}).get("fieldPath") == "status.podIP":
            env[each["name"]] = pod.status["podIP"]
    return env


def as_json(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
