"""Hundreds of hostile objects at once: each is refused by name or gets a condition, and nobody beside them suffers.

What the CRD refuses is stored behind its back, as before there were rules. The operator starts with all of them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paddle_operator.api.crd import crd
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.controllers.paddlejob import PaddleJobs
from paddle_operator.kube.client import Client
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.metrics import REGISTRY
from paddle_operator.kube.objects import Key, Object, Resource
from paddle_operator.kube.reconciler import build_manager
from testbed.assets import Binaries
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.request import HTTPResponse, send
from testbed.watch_until import WatchedObjects, watch_objects
from tests.conftest import print_line
from tests.stories.harness import FULL_EVENTS, FULL_JOBS, Event, FullObject
from tests.stories.hostile import SEED, STATUSES, Hostile, every
from tests.stories.jobs import make_job
from tests.stories.test_stored_before import ANYTHING, CRDS
from tests.support.service_account import OPERATOR, create_operator_connection

QUOTAS = Resource("api/v1", "resourcequotas", Object)
QUOTA = {"pods": "60", "services": "20"}
AT_ONCE = 12
SERVED_WITHIN_SECONDS = 90.0
TOLD_WITHIN_SECONDS = 180.0
QUIET_SECONDS = 2.0
REST_PASSES_A_SECOND = 10.0
PASSES_EACH = 20
WRITES_EACH = 15
WRONG = make_job("wrong", workers=0)
RULES: Any = crd(PADDLE_JOB)["spec"]["versions"][0]
NO_RULES: Any = RULES | {"schema": {"openAPIV3Schema": ANYTHING}, "subresources": {"status": {}}}


class Crowd:
    """The hostile objects on a control plane of their own, whose CRD loses its rules for a while."""

    def __init__(self, control_plane: ControlPlane, client: Client, namespace: str) -> None:
        self.control_plane = control_plane
        self.client = client
        self.namespace = namespace
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(self, method: str, name: str, body: Any, **params: str) -> HTTPResponse:
        """As kubectl asks: what the schema does not know is refused, too, unless the caller says otherwise."""
        query = "&".join(f"{key}={value}" for key, value in {"fieldValidation": "Strict", **params}.items())
        path = f"/apis/batch.paddlepaddle.org/v1/namespaces/{self.namespace}/paddlejobs{name}?{query}"
        token = self.control_plane.credentials.token_of("admin")
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        async with self._turns:
            return await asyncio.to_thread(
                send,
                method,
                f"{self.control_plane.server}{path}",
                body=body,
                token=token,
                trust=self.control_plane.trust,
                content_type=kind,
            )

    async def create(self, objects: Iterable[Hostile], **params: str) -> dict[str, HTTPResponse]:
        found = list(objects)
        replies = await asyncio.gather(*(self.ask("POST", "", each.manifest, **params) for each in found))
        return {each.name: reply for each, reply in zip(found, replies, strict=True)}

    async def write_status(self, name: str, status: Any, **params: str) -> HTTPResponse:
        return await self.ask("PATCH", f"/{name}/status", {"status": status}, **params)

    async def rule_by(self, version: Any, *, refuses: bool) -> None:
        """Exchange the definition, and wait until the API server goes by it."""
        change = {"spec": {"versions": [version]}}
        await self.client.merge(CRDS, Key("", "paddlejobs.batch.paddlepaddle.org"), change)
        async with asyncio.timeout(SERVED_WITHIN_SECONDS):
            while (await self.ask("POST", "", WRONG, dryRun="All")).status != (422 if refuses else 201):
                await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def lawless_control_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    with ControlPlane.start(control_plane_binaries) as started:
        yield started


@pytest.fixture
async def crowd(lawless_control_plane: ControlPlane) -> AsyncIterator[Crowd]:
    """With rules, and with a quota, since some want 10,000 pods."""
    control_plane = lawless_control_plane
    namespace = await control_plane.create_namespace("hostile")
    async with Client(control_plane.connection()) as client:
        await client.create(CRDS, crd(PADDLE_JOB))
        metadata = {"name": "small", "namespace": namespace}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": QUOTA}}
        await client.create(QUOTAS, quota)
        crowd = Crowd(control_plane, client, namespace)
        await crowd.rule_by(RULES, refuses=True)
        yield crowd


@asynccontextmanager
async def operator(control_plane: ControlPlane) -> AsyncIterator[None]:
    """In all namespaces, as it is installed by default."""
    async with Client(await create_operator_connection(control_plane)) as client:
        recorder = Recorder(client, reporter="paddle-operator")
        jobs = PaddleJobs(client, recorder)
        manager = build_manager(recorder, [jobs])
        running = asyncio.ensure_future(manager.run())
        try:
            yield
        finally:
            manager.stop()
            await running


def passes() -> float:
    results = ("success", "requeue_after", "error")
    name, labels = "controller_runtime_reconcile_total", {"controller": "paddlejob"}
    return sum(REGISTRY.get_sample_value(name, {**labels, "result": each}) or 0 for each in results)


def message_of(reply: HTTPResponse) -> str:
    return str(reply.json()["message"])


def is_told(job: FullObject) -> bool:
    """It has our word about its spec, or it is over by its own."""
    conditions = job.status.get("conditions") if isinstance(job.status, dict) else None
    types = [each.get("type") for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    return "Accepted" in types or (isinstance(job.status, dict) and job.phase in ("Completed", "Failed"))


@pytest.mark.timeout(900)
async def test_hostile_objects_do_not_disturb_a_healthy_job(crowd: Crowd, pytestconfig: pytest.Config) -> None:
    objects = every()
    replies = await crowd.create(objects, dryRun="All")
    accepted, refused = sorted_by_verdict(objects, replies)
    stored = await stored_behind_the_rules(crowd, refused + [each for each in objects if each.status is not None])
    healthy = await crowd.control_plane.create_namespace("healthy")
    before = passes()
    async with (
        HollowNodes(crowd.client, count=2) as nodes,
        watch_objects(crowd.client, FULL_JOBS) as jobs,
        watch_objects(crowd.client, FULL_EVENTS) as events,
        crowd.control_plane.audit.recording() as writes,
        operator(crowd.control_plane),
    ):
        live = [each for each in accepted if each.status is None]
        assert {name: message_of(reply) for name, reply in (await crowd.create(live)).items() if not reply.ok} == {}
        await runs_to_its_end(crowd.client, jobs, nodes, healthy)
        await until_all_are_told(jobs, events, crowd.namespace, len(stored) + len(live))
        await lies_are_refused_or_corrected(crowd, jobs, live[0].name)
        await owns_itself(crowd, live[1].name)
        await comes_to_rest()
    many = len(stored) + len(live)
    made = passes() - before
    requests = len(writes.by(OPERATOR))
    told = f"{len(objects)} hostile objects (seed {SEED}): {len(refused)} refused, {len(stored)} stored all the same"
    print_line(pytestconfig, f"{told}, {len(live)} accepted; {made:.0f} passes, {requests} writes")
    assert made <= PASSES_EACH * many
    assert requests <= WRITES_EACH * many


def sorted_by_verdict(objects: list[Hostile], replies: dict[str, HTTPResponse]) -> tuple[list[Hostile], list[Hostile]]:
    """Those that the CRD accepts and those that it refuses, each with a sentence that names the field."""
    accepted = [each for each in objects if replies[each.name].ok]
    refused = [each for each in objects if not replies[each.name].ok]
    said = {each.name: message_of(replies[each.name]) for each in refused}
    assert {
        each.name: said[each.name] for each in refused if not any(one in said[each.name] for one in each.about)
    } == {}
    assert min(len(accepted), len(refused)) > 100
    return accepted, refused


async def stored_behind_the_rules(crowd: Crowd, objects: list[Hostile]) -> list[Hostile]:
    """Those that an API server stores at all: names and metadata have rules everywhere."""
    await crowd.rule_by(NO_RULES, refuses=False)
    replies = await crowd.create(objects, fieldValidation="Ignore")
    stored = [each for each in objects if replies[each.name].ok]
    lies = [each for each in stored if each.status is not None]
    told = await asyncio.gather(*(crowd.write_status(each.name, each.status) for each in lies))
    assert [(each.name, message_of(reply)) for each, reply in zip(lies, told, strict=True) if not reply.ok] == []
    await crowd.rule_by(RULES, refuses=True)
    assert len(stored) > 0.9 * len(objects)
    return stored


async def runs_to_its_end(client: Client, jobs: WatchedObjects[FullObject], nodes: HollowNodes, namespace: str) -> None:
    job = make_job("healthy", ps=1, workers=2)
    await client.create(FULL_JOBS, job | {"metadata": {"name": "healthy", "namespace": namespace}})
    key = Key(namespace, "healthy")

    def phase() -> str:
        found = jobs.store.get(key)
        return found.phase if found else "not there"

    await jobs.wait_until(lambda: phase() == "Running", timeout_seconds=TOLD_WITHIN_SECONDS, describe=phase)
    await nodes.exit("healthy-worker-*", 0, namespace=namespace)
    await jobs.wait_until(lambda: phase() == "Completed", timeout_seconds=TOLD_WITHIN_SECONDS, describe=phase)


async def until_all_are_told(
    jobs: WatchedObjects[FullObject], events: WatchedObjects[Event], namespace: str, count: int
) -> None:
    """By a condition; where the API server takes no status of what it would not store today, by an event."""

    def untold() -> list[str]:
        by_event = {(each.regarding or {}).get("name") for each in events.store if each.reason == "SpecInvalid"}
        waiting = (job for job in of(jobs, namespace) if not is_told(job) and job.key.name not in by_event)
        return [f"{job.key.name}: {str(job.status)[:300]}" for job in waiting]

    for news in (jobs, events):
        await news.wait_until(
            lambda: not untold(), timeout_seconds=TOLD_WITHIN_SECONDS, describe=lambda: "\n".join(untold())
        )
    assert len(of(jobs, namespace)) == count


def of(jobs: WatchedObjects[FullObject], namespace: str) -> list[FullObject]:
    return [job for job in jobs.store if job.key.namespace == namespace]


async def lies_are_refused_or_corrected(crowd: Crowd, jobs: WatchedObjects[FullObject], name: str) -> None:
    """Written through /status under the rules."""
    for status in STATUSES:
        reply = await crowd.write_status(name, status)
        assert reply.ok or "status" in message_of(reply), message_of(reply)
    await jobs.wait_until(lambda: is_told(next(job for job in of(jobs, crowd.namespace) if job.key.name == name)))


async def owns_itself(crowd: Crowd, name: str) -> None:
    """As its own child it would be looked at whenever it changes; it is none, since it is no pod."""
    job = await crowd.client.get(FULL_JOBS, Key(crowd.namespace, name))
    kind = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob"}
    owner = {**kind, "name": name, "uid": job.uid, "controller": True, "blockOwnerDeletion": True}
    assert (await crowd.ask("PATCH", f"/{name}", {"metadata": {"ownerReferences": [owner]}})).ok


async def comes_to_rest() -> None:
    """Passes become fewer: what is refused is tried again after longer and longer pauses."""
    async with asyncio.timeout(TOLD_WITHIN_SECONDS):
        while True:
            before = passes()
            await asyncio.sleep(QUIET_SECONDS)
            if passes() - before <= REST_PASSES_A_SECOND * QUIET_SECONDS:
                return
