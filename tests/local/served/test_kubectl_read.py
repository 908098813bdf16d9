"""Reading with a stock kubectl: get in every output, describe, explain, api-resources."""

import json
import re

import pytest

from tests.local.served.objects import ROOT, VOLUME_AND_CLAIM, in_namespace, make_job, make_object, make_pod
from tests.local.served.servers import MERGE, KubectlServer, Manifest

LABELLED = make_pod("labelled") | {"metadata": {"name": "labelled", "labels": {"app": "a", "tier": "b"}}}
SERVICE = make_object(
    "Service", "service", spec={"clusterIP": "None", "selector": {"app": "a"}, "ports": [{"port": 80}]}
)
CONFIG = make_object("ConfigMap", "config", data={"a": "b"})
AGES = re.compile(r"\b\d+m?\d*s\b")


@pytest.fixture
async def both(candidate: KubectlServer, real: KubectlServer) -> tuple[KubectlServer, KubectlServer]:
    """The local and the real server with the same objects."""
    for server in (candidate, real):
        for manifest in (LABELLED, SERVICE, CONFIG, make_job()):
            await server.create_and_get(manifest)
        await server.send("PATCH", f"{server.path(LABELLED, name='labelled')}/status", RUNNING, media=MERGE)
    return candidate, real


RUNNING: Manifest = {
    "status": {
        "phase": "Running",
        "podIP": "127.16.1.1",
        "podIPs": [{"ip": "127.16.1.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "image": "i",
                "imageID": "",
                "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
            }
        ],
    }
}


async def run_on_both(both: tuple[KubectlServer, KubectlServer], *arguments: str) -> list[str]:
    """kubectl's output from each server, with ages and spaces normalized."""
    texts = [await server.kubectl(*arguments) for server in both]
    return [re.sub(r" +", " ", AGES.sub("<age>", text)) for text in texts]


COMPARED_COMMANDS = [
    ["get", "pods"],
    ["get", "pods", "-o", "wide"],
    ["get", "pods", "--show-labels"],
    ["get", "pods", "-L", "tier"],
    ["get", "pods", "-l", "app=a"],
    ["get", "pods", "-l", "app in (a),tier!=c"],
    ["get", "pods", "-l", "app=missing"],
    ["get", "pods", "--field-selector", "status.phase=Running"],
    ["get", "pods", "--no-headers"],
    ["get", "pods,services"],
    ["get", "pod/labelled", "service/service"],
    ["get", "all"],
    ["get", "all", "-o", "name"],
    ["get", "po,svc,pdj", "-o", "name"],
    ["get", "pdj"],
    ["get", "paddlejobs.batch.paddlepaddle.org", "job", "-o", "wide"],
    ["get", "pods", "labelled", "-o", "jsonpath={.spec.containers[*].image}"],
    ["get", "pods", "-o", "custom-columns=N:.metadata.name,P:.status.phase"],
    ["get", "pods", "-o", "go-template={{range .items}}{{.metadata.name}}{{end}}"],
    ["get", "pods", "--sort-by=.metadata.name", "-o", "name"],
    ["get", "configmaps", "config", "-o", "jsonpath={.data}"],
    ["get", "leases"],
    ["get", "pods", "--chunk-size=1"],
    ["explain", "pods.spec.containers"],
    ["explain", "pod.spec.containers.resources.limits"],
    ["explain", "services"],
    ["explain", "pdj"],
    ["explain", "pdj.spec.worker"],
    ["explain", "pdj.spec.cleanPodPolicy"],
    ["explain", "pdj.spec", "--recursive"],
    ["explain", "leases.spec"],
    ["explain", "events", "--api-version=events.k8s.io/v1"],
]


@pytest.mark.parametrize("arguments", COMPARED_COMMANDS, ids=" ".join)
async def test_output_is_the_same_as_from_a_cluster(
    both: tuple[KubectlServer, KubectlServer], arguments: list[str]
) -> None:
    ours, theirs = await run_on_both(both, *arguments)
    assert ours == theirs


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_output_of_get_can_be_replaced(embedded: KubectlServer, output: str) -> None:
    for manifest in (LABELLED, CONFIG, make_job()):
        await embedded.create_and_get(manifest)
    text = await embedded.kubectl("get", "pods,configmaps,pdj", "-o", output)
    process = await embedded.kubectl("replace", "--filename=-", stdin=text)
    assert process.splitlines() == [
        "pod/labelled replaced",
        "configmap/config replaced",
        "paddlejob.batch.paddlepaddle.org/job replaced",
    ]


async def test_get_all_namespaces(embedded: KubectlServer) -> None:
    await embedded.create_and_get(LABELLED)
    header, row = (await embedded.kubectl("get", "pods", "--all-namespaces")).splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert row.split()[:2] == ["default", "labelled"]


async def test_get_of_nothing(embedded: KubectlServer) -> None:
    assert "No resources found in default namespace." in (await embedded.run_kubectl("get", "pods")).stderr
    missing = await embedded.run_kubectl("get", "pod", "missing")
    assert missing.stderr.strip() == 'Error from server (NotFound): pods "missing" not found'
    unknown = await embedded.run_kubectl("get", "deployments")
    assert unknown.stderr.strip() == 'error: the server doesn\'t have a resource type "deployments"'


DESCRIBED: dict[str, list[Manifest]] = {
    "pod/labelled": [LABELLED],
    "service/service": [SERVICE],
    "configmap/config": [CONFIG],
    "secret/secret": [make_object("Secret", "secret", stringData={"a": "b"})],
    "pvc/nfs-pvc": [VOLUME_AND_CLAIM[1] | {"spec": VOLUME_AND_CLAIM[1]["spec"] | {"volumeName": ""}}],
    "pdj/job": [make_job()],
    "lease/lease": [
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "lease"},
            "spec": {"holderIdentity": "me"},
        }
    ],
    "events": [
        make_object(
            "Event",
            "event",
            involvedObject={"kind": "ConfigMap", "name": "config", "namespace": "<namespace>"},
            reason="Tested",
            message="an event",
            type="Normal",
        )
    ],
}
# Lines with values that each server sets, or that admission plugins and controllers add on a cluster.
OWN_LINES = re.compile(
    r"(Creation Timestamp|Resource Version|UID|Annotations|Manager|Time|Events|Finalizers|Node-Selectors|Tolerations|"
    r"Mounts|Volumes|kube-api-access|QoS Class|Endpoints|CreationTimestamp|Used By)\b"
)


@pytest.mark.parametrize("target", DESCRIBED)
async def test_describe_is_the_same_as_from_a_cluster(
    candidate: KubectlServer, real: KubectlServer, target: str
) -> None:
    texts = []
    for server in (candidate, real):
        for manifest in DESCRIBED[target]:
            await server.create_and_get(in_namespace(manifest, real.namespace))
        text = await server.kubectl("describe", *(target.split("/") if "/" in target else [target]))
        texts.append(comparable_lines(text))
    ours, theirs = texts
    assert ours
    assert [line for line in ours if line not in theirs] == []


def comparable_lines(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not OWN_LINES.match(line)]


async def test_describe_pod_has_status_and_events(embedded: KubectlServer) -> None:
    pod = await embedded.create_and_get(LABELLED)
    await embedded.send("PATCH", f"{embedded.path(LABELLED, name='labelled')}/status", RUNNING, media=MERGE)
    await embedded.create_and_get(make_event(pod, "Started", "Started container main"))
    text = await embedded.kubectl("describe", "pod", "labelled")
    assert re.search(r"Status: +Running\nIP: +127\.16\.1\.1\n", text)
    assert re.search(r"Normal +Started +.* kubelet +Started container main", text)


def make_event(pod: Manifest, reason: str, message: str) -> Manifest:
    involved = {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": "default", "uid": pod["metadata"]["uid"]}
    return make_object(
        "Event",
        "event",
        involvedObject=involved | {"apiVersion": "v1"},
        reason=reason,
        message=message,
        type="Normal",
        source={"component": "kubelet"},
        firstTimestamp=pod["metadata"]["creationTimestamp"],
        lastTimestamp=pod["metadata"]["creationTimestamp"],
        count=1,
    )


async def test_events_for_an_object(embedded: KubectlServer) -> None:
    pod = await embedded.create_and_get(LABELLED)
    await embedded.create_and_get(make_event(pod, "Started", "Started container main"))
    assert "Started container main" in await embedded.kubectl("events", "--for", "pod/labelled")
    assert "pod/labelled" in await embedded.kubectl("get", "events")


async def test_describe_node(embedded: KubectlServer) -> None:
    node = make_object("Node", "local-1", status={"capacity": {"cpu": "2", "memory": "8Gi"}})
    await embedded.create_and_get(node)
    text = await embedded.kubectl("describe", "node", "local-1")
    assert re.search(r"Capacity:\n +cpu: +2\n +memory: +8Gi", text)


async def test_api_resources(embedded: KubectlServer) -> None:
    listed = (await embedded.kubectl("api-resources", "--no-headers", "-o", "name")).split()
    assert set(listed) == {
        "configmaps",
        "customresourcedefinitions.apiextensions.k8s.io",
        "events",
        "events.events.k8s.io",
        "leases.coordination.k8s.io",
        "namespaces",
        "nodes",
        "paddlejobs.batch.paddlepaddle.org",
        "persistentvolumeclaims",
        "persistentvolumes",
        "podgroups.scheduling.volcano.sh",
        "pods",
        "secrets",
        "services",
    }


async def test_api_resources_are_the_same_as_on_a_cluster(candidate: KubectlServer, real: KubectlServer) -> None:
    """Every line of ours is one of theirs, except for Volcano's kinds."""
    tables = [await server.kubectl("api-resources", "-o", "wide", "--no-headers") for server in (candidate, real)]
    ours, theirs = ({tuple(sorted_words(line)) for line in table.splitlines()} for table in tables)
    assert {line[0] for line in ours - theirs} == {"podgroups"}


def sorted_words(line: str) -> list[str]:
    """The words of a line with sorted verbs: a cluster has another order for custom kinds."""
    return [",".join(sorted(word.split(","))) for word in line.split()]


async def test_api_versions(embedded: KubectlServer) -> None:
    assert (await embedded.kubectl("api-versions")).split() == [
        "apiextensions.k8s.io/v1",
        "batch.paddlepaddle.org/v1",
        "coordination.k8s.io/v1",
        "events.k8s.io/v1",
        "scheduling.volcano.sh/v1beta1",
        "v1",
    ]


async def test_version(embedded: KubectlServer) -> None:
    versions = json.loads(await embedded.kubectl("version", "-o", "json"))
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"]


async def test_older_clients_use_unaggregated_discovery(embedded: KubectlServer) -> None:
    """As client-go before 1.26 and today's Python client request it."""
    groups = (await embedded.send("GET", "/apis")).json()["groups"]
    names = [group["name"] for group in groups]
    assert "batch.paddlepaddle.org" in names
    listed = (await embedded.send("GET", "/apis/batch.paddlepaddle.org/v1")).json()
    assert [each["name"] for each in listed["resources"]] == ["paddlejobs", "paddlejobs/scale", "paddlejobs/status"]
    assert (await embedded.send("GET", "/api")).json()["versions"] == ["v1"]


async def test_apply_of_a_crd_is_rejected_with_advice(embedded: KubectlServer) -> None:
    process = await embedded.run_kubectl("apply", "--filename", str(ROOT / "deploy/v1/crd.yaml"))
    assert process.returncode == 1
    assert "skip this file" in process.stderr
