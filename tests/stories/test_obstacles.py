"""Whatever stands in a job's way is said once, in its condition and in an event, and in the API server's own words.

When the obstacle goes, the job goes on by itself.
"""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from paddle_operator.controllers.host_ports import PortBlocks
from paddle_operator.kube.client import Scope
from paddle_operator.kube.errors import Forbidden
from paddle_operator.kube.objects import Key, Manifest, Object, Resource
from testbed.hollow_script import exits, image_never_pulls, runs, starts
from testbed.watch_until import watch_objects
from tests.stories.embedded import open_embedded_harness
from tests.stories.harness import (
    FULL_CONFIG_MAPS,
    FULL_JOBS,
    FULL_PODS,
    FULL_SERVICES,
    ClusterHarness,
    FullObject,
    on_both_planes,
    on_embedded_plane,
)
from tests.stories.jobs import make_job, make_template, with_template

QUOTAS = Resource("api/v1", "resourcequotas", FullObject)
LIMIT_RANGES = Resource("api/v1", "limitranges", Object)
NAMESPACES = Resource("api/v1", "namespaces", Object, namespaced=False)
WEBHOOKS = Resource("apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", Object, namespaced=False)
ENFORCE = "pod-security.kubernetes.io/enforce"


def quota(**hard: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": hard}}


async def is_enforced(harness: ClusterHarness, made: Manifest) -> None:
    """The quota counts: the API server goes by its status, which the controller manager has to write first."""
    await harness.create(QUOTAS, made)
    async with watch_objects(harness.client, QUOTAS, Scope(harness.namespace)) as quotas:
        await quotas.until("team", lambda found: bool((found.status or {}).get("hard")))


async def is_refused(harness: ClusterHarness, pod: Manifest) -> None:
    """The API server refuses such a pod: what forbids it is known to it in its own time."""
    metadata = {"name": "probe", "namespace": harness.namespace}
    while True:
        try:
            await harness.client.create(
                FULL_PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **pod}, dry_run=True
            )
        except Forbidden:
            return


async def hindered(harness: ClusterHarness, reason: str, *words: str, job: str = "mnist") -> FullObject:
    """The job says so in its condition and in one event, with these words."""
    told = await harness.wait_event(job, reason)
    seen = await harness.wait_not_running(job, reason)
    message = seen.condition("Running")["message"]
    for word in words:
        assert word in message, message
        assert word in told.note, told.note
    assert told.type == "Warning"
    return seen


@on_embedded_plane
async def test_a_straight_life_is_told_in_a_few_events_each_once(harness: ClusterHarness) -> None:
    await harness.submit(make_job(ps=1, workers=2))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-*")
    await harness.wait_cleaned_up()
    await harness.wait_event("mnist", "Completed")
    told = [(each.type, each.reason, each.note, each.times) for each in await harness.list_events("mnist")]
    optional = {"WaitingForAddresses", "StartingContainers", "CreatingPods"}
    steady = [each for each in told if each[1] not in optional]
    assert sorted(steady) == [
        ("Normal", "AllPodsRunning", "all pods run", 1),
        (
            "Normal",
            "Completed",
            "all 2 workers succeeded; deleting the pods: spec.cleanPodPolicy is OnCompletion",
            1,
        ),
    ]
    assert all(times == 1 and kind == "Normal" for kind, _, _, times in told)
    assert len(told) == len({reason for _, reason, _, _ in told})


async def test_no_node_has_room(harness: ClusterHarness) -> None:
    await harness.submit(with_template(make_job(workers=2), make_template(resources={"limits": {"nvidia.com/gpu": 9}})))
    await hindered(harness, "Unschedulable", "mnist-worker-", "0/4 nodes are available", "Insufficient nvidia.com/gpu")
    await harness.wait_single_event("mnist", "Unschedulable")


async def test_room_is_made(harness: ClusterHarness) -> None:
    await harness.cordon()
    await harness.submit(make_job(workers=2))
    await hindered(harness, "Unschedulable", "0/4 nodes are available", "4 node(s) were unschedulable")
    await harness.kubectl("uncordon", *(str(node) for node in harness.nodes))
    await harness.wait_phase("mnist", "Running")


@on_embedded_plane
async def test_the_image_cannot_be_pulled(harness: ClusterHarness) -> None:
    harness.nodes.script("mnist-worker-1", image_never_pulls(), namespace=harness.namespace)
    await harness.submit(make_job(workers=2))
    await hindered(harness, "ImagePullFailed", "mnist-worker-1", "demo-wide-and-deep:v1")
    harness.nodes.script("mnist-worker-1", starts(after=0.0), namespace=harness.namespace)
    await harness.wait_phase("mnist", "Running")
    await harness.wait_single_event("mnist", "ImagePullFailed")


@pytest.fixture
def kubelet_speed() -> float:
    """So that nobody waits for the back-off of a crash loop."""
    return 5.0


@on_embedded_plane
async def test_a_container_keeps_crashing(harness: ClusterHarness) -> None:
    template = make_template()
    template["spec"]["restartPolicy"] = "OnFailure"
    harness.nodes.script("mnist-worker-0", exits(1), namespace=harness.namespace)
    await harness.submit(with_template(make_job(workers=2), template))
    await hindered(
        harness, "CrashLoopBackOff", "mnist-worker-0 has crashed", "back-off", "restarting failed container=paddle"
    )
    harness.nodes.script("mnist-worker-0", runs(), namespace=harness.namespace)
    job = await harness.wait_phase("mnist", "Running")
    assert job.status.get("attempt", 0) == 0  # kubelet did it, as the template's restartPolicy wants


async def test_the_quota_is_used_up(harness: ClusterHarness) -> None:
    await is_enforced(harness, quota(pods="1"))
    await harness.submit(make_job(ps=1, workers=2))
    await hindered(harness, "QuotaExceeded", "exceeded quota: team", "limited: pods=1")
    await harness.client.merge(QUOTAS, Key(harness.namespace, "team"), {"spec": {"hard": {"pods": "3"}}})
    await harness.wait_phase("mnist", "Running")
    told = [each for each in await harness.list_events("mnist") if each.reason == "QuotaExceeded"]
    assert len(told) == 1, [each.note for each in told]


async def test_the_quota_for_config_maps_is_used_up(harness: ClusterHarness) -> None:
    """The barrier itself: the pods are there, and no container starts."""
    await is_enforced(harness, quota(configmaps="0"))
    await harness.submit(make_job(workers=2))
    await hindered(harness, "QuotaExceeded", "configmaps mnist", "exceeded quota: team")
    assert all(pod.phase == "Pending" for pod in (await harness.list_pods()).values())
    await harness.client.merge(QUOTAS, Key(harness.namespace, "team"), {"spec": {"hard": {"configmaps": "2"}}})
    await harness.wait_phase("mnist", "Running")


async def test_the_quota_for_services_is_used_up(harness: ClusterHarness) -> None:
    """No container starts before every name resolves."""
    await is_enforced(harness, quota(services="1"))
    await harness.submit(make_job(workers=2, intranet="Service"))
    await hindered(harness, "QuotaExceeded", "exceeded quota: team", "limited: services=1")
    assert await harness.get_barrier("mnist") is None
    await harness.client.merge(QUOTAS, Key(harness.namespace, "team"), {"spec": {"hard": {"services": "2"}}})
    await harness.wait_phase("mnist", "Running")


async def test_the_namespace_wants_restricted_pods(harness: ClusterHarness) -> None:
    await harness.client.merge(
        NAMESPACES, Key("", harness.namespace), {"metadata": {"labels": {ENFORCE: "restricted"}}}
    )
    await is_refused(harness, make_template())
    await harness.submit(make_job(workers=1))
    await hindered(
        harness, "Forbidden", 'violates PodSecurity "restricted:latest"', "allowPrivilegeEscalation != false"
    )
    assert not await harness.list_pods()
    await harness.client.merge(NAMESPACES, Key("", harness.namespace), {"metadata": {"labels": {ENFORCE: None}}})
    await harness.wait_phase("mnist", "Running")


async def test_a_limit_range_forbids_the_pods(harness: ClusterHarness) -> None:
    limits = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    await harness.create(
        LIMIT_RANGES, {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": limits}
    )
    template = make_template(resources={"limits": {"cpu": "2"}})
    await is_refused(harness, template)
    await harness.submit(with_template(make_job(workers=1), template))
    await hindered(harness, "Forbidden", "maximum cpu usage per Container is 1, but limit is 2")
    await harness.delete(LIMIT_RANGES, "small")
    await harness.wait_phase("mnist", "Running")
    await harness.wait_single_event("mnist", "Forbidden")


async def test_a_service_account_is_missing(harness: ClusterHarness) -> None:
    template = make_template()
    template["spec"]["serviceAccountName"] = "trainer"
    await harness.submit(with_template(make_job(workers=1), template))
    await hindered(harness, "Forbidden", 'serviceaccount "trainer" not found')
    await harness.kubectl("create", "serviceaccount", "trainer")
    await harness.wait_phase("mnist", "Running")


@on_both_planes
async def test_the_template_makes_no_valid_pod(harness: ClusterHarness) -> None:
    """What a schema cannot see, the API server says when the pod is made; a mended template is used at once."""
    template = make_template(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    await harness.submit(with_template(make_job(workers=1), template))
    await hindered(harness, "Invalid", 'spec.containers[0].volumeMounts[0].name: Not found: "data"')
    await harness.patch_spec("mnist", {"worker": {"template": make_template()}})
    await harness.wait_phase("mnist", "Running")


FOREIGN = {
    "pods": (FULL_PODS, "mnist-worker-1", {"kind": "Pod", **make_template()}),
    "services": (FULL_SERVICES, "mnist-worker-1", {"kind": "Service", "spec": {"ports": [{"port": 80}]}}),
    "configmaps": (FULL_CONFIG_MAPS, "mnist", {"kind": "ConfigMap", "data": {"PADDLE_TRAINERS_NUM": "1"}}),
}


@on_embedded_plane
@pytest.mark.parametrize("kind", FOREIGN)
async def test_somebody_elses_object_has_the_name_of_a_child(harness: ClusterHarness, kind: str) -> None:
    """It is left alone, no container starts with what it says, and when it goes the job goes on."""
    resource, name, manifest = FOREIGN[kind]
    foreign = await harness.create(resource, {"apiVersion": "v1", "metadata": {"name": name}, **manifest})
    await harness.submit(make_job(workers=2, intranet="Service"))
    await hindered(harness, "NameConflict", f"{kind} {name}", "delete it, or rename the PaddleJob")
    ours = [pod for pod in (await harness.list_pods()).values() if pod.metadata.owner_references]
    assert all(pod.phase == "Pending" for pod in ours)
    assert (await harness.client.get(resource, Key(harness.namespace, name))).uid == foreign.uid
    await harness.delete(resource, name)
    await harness.wait_phase("mnist", "Running")
    await harness.wait_single_event("mnist", "NameConflict")
    assert (await harness.get_environments("mnist"))["mnist-worker-0"]["PADDLE_TRAINERS_NUM"] == "2"


async def test_missing_volume_is_named_while_the_job_waits(harness: ClusterHarness) -> None:
    template = make_template()
    template["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "none"}}]
    await harness.submit(with_template(make_job(workers=1), template))
    await hindered(harness, "Unschedulable", 'persistentvolumeclaim "none" not found')


async def test_a_secret_that_comes_late(harness: ClusterHarness) -> None:
    template = make_template(envFrom=[{"secretRef": {"name": "token"}}])
    await harness.submit(with_template(make_job(workers=1), template))
    await hindered(harness, "ContainerConfigError", 'mnist-worker-0: secret "token" not found')
    await harness.kubectl("create", "secret", "generic", "token", "--from-literal=TOKEN=x")
    await harness.wait_phase("mnist", "Running")


@pytest.mark.parametrize("end", ["completed", "deleted"])
async def test_waiting_job_gets_released_host_ports(tmp_path: Path, end: str) -> None:
    """Nothing happens to the one that waits: it is the other job's end that it has to hear of."""
    one_block = range(35000, 35020)
    async with open_embedded_harness(tmp_path) as harness, harness.run_operator(ports=PortBlocks.of(one_block)):
        await harness.submit(make_job("first", workers=1, intranet="Host"))
        await harness.wait_phase("first", "Running")
        await harness.submit(make_job("second", workers=1, intranet="Host"))
        await hindered(harness, "HostPortsExhausted", "--port-range", job="second")
        if end == "completed":
            await harness.exit_pods("first-worker-0")
        else:
            await harness.delete(FULL_JOBS, "first")
        job = await harness.wait_phase("second", "Running")
        assert job.status["hostPort"] == 35000


@asynccontextmanager
async def pods_denied(harness: ClusterHarness, reason: str) -> AsyncIterator[None]:
    """By a webhook that gives its whole sentence as the reason, as those made with controller-runtime long did."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def deny(request: web.Request) -> web.Response:
        uid = (await request.json())["request"]["uid"]
        verdict = {"uid": uid, "allowed": False, "status": {"code": 403, "reason": reason}}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": verdict})

    app = web.Application()
    app.router.add_post("/", deny)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    ((host, port),) = runner.addresses
    name = f"{harness.namespace}.example.com"
    webhook = {
        "name": name,
        "clientConfig": {
            "url": f"https://{host}:{port}/",
            "caBundle": b64encode(authority.cert_pem.bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": harness.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    await harness.client.create(WEBHOOKS, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        async with asyncio.timeout(60):
            while not await denied(harness):
                await asyncio.sleep(0.1)  # the API server takes its webhooks from a cache
        yield
    finally:
        await harness.client.delete(WEBHOOKS, Key("", name))
        await runner.cleanup()


async def denied(harness: ClusterHarness) -> bool:
    pod = {"metadata": {"name": "any", "namespace": harness.namespace}, **make_template()}
    try:
        await harness.client.create(FULL_PODS, pod, dry_run=True)
    except Forbidden:
        return True
    return False


async def test_denial_of_a_webhook_is_quoted_in_the_message(harness: ClusterHarness) -> None:
    """The reason is a label of a metric, and an event with one of more than 128 characters is not taken."""
    sentence = f"pod 4711 has no owner whom the policy knows; {'see the handbook; ' * 8}"
    async with pods_denied(harness, sentence):
        await harness.submit(make_job(workers=2))
        await hindered(harness, "Forbidden", "denied the request", "whom the policy knows")
