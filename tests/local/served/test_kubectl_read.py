"""What people read with a stock kubectl: get in every output, describe, explain, what there is, logs."""

import json
import re

import pytest

from tests.local.served.objects import ROOT, VOLUME_AND_CLAIM, a_job, a_pod, an_object, in_namespace
from tests.local.served.servers import MERGE, Manifest, Served

LABELLED = a_pod("labelled") | {"metadata": {"name": "labelled", "labels": {"app": "a", "tier": "b"}}}
SERVICE = an_object("Service", "service", spec={"clusterIP": "None", "selector": {"app": "a"}, "ports": [{"port": 80}]})
CONFIG = an_object("ConfigMap", "config", data={"a": "b"})
AGES = re.compile(r"\b\d+m?\d*s\b")


@pytest.fixture
async def both(beside: Served, real: Served) -> tuple[Served, Served]:
    """The embedded and the real server with the same few objects."""
    for server in (beside, real):
        for manifest in (LABELLED, SERVICE, CONFIG, a_job()):
            await server.stored(manifest)
        await server.send("PATCH", f"{server.path(LABELLED, name='labelled')}/status", RUNNING, media=MERGE)
    return beside, real


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


async def printed(both: tuple[Served, Served], *arguments: str) -> list[str]:
    """What kubectl prints from each, with all ages alike and all blanks one."""
    texts = [await server.kubectl(*arguments) for server in both]
    return [re.sub(r" +", " ", AGES.sub("<age>", text)) for text in texts]


SAME = [
    ["get", "pods"],
    ["get", "pods", "-o", "wide"],
    ["get", "pods", "--show-labels"],
    ["get", "pods", "-L", "tier"],
    ["get", "pods", "-l", "app=a"],
    ["get", "pods", "-l", "app in (a),tier!=c"],
    ["get", "pods", "-l", "app=nobody"],
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


@pytest.mark.parametrize("arguments", SAME, ids=" ".join)
async def test_it_prints_the_same_as_from_a_cluster(both: tuple[Served, Served], arguments: list[str]) -> None:
    ours, theirs = await printed(both, *arguments)
    assert ours == theirs


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_get_as_json_and_yaml_can_be_applied_again(embedded: Served, output: str) -> None:
    for manifest in (LABELLED, CONFIG, a_job()):
        await embedded.stored(manifest)
    text = await embedded.kubectl("get", "pods,configmaps,pdj", "-o", output)
    done = await embedded.kubectl("replace", "--filename=-", stdin=text)
    assert done.splitlines() == [
        "pod/labelled replaced",
        "configmap/config replaced",
        "paddlejob.batch.paddlepaddle.org/job replaced",
    ]


async def test_get_in_all_namespaces_names_them(embedded: Served) -> None:
    await embedded.stored(LABELLED)
    header, row = (await embedded.kubectl("get", "pods", "--all-namespaces")).splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert row.split()[:2] == ["default", "labelled"]


async def test_get_says_where_nothing_is_found(embedded: Served) -> None:
    assert "No resources found in default namespace." in (await embedded.kubectl_done("get", "pods")).stderr
    missing = await embedded.kubectl_done("get", "pod", "nobody")
    assert missing.stderr.strip() == 'Error from server (NotFound): pods "nobody" not found'
    unknown = await embedded.kubectl_done("get", "deployments")
    assert unknown.stderr.strip() == 'error: the server doesn\'t have a resource type "deployments"'


DESCRIBED: dict[str, list[Manifest]] = {
    "pod/labelled": [LABELLED],
    "service/service": [SERVICE],
    "configmap/config": [CONFIG],
    "secret/secret": [an_object("Secret", "secret", stringData={"a": "b"})],
    "pvc/nfs-pvc": [VOLUME_AND_CLAIM[1] | {"spec": VOLUME_AND_CLAIM[1]["spec"] | {"volumeName": ""}}],
    "pdj/job": [a_job()],
    "lease/lease": [
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "lease"},
            "spec": {"holderIdentity": "me"},
        }
    ],
    "events": [
        an_object(
            "Event",
            "event",
            involvedObject={"kind": "ConfigMap", "name": "config", "namespace": "<namespace>"},
            reason="Told",
            message="it was told",
            type="Normal",
        )
    ],
}
# What a server gives an object itself, and what only a cluster's admission or controllers add.
OWN_LINES = re.compile(
    r"(Creation Timestamp|Resource Version|UID|Annotations|Manager|Time|Events|Finalizers|Node-Selectors|Tolerations|"
    r"Mounts|Volumes|kube-api-access|QoS Class|Endpoints|CreationTimestamp|Used By)\b"
)


@pytest.mark.parametrize("whom", DESCRIBED)
async def test_describe_tells_the_same(beside: Served, real: Served, whom: str) -> None:
    texts = []
    for server in (beside, real):
        for manifest in DESCRIBED[whom]:
            await server.stored(in_namespace(manifest, real.namespace))
        text = await server.kubectl("describe", *(whom.split("/") if "/" in whom else [whom]))
        texts.append(told(text))
    ours, theirs = texts
    assert ours
    assert [line for line in ours if line not in theirs] == []


def told(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not OWN_LINES.match(line)]


async def test_describe_pod_tells_its_story(embedded: Served) -> None:
    pod = await embedded.stored(LABELLED)
    await embedded.send("PATCH", f"{embedded.path(LABELLED, name='labelled')}/status", RUNNING, media=MERGE)
    await embedded.stored(event_about(pod, "Started", "Started container main"))
    text = await embedded.kubectl("describe", "pod", "labelled")
    assert re.search(r"Status: +Running\nIP: +127\.16\.1\.1\n", text)
    assert re.search(r"Normal +Started +.* kubelet +Started container main", text)


def event_about(pod: Manifest, reason: str, message: str) -> Manifest:
    about = {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": "default", "uid": pod["metadata"]["uid"]}
    return an_object(
        "Event",
        "event",
        involvedObject=about | {"apiVersion": "v1"},
        reason=reason,
        message=message,
        type="Normal",
        source={"component": "kubelet"},
        firstTimestamp=pod["metadata"]["creationTimestamp"],
        lastTimestamp=pod["metadata"]["creationTimestamp"],
        count=1,
    )


async def test_events_of_an_object_are_found(embedded: Served) -> None:
    pod = await embedded.stored(LABELLED)
    await embedded.stored(event_about(pod, "Started", "Started container main"))
    assert "Started container main" in await embedded.kubectl("events", "--for", "pod/labelled")
    assert "pod/labelled" in await embedded.kubectl("get", "events")


async def test_describe_node(embedded: Served) -> None:
    node = an_object("Node", "local-1", status={"capacity": {"cpu": "2", "memory": "8Gi"}})
    await embedded.stored(node)
    text = await embedded.kubectl("describe", "node", "local-1")
    assert re.search(r"Capacity:\n +cpu: +2\n +memory: +8Gi", text)


async def test_api_resources_are_the_closed_list(embedded: Served) -> None:
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


async def test_api_resources_are_told_as_on_a_cluster(beside: Served, real: Served) -> None:
    """Every line of ours is one of theirs, but for what a bare cluster does not have."""
    tables = [await server.kubectl("api-resources", "-o", "wide", "--no-headers") for server in (beside, real)]
    ours, theirs = ({tuple(in_any_order(line)) for line in table.splitlines()} for table in tables)
    assert {line[0] for line in ours - theirs} == {"podgroups"}


def in_any_order(line: str) -> list[str]:
    """The words of a line, with its verbs sorted: of custom kinds a cluster tells them in another order."""
    return [",".join(sorted(word.split(","))) for word in line.split()]


async def test_api_versions(embedded: Served) -> None:
    assert (await embedded.kubectl("api-versions")).split() == [
        "apiextensions.k8s.io/v1",
        "batch.paddlepaddle.org/v1",
        "coordination.k8s.io/v1",
        "events.k8s.io/v1",
        "scheduling.volcano.sh/v1beta1",
        "v1",
    ]


async def test_version(embedded: Served) -> None:
    told_versions = json.loads(await embedded.kubectl("version", "-o", "json"))
    assert told_versions["serverVersion"]["gitVersion"] == told_versions["clientVersion"]["gitVersion"]


async def test_older_programs_find_a_document_a_group(embedded: Served) -> None:
    """What client-go of before 1.26 asks for, and Python's own client still does."""
    groups = (await embedded.send("GET", "/apis")).json()["groups"]
    names = [group["name"] for group in groups]
    assert "batch.paddlepaddle.org" in names
    listed = (await embedded.send("GET", "/apis/batch.paddlepaddle.org/v1")).json()
    assert [each["name"] for each in listed["resources"]] == ["paddlejobs", "paddlejobs/scale", "paddlejobs/status"]
    assert (await embedded.send("GET", "/api")).json()["versions"] == ["v1"]


async def test_the_definition_of_a_job_is_refused_with_a_sentence(embedded: Served) -> None:
    done = await embedded.kubectl_done("apply", "--filename", str(ROOT / "deploy/v1/crd.yaml"))
    assert done.returncode == 1
    assert "leave this file out" in done.stderr
