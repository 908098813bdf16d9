"""The operator with its own ServiceAccount and no right more: enough for all that it does, and nothing beyond that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddle_operator.controllers.paddlejob import PaddleJobs
from paddle_operator.controllers.settings import Settings
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.config import load
from paddle_operator.kube.config.server import ServerConfig
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.http_connection import HTTPResponse
from paddle_operator.kube.leader_election import Elector
from paddle_operator.kube.objects import Key
from paddle_operator.kube.reconciler import build_manager
from paddle_operator.kube.round_trip import Call, RoundTripper
from paddle_operator.manager import LEASE
from paddle_operator.plan.metadata import GO_FINALIZER
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.volcano_assets import VolcanoPrograms
from testbed.watch_until import WatchedObjects, watch_objects
from tests.install.installed import CRD, NAMESPACE, OPERATOR, kubeconfig_of_account, look_for_kinds, objects
from tests.stories.harness import FULL_JOBS, FULL_PODS, FullObject
from tests.stories.jobs import a_job, a_template, with_template

Right = tuple[str, str, str]  # group, resource, verb

SELDOM: dict[Right, str] = {
    (
        "batch.paddlepaddle.org",
        "paddlejobs/finalizers",
        "update",
    ): "no request, but asked where OwnerReferencesPermissionEnforcement is on",
    ("scheduling.volcano.sh", "podgroups", "get"): "only where somebody makes one of the same name at the same moment",
    ("events.k8s.io", "events", "patch"): "only where the same thing is told again",
}


class RecordingClient(Client):
    """Remembers what it asked for, as RBAC calls it, and what it was refused."""

    def __init__(self, connection: ServerConfig, asked: set[Right], refused: list[str], **others: Any) -> None:
        super().__init__(connection, round_tripper=partial(RecordingRoundTripper, asked, refused), **others)


class RecordingRoundTripper(RoundTripper):
    def __init__(self, asked: set[Right], refused: list[str], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._asked = asked
        self._refused = refused  # told in the end: a pass that fails is only tried again

    @asynccontextmanager
    async def exchange(self, call: Call, read_timeout: float | None) -> AsyncIterator[HTTPResponse]:
        self._asked.add(right_of(call))
        async with super().exchange(call, read_timeout) as response:
            if response.status == 403:
                self._refused.append(call.about)
            yield response


def right_of(call: Call) -> Right:
    parts = call.path.strip("/").split("/")
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    resource, *rest = parts[2:] if parts[0] == "namespaces" else parts
    named = bool(rest)
    target = f"{resource}/{rest[1]}" if len(rest) > 1 else resource
    reading = "watch" if "watch" in call.params else "get" if named else "list"
    deleting = "delete" if named else "deletecollection"
    verbs = {"GET": reading, "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": deleting}
    return group, target, verbs[call.method]


def granted() -> set[Right]:
    roles = [each for (kind, _, _), each in objects(OPERATOR.read_text()).items() if kind == "Role"]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@asynccontextmanager
async def operator(kubeconfig: Path, asked: set[Right], refused: list[str]) -> AsyncIterator[None]:
    connection = load.load(kubeconfig)
    async with RecordingClient(connection, asked, refused) as electing:
        elector = Elector(electing, Key(NAMESPACE, LEASE))
        async with RecordingClient(connection, asked, refused, fence=elector.fence) as client:
            recorder = Recorder(client, reporter="paddle-operator")
            jobs = PaddleJobs(client, recorder, Settings(namespace=NAMESPACE, scheduling="volcano"))
            manager = build_manager(recorder, [jobs], elector=elector)
            running = asyncio.ensure_future(manager.run())
            try:
                yield
            finally:
                manager.stop()
                await running


@pytest.mark.timeout(600)
async def test_role_grants_exactly_the_rights_in_use(
    plane: ControlPlane, volcano_built: VolcanoPrograms, tmp_path: Path
) -> None:
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(OPERATOR))
    groups = next(path for path in volcano_built.definitions if "podgroups" in path.name)
    await plane.kubectl("apply", "-f", str(groups))
    await look_for_kinds(plane)
    asked: set[Right] = set()
    refused: list[str] = []
    async with Client(plane.connection()) as client, HollowNodes(client, count=3) as nodes:
        scope = Scope(NAMESPACE)
        async with (
            watch_objects(client, FULL_JOBS, scope) as jobs,
            operator(await kubeconfig_of_account(plane, tmp_path), asked, refused),
            asyncio.TaskGroup() as lives,
        ):
            cast = Cast(plane, client, nodes, jobs)
            for life in (by_service, of_a_gang, in_the_way, taken_over):
                lives.create_task(life(cast))
    assert refused == []
    assert asked <= granted(), "it would have been refused"
    assert granted() - asked <= SELDOM.keys(), "granted and never used: take it out of config/"


class Cast:
    """Who plays in a life."""

    def __init__(
        self, plane: ControlPlane, client: Client, nodes: HollowNodes, jobs: WatchedObjects[FullObject]
    ) -> None:
        self.plane, self.client, self.nodes, self.jobs = plane, client, nodes, jobs

    async def submit(self, job: dict[str, Any]) -> None:
        job["metadata"]["namespace"] = NAMESPACE
        await self.client.create(FULL_JOBS, job)

    async def runs(self, name: str) -> None:
        await self.jobs.until(name, lambda job: job.phase == "Running")


def on_the_usual_scheduler(job: dict[str, Any]) -> dict[str, Any]:
    template = a_template()
    template["spec"]["schedulerName"] = "default-scheduler"
    return with_template(job, template)


async def by_service(cast: Cast) -> None:
    """Services, servers that are ended, everything cleaned, and in the end the job itself deleted by us."""
    job = a_job("by-service", ps=2, workers=2, intranet="Service", cleanPodPolicy="Always")
    job["spec"]["ttlSecondsAfterFinished"] = 1
    await cast.submit(on_the_usual_scheduler(job))
    await cast.runs("by-service")
    await cast.nodes.exit("by-service-worker-*", 0)
    await cast.jobs.wait_deleted("by-service")


async def of_a_gang(cast: Cast) -> None:
    """A PodGroup made, changed with the job, and removed with its suspension."""
    key = Key(NAMESPACE, "gang")
    await cast.submit(a_job("gang", workers=2))
    for change, state in (
        ({}, "create"),
        ({"worker": {"replicas": 3}}, "jsonpath={.spec.minMember}=3"),
        ({"suspend": True}, "delete"),
    ):
        await cast.client.merge(FULL_JOBS, key, {"spec": change})
        await cast.plane.kubectl("-n", NAMESPACE, "wait", "podgroup/gang", f"--for={state}", "--timeout=120s")


async def in_the_way(cast: Cast) -> None:
    """Somebody else's objects have the names of children: they are looked at, and stay."""
    alien = {"apiVersion": "v1", "metadata": {"name": "blocked-worker-0", "namespace": NAMESPACE}}
    ports = {"ports": [{"port": 80}]}
    for manifest in ({**alien, "kind": "Pod", **a_template()}, {**alien, "kind": "Service", "spec": ports}):
        await cast.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    await cast.submit(on_the_usual_scheduler(a_job("blocked", workers=2, intranet="Service")))
    await cast.jobs.until("blocked", lambda job: "NameConflict" in str(job.status))
    await cast.client.delete(FULL_PODS, Key(NAMESPACE, "blocked-worker-0"))


async def taken_over(cast: Cast) -> None:
    """A finalizer of the Go operator taken off, one pod lost and all of them replaced, then all of it suspended."""
    job = on_the_usual_scheduler(a_job("taken", workers=2, intranet="Service"))
    job["metadata"]["finalizers"] = [GO_FINALIZER]
    await cast.submit(job)
    await cast.runs("taken")
    await cast.client.delete(FULL_PODS, Key(NAMESPACE, "taken-worker-1"))
    await cast.jobs.until("taken", lambda job: job.phase == "Running" and job.status.get("attempt") == 1)
    await cast.client.merge(FULL_JOBS, Key(NAMESPACE, "taken"), {"spec": {"suspend": True}})
    await cast.jobs.until("taken", lambda job: "no pod exists" in str(job.status))
