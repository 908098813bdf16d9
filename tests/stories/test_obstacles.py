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

from paddle_operator.kube.client import Scope
from paddle_operator.kube.errors import Forbidden
from paddle_operator.kube.objects import Key, Manifest, Object, Resource
from testbed.followed import followed
from testbed.hollow_script import exits, image_never_pulls, runs, starts
from tests.stories.embedded import embedded_stage
from tests.stories.jobs import a_job, a_template, with_template
from tests.stories.stage import WHOLE_CONFIG_MAPS, WHOLE_JOBS, WHOLE_PODS, WHOLE_SERVICES, ClusterHarness, Whole

QUOTAS = Resource("api/v1", "resourcequotas", Whole)
LIMIT_RANGES = Resource("api/v1", "limitranges", Object)
NAMESPACES = Resource("api/v1", "namespaces", Object, namespaced=False)
WEBHOOKS = Resource("apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", Object, namespaced=False)
ENFORCE = "pod-security.kubernetes.io/enforce"


def quota(**hard: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": hard}}


async def is_enforced(stage: ClusterHarness, made: Manifest) -> None:
    """The quota counts: the API server goes by its status, which the controller manager has to write first."""
    await stage.create(QUOTAS, made)
    async with followed(stage.client, QUOTAS, Scope(stage.namespace)) as quotas:
        await quotas.until("team", lambda found: bool((found.status or {}).get("hard")))


async def is_refused(stage: ClusterHarness, pod: Manifest) -> None:
    """The API server refuses such a pod: what forbids it is known to it in its own time."""
    metadata = {"name": "probe", "namespace": stage.namespace}
    while True:
        try:
            await stage.client.create(
                WHOLE_PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **pod}, dry_run=True
            )
        except Forbidden:
            return


async def hindered(stage: ClusterHarness, reason: str, *words: str, job: str = "mnist") -> Whole:
    """The job says so in its condition and in one event, with these words."""
    told = await stage.told(job, reason)
    seen = await stage.waits(job, reason)
    message = seen.condition("Running")["message"]
    for word in words:
        assert word in message, message
        assert word in told.note, told.note
    assert told.type == "Warning"
    return seen


async def test_a_straight_life_is_told_in_a_few_events_each_once(stage: ClusterHarness) -> None:
    await stage.submit(a_job(ps=1, workers=2))
    await stage.phase("mnist", "Running")
    await stage.exits("mnist-worker-*")
    await stage.cleaned()
    await stage.told("mnist", "Completed")
    told = [(each.type, each.reason, each.note, each.times) for each in await stage.events("mnist")]
    optional = {"WaitingForAddresses", "StartingContainers", "CreatingPods"}
    steady = [each for each in told if each[1] not in optional]
    assert sorted(steady) == [
        ("Normal", "AllPodsRunning", "all pods run", 1),
        (
            "Normal",
            "Completed",
            "all 2 workers have succeeded; the pods are deleted: cleanPodPolicy is OnCompletion",
            1,
        ),
    ]
    assert all(times == 1 and kind == "Normal" for kind, _, _, times in told)
    assert len(told) == len({reason for _, reason, _, _ in told})


async def test_no_node_has_room(stage: ClusterHarness) -> None:
    await stage.submit(with_template(a_job(workers=2), a_template(resources={"limits": {"nvidia.com/gpu": 9}})))
    await hindered(stage, "Unschedulable", "mnist-worker-", "0/4 nodes are available", "Insufficient nvidia.com/gpu")
    await stage.told_once("mnist", "Unschedulable")


async def test_room_is_made(stage: ClusterHarness) -> None:
    await stage.cordon()
    await stage.submit(a_job(workers=2))
    await hindered(stage, "Unschedulable", "0/4 nodes are available", "4 node(s) were unschedulable")
    await stage.kubectl("uncordon", *(str(node) for node in stage.nodes))
    await stage.phase("mnist", "Running")


async def test_the_image_cannot_be_pulled(stage: ClusterHarness) -> None:
    stage.nodes.script("mnist-worker-1", image_never_pulls(), namespace=stage.namespace)
    await stage.submit(a_job(workers=2))
    await hindered(stage, "ImagePullFailed", "mnist-worker-1", "demo-wide-and-deep:v1")
    stage.nodes.script("mnist-worker-1", starts(after=0.0), namespace=stage.namespace)
    await stage.phase("mnist", "Running")
    await stage.told_once("mnist", "ImagePullFailed")


@pytest.fixture
def kubelet_speed() -> float:
    """So that nobody waits for the back-off of a crash loop."""
    return 5.0


async def test_a_container_keeps_crashing(stage: ClusterHarness) -> None:
    template = a_template()
    template["spec"]["restartPolicy"] = "OnFailure"
    stage.nodes.script("mnist-worker-0", exits(1), namespace=stage.namespace)
    await stage.submit(with_template(a_job(workers=2), template))
    await hindered(
        stage, "CrashLoopBackOff", "mnist-worker-0 has crashed", "back-off", "restarting failed container=paddle"
    )
    stage.nodes.script("mnist-worker-0", runs(), namespace=stage.namespace)
    job = await stage.phase("mnist", "Running")
    assert job.status.get("attempt", 0) == 0  # kubelet did it, as the template's restartPolicy wants


async def test_the_quota_is_used_up(stage: ClusterHarness) -> None:
    await is_enforced(stage, quota(pods="1"))
    await stage.submit(a_job(ps=1, workers=2))
    await hindered(stage, "QuotaExceeded", "exceeded quota: team", "limited: pods=1")
    await stage.client.merge(QUOTAS, Key(stage.namespace, "team"), {"spec": {"hard": {"pods": "3"}}})
    await stage.phase("mnist", "Running")
    told = [each for each in await stage.events("mnist") if each.reason == "QuotaExceeded"]
    assert len(told) == 1, [each.note for each in told]


async def test_the_quota_for_config_maps_is_used_up(stage: ClusterHarness) -> None:
    """The barrier itself: the pods are there, and no container starts."""
    await is_enforced(stage, quota(configmaps="0"))
    await stage.submit(a_job(workers=2))
    await hindered(stage, "QuotaExceeded", "configmaps mnist", "exceeded quota: team")
    assert all(pod.phase == "Pending" for pod in (await stage.pods()).values())
    await stage.client.merge(QUOTAS, Key(stage.namespace, "team"), {"spec": {"hard": {"configmaps": "2"}}})
    await stage.phase("mnist", "Running")


async def test_the_quota_for_services_is_used_up(stage: ClusterHarness) -> None:
    """No container starts before every name resolves."""
    await is_enforced(stage, quota(services="1"))
    await stage.submit(a_job(workers=2, intranet="Service"))
    await hindered(stage, "QuotaExceeded", "exceeded quota: team", "limited: services=1")
    assert await stage.barrier("mnist") is None
    await stage.client.merge(QUOTAS, Key(stage.namespace, "team"), {"spec": {"hard": {"services": "2"}}})
    await stage.phase("mnist", "Running")


async def test_the_namespace_wants_restricted_pods(stage: ClusterHarness) -> None:
    await stage.client.merge(NAMESPACES, Key("", stage.namespace), {"metadata": {"labels": {ENFORCE: "restricted"}}})
    await is_refused(stage, a_template())
    await stage.submit(a_job(workers=1))
    await hindered(stage, "Forbidden", 'violates PodSecurity "restricted:latest"', "allowPrivilegeEscalation != false")
    assert not await stage.pods()
    await stage.client.merge(NAMESPACES, Key("", stage.namespace), {"metadata": {"labels": {ENFORCE: None}}})
    await stage.phase("mnist", "Running")


async def test_a_limit_range_forbids_the_pods(stage: ClusterHarness) -> None:
    limits = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    await stage.create(
        LIMIT_RANGES, {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": limits}
    )
    template = a_template(resources={"limits": {"cpu": "2"}})
    await is_refused(stage, template)
    await stage.submit(with_template(a_job(workers=1), template))
    await hindered(stage, "Forbidden", "maximum cpu usage per Container is 1, but limit is 2")
    await stage.delete(LIMIT_RANGES, "small")
    await stage.phase("mnist", "Running")
    await stage.told_once("mnist", "Forbidden")


async def test_a_service_account_is_missing(stage: ClusterHarness) -> None:
    template = a_template()
    template["spec"]["serviceAccountName"] = "trainer"
    await stage.submit(with_template(a_job(workers=1), template))
    await hindered(stage, "Forbidden", 'serviceaccount "trainer" not found')
    await stage.kubectl("create", "serviceaccount", "trainer")
    await stage.phase("mnist", "Running")


async def test_the_template_makes_no_valid_pod(stage: ClusterHarness) -> None:
    """What a schema cannot see, the API server says when the pod is made; a mended template is used at once."""
    template = a_template(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    await stage.submit(with_template(a_job(workers=1), template))
    await hindered(stage, "Invalid", 'spec.containers[0].volumeMounts[0].name: Not found: "data"')
    await stage.change("mnist", {"worker": {"template": a_template()}})
    await stage.phase("mnist", "Running")


FOREIGN = {
    "pods": (WHOLE_PODS, "mnist-worker-1", {"kind": "Pod", **a_template()}),
    "services": (WHOLE_SERVICES, "mnist-worker-1", {"kind": "Service", "spec": {"ports": [{"port": 80}]}}),
    "configmaps": (WHOLE_CONFIG_MAPS, "mnist", {"kind": "ConfigMap", "data": {"PADDLE_TRAINERS_NUM": "1"}}),
}


@pytest.mark.parametrize("kind", FOREIGN)
async def test_somebody_elses_object_has_the_name_of_a_child(stage: ClusterHarness, kind: str) -> None:
    """It is left alone, no container starts with what it says, and when it goes the job goes on."""
    resource, name, manifest = FOREIGN[kind]
    foreign = await stage.create(resource, {"apiVersion": "v1", "metadata": {"name": name}, **manifest})
    await stage.submit(a_job(workers=2, intranet="Service"))
    await hindered(stage, "NameConflict", f"{kind} {name}", "delete it, or rename the job")
    ours = [pod for pod in (await stage.pods()).values() if pod.metadata.owner_references]
    assert all(pod.phase == "Pending" for pod in ours)
    assert (await stage.client.get(resource, Key(stage.namespace, name))).uid == foreign.uid
    await stage.delete(resource, name)
    await stage.phase("mnist", "Running")
    await stage.told_once("mnist", "NameConflict")
    assert (await stage.environments("mnist"))["mnist-worker-0"]["PADDLE_TRAINERS_NUM"] == "2"


async def test_a_volume_that_never_comes_leaves_the_job_waiting_and_says_for_whom(stage: ClusterHarness) -> None:
    template = a_template()
    template["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "none"}}]
    await stage.submit(with_template(a_job(workers=1), template))
    await hindered(stage, "Unschedulable", 'persistentvolumeclaim "none" not found')


async def test_a_secret_that_comes_late(stage: ClusterHarness) -> None:
    template = a_template(envFrom=[{"secretRef": {"name": "token"}}])
    await stage.submit(with_template(a_job(workers=1), template))
    await hindered(stage, "ContainerConfigError", 'mnist-worker-0: secret "token" not found')
    await stage.kubectl("create", "secret", "generic", "token", "--from-literal=TOKEN=x")
    await stage.phase("mnist", "Running")


@pytest.mark.parametrize("end", ["completed", "deleted"])
async def test_who_waits_for_ports_gets_those_that_another_job_gives_back(tmp_path: Path, end: str) -> None:
    """Nothing happens to the one that waits: it is the other job's end that it has to hear of."""
    one_block = range(35000, 35020)
    async with embedded_stage(tmp_path) as stage, stage.operator(port_range=one_block):
        await stage.submit(a_job("first", workers=1, intranet="Host"))
        await stage.phase("first", "Running")
        await stage.submit(a_job("second", workers=1, intranet="Host"))
        await hindered(stage, "HostPortsExhausted", "--port-range", job="second")
        if end == "completed":
            await stage.exits("first-worker-0")
        else:
            await stage.delete(WHOLE_JOBS, "first")
        job = await stage.phase("second", "Running")
        assert job.status["hostPort"] == 35000


@asynccontextmanager
async def pods_denied(stage: ClusterHarness, reason: str) -> AsyncIterator[None]:
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
    name = f"{stage.namespace}.example.com"
    webhook = {
        "name": name,
        "clientConfig": {
            "url": f"https://{host}:{port}/",
            "caBundle": b64encode(authority.cert_pem.bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    await stage.client.create(WEBHOOKS, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        async with asyncio.timeout(60):
            while not await denied(stage):
                await asyncio.sleep(0.1)  # the API server takes its webhooks from a cache
        yield
    finally:
        await stage.client.delete(WEBHOOKS, Key("", name))
        await runner.cleanup()


async def denied(stage: ClusterHarness) -> bool:
    pod = {"metadata": {"name": "any", "namespace": stage.namespace}, **a_template()}
    try:
        await stage.client.create(WHOLE_PODS, pod, dry_run=True)
    except Forbidden:
        return True
    return False


async def test_a_webhook_that_denies_pods_is_quoted_and_its_sentence_is_no_reason(stage: ClusterHarness) -> None:
    """The reason is a label of a metric, and an event with one of more than 128 characters is not taken."""
    sentence = f"pod 4711 has no owner whom the policy knows; {'see the handbook; ' * 8}"
    async with pods_denied(stage, sentence):
        await stage.submit(a_job(workers=2))
        await hindered(stage, "Forbidden", "denied the request", "whom the policy knows")
