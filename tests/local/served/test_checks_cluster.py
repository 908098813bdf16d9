"""What a real API server refuses, the embedded one refuses in the same words; what it takes, the embedded one takes."""

from typing import Any

import pytest

from tests.local.served.objects import VOLUME_AND_CLAIM, a_job, a_pod, an_object, in_namespace
from tests.local.served.servers import MERGE, Manifest, Served

CLAIM = VOLUME_AND_CLAIM[1]
LONG = "x" * 64

REFUSED: dict[str, Manifest] = {
    "no container": a_pod(spec={"containers": []}),
    "container without a name": a_pod(name="pod", spec={"containers": [{"image": "i"}]}),
    "container without an image": a_pod(spec={"containers": [{"name": "main"}]}),
    "two containers of a name": a_pod(spec={"containers": [{"name": "a", "image": "i"}] * 2}),
    "a name with capitals": a_pod("Pod"),
    "a container's name with an underscore": a_pod(spec={"containers": [{"name": "a_b", "image": "i"}]}),
    "a long container's name": a_pod(spec={"containers": [{"name": LONG, "image": "i"}]}),
    "a port that does not exist": a_pod(ports=[{"containerPort": 65_536}]),
    "no port": a_pod(ports=[{"name": "http"}]),
    "a host port that does not exist": a_pod(ports=[{"containerPort": 1, "hostPort": 70_000}]),
    "an unknown protocol": a_pod(ports=[{"containerPort": 1, "protocol": "HTTP"}]),
    "an unknown restart policy": a_pod(spec={"restartPolicy": "Sometimes"}),
    "an unknown pull policy": a_pod(imagePullPolicy="Sometimes"),
    "a mount of no volume": a_pod(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
    "a mount without a path": a_pod(spec={"volumes": [{"name": "data"}]}, volumeMounts=[{"name": "data"}]),
    "a variable without a name": a_pod(env=[{"value": "1"}]),
    "more asked than allowed": a_pod(resources={"limits": {"cpu": 1}, "requests": {"cpu": 2}}),
    "a deadline of nothing": a_pod(spec={"activeDeadlineSeconds": 0}),
    "a label with a blank": a_pod() | {"metadata": {"name": "pod", "labels": {"a": "b c"}}},
    "a long label": a_pod() | {"metadata": {"name": "pod", "labels": {"a": LONG}}},
    "a long label's key": a_pod() | {"metadata": {"name": "pod", "labels": {LONG: "a"}}},
    "a long name": an_object("ConfigMap", "x" * 254),
    "a long Service's name": an_object("Service", LONG, spec={"ports": [{"port": 1}]}),
    "a label's key with a blank": a_pod() | {"metadata": {"name": "pod", "labels": {"a b": "c"}}},
    "an annotation without a name": a_pod() | {"metadata": {"name": "pod", "annotations": {"example.com/": "c"}}},
    "an owner without a uid": a_pod()
    | {"metadata": {"name": "pod", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]}},
    "a finalizer without a domain": a_pod() | {"metadata": {"name": "pod", "finalizers": ["mine"]}},
    "a data key with a slash": an_object("ConfigMap", "map", data={"a/b": "c"}),
    "a secret's key with a blank": an_object("Secret", "secret", stringData={"a b": "c"}),
    "a Service without ports": an_object("Service", "service", spec={}),
    "a Service with a port of 0": an_object("Service", "service", spec={"ports": [{"port": 0}]}),
    "two ports without names": an_object("Service", "service", spec={"ports": [{"port": 1}, {"port": 2}]}),
    "a Service with a dot": an_object("Service", "a.b", spec={"ports": [{"port": 1}]}),
    "a Service of an unknown type": an_object("Service", "service", spec={"type": "Any", "ports": [{"port": 1}]}),
    "a claim without a size": CLAIM | {"spec": {"accessModes": ["ReadWriteOnce"]}},
    "a claim without a mode": CLAIM | {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
    "a claim of an unknown mode": CLAIM
    | {"spec": {"accessModes": ["Any"], "resources": {"requests": {"storage": "1Gi"}}}},
    "a lease of no time": {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lease"},
        "spec": {"leaseDurationSeconds": 0},
    },
    "workers as a text": a_job(worker={"replicas": "2", "template": {"spec": {"containers": []}}}),
    "no spec": {key: value for key, value in a_job().items() if key != "spec"},
    "an unknown policy": a_job(cleanPodPolicy="Sometimes"),
    "a null in a list": a_job(
        worker={"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "args": [None]}]}}}
    ),
    "a template with a container twice": a_job(
        worker={"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "image": "i"}] * 2}}}
    ),
    "a template whose container has no name": a_job(
        worker={"replicas": 1, "template": {"spec": {"containers": [{"image": "i"}]}}}
    ),
    "a template with a port that does not exist": a_job(
        worker={
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 65_536}]}]}},
        }
    ),
    "a list of arguments that is none": a_job(
        worker={"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "args": "b"}]}}}
    ),
    "an amount that is none": a_job(
        worker={
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "much"}}}]}},
        }
    ),
    "an amount that is a truth": a_job(
        worker={
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": True}}}]}},
        }
    ),
}


def told(status: Any) -> set[tuple[str, str, str]]:
    causes = status.get("details", {}).get("causes", [])
    return {(each.get("field", ""), each.get("reason", ""), each["message"]) for each in causes}


@pytest.mark.parametrize("mistake", REFUSED)
async def test_a_mistake_is_refused_in_the_same_words(beside: Served, real: Served, mistake: str) -> None:
    replies = [await server.create(REFUSED[mistake]) for server in (beside, real)]
    ours, theirs = (reply.json() for reply in replies)
    assert replies[1].status == 422, theirs
    assert replies[0].status == 422, ours
    assert told(ours)
    assert told(ours) <= told(theirs)  # one mistake may be told of twice


TAKEN: dict[str, Manifest] = {
    "variables twice": a_pod("twice", env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    "a variable with a dot": a_pod("dot", env=[{"name": "a.b-c", "value": "1"}]),
    "ports twice": a_pod("ports", ports=[{"containerPort": 1}, {"containerPort": 1}]),
    "a name with dots": a_pod("a.b.c"),
    "fractions of a core": a_pod("fractions", resources={"limits": {"cpu": 0.25}}),
    "a Service that begins with a digit": an_object("Service", "1a", spec={"ports": [{"port": 1}]}),
    "a finalizer with a domain": an_object("ConfigMap", "held")
    | {"metadata": {"name": "held", "finalizers": ["example.com/held"]}},
    "a job with a fraction of a core": a_job(
        worker={
            "replicas": 1,
            "template": {
                "spec": {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": 0.5, "gpu": 1}}}]}
            },
        }
    ),
    "a job with a null": a_job("nulls", schedulingPolicy=None, intranet=None),
    "a job whose template has a null": a_job(
        "null",
        worker={
            "replicas": 1,
            "template": {
                "metadata": {"creationTimestamp": None},
                "spec": {"containers": [{"name": "a", "image": "i"}]},
            },
        },
    ),
}


@pytest.mark.parametrize("oddity", TAKEN)
async def test_what_a_cluster_takes_is_taken(beside: Served, real: Served, oddity: str) -> None:
    manifest = in_namespace(TAKEN[oddity], real.namespace)
    replies = [await server.create(manifest) for server in (real, beside)]
    assert [reply.status for reply in replies] == [201, 201], [reply.body for reply in replies]


CHANGES: dict[str, tuple[Manifest, Manifest]] = {
    "an image": (a_pod("image"), {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}}),
    "a deadline": (a_pod("deadline"), {"spec": {"activeDeadlineSeconds": 1}}),
    "a label": (a_pod("label"), {"metadata": {"labels": {"a": "b"}}}),
    "a restart policy": (a_pod("policy"), {"spec": {"restartPolicy": "Never"}}),
    "a longer deadline": (a_pod("longer", spec={"activeDeadlineSeconds": 5}), {"spec": {"activeDeadlineSeconds": 6}}),
    "no deadline": (a_pod("none", spec={"activeDeadlineSeconds": 5}), {"spec": {"activeDeadlineSeconds": None}}),
    "another container": (
        a_pod("another"),
        {"spec": {"containers": [{"name": "main", "image": "a"}, {"name": "b", "image": "b"}]}},
    ),
    "data that is fixed": (an_object("ConfigMap", "fixed", data={"a": "b"}, immutable=True), {"data": {"a": "c"}}),
    "a secret's type": (an_object("Secret", "type", stringData={"a": "b"}), {"type": "example.com/other"}),
    "a claim's class": (CLAIM, {"spec": {"storageClassName": "fast"}}),
    "a Service's address": (
        an_object("Service", "address", spec={"clusterIP": "None", "selector": {"a": "b"}}),
        {"spec": {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_taken_or_refused_alike(beside: Served, real: Served, change: str) -> None:
    manifest, patch = CHANGES[change]
    outcomes = []
    for server in (beside, real):
        await server.stored(manifest)
        path = server.path(manifest, name=manifest["metadata"]["name"])
        reply = await server.send("PATCH", path, patch, media=MERGE)
        fields = {field for field, _, _ in told(reply.json())}
        outcomes.append((reply.status, fields))
    assert outcomes[0] == outcomes[1]


async def test_a_definition_is_refused_with_a_sentence(embedded: Served) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "a"},
    }
    reply = await embedded.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert reply.status == 422
    assert "leave this file out" in reply.json()["message"]
