"""The operator runs with its ServiceAccount's permissions: they suffice, and none is unused."""

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
from paddle_operator.manager import LEASE_NAME
from paddle_operator.plan.metadata import GO_FINALIZER
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.volcano_assets import VolcanoPrograms
from testbed.watch_until import WatchedObjects, watch_objects
from tests.install.installation import (
    CRD,
    NAMESPACE,
    OPERATOR,
    parse_objects,
    restart_controller_manager,
    service_account_kubeconfig,
)
from tests.stories.harness import FULL_JOBS, FULL_PODS, FullObject
from tests.stories.jobs import make_job, make_template, with_template

Permission = tuple[str, str, str]  # API group, resource, verb

RARELY_USED: dict[Permission, str] = {
    (
        "batch.paddlepaddle.org",
        "paddlejobs/finalizers",
        "update",
    ): "not a request; checked where the admission plugin OwnerReferencesPermissionEnforcement is on",
    (
        "scheduling.volcano.sh",
        "podgroups",
        "get",
    ): "only if another client creates one of the same name at the same moment",
    ("events.k8s.io", "events", "patch"): "only if the same event is emitted again",
}


class RecordingClient(Client):
    """Records the permissions that its requests need, and the requests that are forbidden."""

    def __init__(
        self, connection: ServerConfig, requested: set[Permission], forbidden: list[str], **others: Any
    ) -> None:
        super().__init__(connection, round_tripper=partial(RecordingRoundTripper, requested, forbidden), **others)


class RecordingRoundTripper(RoundTripper):
    def __init__(self, requested: set[Permission], forbidden: list[str], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._requested = requested
        self._forbidden = forbidden  # asserted at the end: a failed reconcile is retried silently

    @asynccontextmanager
    async def exchange(self, call: Call, read_timeout: float | None) -> AsyncIterator[HTTPResponse]:
        self._requested.add(permission_of(call))
        async with super().exchange(call, read_timeout) as response:
            if response.status == 403:
                self._forbidden.append(call.about)
            yield response


def permission_of(call: Call) -> Permission:
    parts = call.path.strip("/").split("/")
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    resource, *subpath = parts[2:] if parts[0] == "namespaces" else parts
    has_name = bool(subpath)
    target = f"{resource}/{subpath[1]}" if len(subpath) > 1 else resource
    read_verb = "watch" if "watch" in call.params else "get" if has_name else "list"
    delete_verb = "delete" if has_name else "deletecollection"
    verbs = {"GET": read_verb, "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": delete_verb}
    return group, target, verbs[call.method]


def granted_permissions() -> set[Permission]:
    roles = [each for (kind, _, _), each in parse_objects(OPERATOR.read_text()).items() if kind == "Role"]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@asynccontextmanager
async def run_operator(kubeconfig: Path, requested: set[Permission], forbidden: list[str]) -> AsyncIterator[None]:
    connection = load.load(kubeconfig)
    async with RecordingClient(connection, requested, forbidden) as lease_client:
        elector = Elector(lease_client, Key(NAMESPACE, LEASE_NAME))
        async with RecordingClient(connection, requested, forbidden, fence=elector.fence) as client:
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
    plane: ControlPlane, volcano_build: VolcanoPrograms, tmp_path: Path
) -> None:
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(OPERATOR))
    groups = next(path for path in volcano_build.definitions if "podgroups" in path.name)
    await plane.kubectl("apply", "-f", str(groups))
    await restart_controller_manager(plane)
    requested: set[Permission] = set()
    forbidden: list[str] = []
    async with Client(plane.connection()) as client, HollowNodes(client, count=3) as nodes:
        scope = Scope(NAMESPACE)
        async with (
            watch_objects(client, FULL_JOBS, scope) as jobs,
            run_operator(await service_account_kubeconfig(plane, tmp_path), requested, forbidden),
            asyncio.TaskGroup() as group,
        ):
            context = ScenarioContext(plane, client, nodes, jobs)
            for scenario in (run_service_job, run_gang_job, run_job_with_name_conflicts, take_over_go_job):
                group.create_task(scenario(context))
    assert forbidden == []
    assert requested <= granted_permissions(), "these requests would be forbidden"
    assert granted_permissions() - requested <= RARELY_USED.keys(), "granted but never used: remove them from config/"


class ScenarioContext:
    """The cluster and clients that a scenario acts on."""

    def __init__(
        self, plane: ControlPlane, client: Client, nodes: HollowNodes, jobs: WatchedObjects[FullObject]
    ) -> None:
        self.plane, self.client, self.nodes, self.jobs = plane, client, nodes, jobs

    async def submit(self, job: dict[str, Any]) -> None:
        job["metadata"]["namespace"] = NAMESPACE
        await self.client.create(FULL_JOBS, job)

    async def wait_running(self, name: str) -> None:
        await self.jobs.until(name, lambda job: job.phase == "Running")


def with_default_scheduler(job: dict[str, Any]) -> dict[str, Any]:
    template = make_template()
    template["spec"]["schedulerName"] = "default-scheduler"
    return with_template(job, template)


async def run_service_job(context: ScenarioContext) -> None:
    """Services are created, servers stopped, children cleaned up, and the job is deleted after its TTL."""
    job = make_job("by-service", ps=2, workers=2, intranet="Service", cleanPodPolicy="Always")
    job["spec"]["ttlSecondsAfterFinished"] = 1
    await context.submit(with_default_scheduler(job))
    await context.wait_running("by-service")
    await context.nodes.exit("by-service-worker-*", 0)
    await context.jobs.wait_deleted("by-service")


async def run_gang_job(context: ScenarioContext) -> None:
    """A PodGroup is created, follows the job's size, and is deleted at suspension."""
    key = Key(NAMESPACE, "gang")
    await context.submit(make_job("gang", workers=2))
    for change, state in (
        ({}, "create"),
        ({"worker": {"replicas": 3}}, "jsonpath={.spec.minMember}=3"),
        ({"suspend": True}, "delete"),
    ):
        await context.client.merge(FULL_JOBS, key, {"spec": change})
        await context.plane.kubectl("-n", NAMESPACE, "wait", "podgroup/gang", f"--for={state}", "--timeout=120s")


async def run_job_with_name_conflicts(context: ScenarioContext) -> None:
    """Another owner's objects have the names of children: they are read and stay."""
    foreign = {"apiVersion": "v1", "metadata": {"name": "blocked-worker-0", "namespace": NAMESPACE}}
    ports = {"ports": [{"port": 80}]}
    for manifest in ({**foreign, "kind": "Pod", **make_template()}, {**foreign, "kind": "Service", "spec": ports}):
        await context.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    await context.submit(with_default_scheduler(make_job("blocked", workers=2, intranet="Service")))
    await context.jobs.until("blocked", lambda job: "NameConflict" in str(job.status))
    await context.client.delete(FULL_PODS, Key(NAMESPACE, "blocked-worker-0"))


async def take_over_go_job(context: ScenarioContext) -> None:
    """The Go operator's finalizer is removed, a deleted pod makes all restart, and the job is suspended."""
    job = with_default_scheduler(make_job("taken", workers=2, intranet="Service"))
    job["metadata"]["finalizers"] = [GO_FINALIZER]
    await context.submit(job)
    await context.wait_running("taken")
    await context.client.delete(FULL_PODS, Key(NAMESPACE, "taken-worker-1"))
    await context.jobs.until("taken", lambda job: job.phase == "Running" and job.status.get("attempt") == 1)
    await context.client.merge(FULL_JOBS, Key(NAMESPACE, "taken"), {"spec": {"suspend": True}})
    await context.jobs.until("taken", lambda job: "no pod exists" in str(job.status))
