"""Validation compared with a real API server: the same objects are rejected with the same messages."""

from typing import Any

import pytest

from tests.local.served.objects import VOLUME_AND_CLAIM, in_namespace, make_job, make_object, make_pod
from tests.local.served.servers import MERGE, KubectlServer, Manifest

CLAIM = VOLUME_AND_CLAIM[1]
LONG = "x" * 64

INVALID_OBJECTS: dict[str, Manifest] = {
    "no container": make_pod(spec={"containers": []}),
    "container without a name": make_pod(name="pod", spec={"containers": [{"image": "i"}]}),
    "container without an image": make_pod(spec={"containers": [{"name": "main"}]}),
    "two containers with one name": make_pod(spec={"containers": [{"name": "a", "image": "i"}] * 2}),
    "a name with capitals": make_pod("Pod"),
    "a container's name with an underscore": make_pod(spec={"containers": [{"name": "a_b", "image": "i"}]}),
    "a long container's name": make_pod(spec={"containers": [{"name": LONG, "image": "i"}]}),
    "a port out of range": make_pod(ports=[{"containerPort": 65_536}]),
    "no port": make_pod(ports=[{"name": "http"}]),
    "a host port out of range": make_pod(ports=[{"containerPort": 1, "hostPort": 70_000}]),
    "an unknown protocol": make_pod(ports=[{"containerPort": 1, "protocol": "HTTP"}]),
    "an unknown restart policy": make_pod(spec={"restartPolicy": "Sometimes"}),
    "an unknown pull policy": make_pod(imagePullPolicy="Sometimes"),
    "a mount of a missing volume": make_pod(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
    "a mount without a path": make_pod(spec={"volumes": [{"name": "data"}]}, volumeMounts=[{"name": "data"}]),
    "a variable without a name": make_pod(env=[{"value": "1"}]),
    "requests above limits": make_pod(resources={"limits": {"cpu": 1}, "requests": {"cpu": 2}}),
    "a deadline of 0": make_pod(spec={"activeDeadlineSeconds": 0}),
    "a label with a space": make_pod() | {"metadata": {"name": "pod", "labels": {"a": "b c"}}},
    "a long label": make_pod() | {"metadata": {"name": "pod", "labels": {"a": LONG}}},
    "a long label's key": make_pod() | {"metadata": {"name": "pod", "labels": {LONG: "a"}}},
    "a long name": make_object("ConfigMap", "x" * 254),
    "a long Service's name": make_object("Service", LONG, spec={"ports": [{"port": 1}]}),
    "a label's key with a space": make_pod() | {"metadata": {"name": "pod", "labels": {"a b": "c"}}},
    "an annotation without a name": make_pod() | {"metadata": {"name": "pod", "annotations": {"example.com/": "c"}}},
    "an owner without a uid": make_pod()
    | {"metadata": {"name": "pod", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]}},
    "a finalizer without a domain": make_pod() | {"metadata": {"name": "pod", "finalizers": ["mine"]}},
    "a data key with a slash": make_object("ConfigMap", "map", data={"a/b": "c"}),
    "a secret's key with a space": make_object("Secret", "secret", stringData={"a b": "c"}),
    "a Service without ports": make_object("Service", "service", spec={}),
    "a Service with a port of 0": make_object("Service", "service", spec={"ports": [{"port": 0}]}),
    "two ports without names": make_object("Service", "service", spec={"ports": [{"port": 1}, {"port": 2}]}),
    "a Service with a dot": make_object("Service", "a.b", spec={"ports": [{"port": 1}]}),
    "a Service of an unknown type": make_object("Service", "service", spec={"type": "Any", "ports": [{"port": 1}]}),
    "a claim without a size": CLAIM | {"spec": {"accessModes": ["ReadWriteOnce"]}},
    "a claim without a mode": CLAIM | {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
    "a claim of an unknown mode": CLAIM
    | {"spec": {"accessModes": ["Any"], "resources": {"requests": {"storage": "1Gi"}}}},
    "a lease duration of 0": {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lease"},
        "spec": {"leaseDurationSeconds": 0},
    },
    "replicas as a string": make_job(worker={"replicas": "2", "template": {"spec": {"containers": []}}}),
    "no spec": {key: value for key, value in make_job().items() if key != "spec"},
    "an unknown policy": make_job(cleanPodPolicy="Sometimes"),
    "a null in a list": make_job(
        worker={"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "args": [None]}]}}}
    ),
    "a template with a container twice": make_job(
        worker={"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "image": "i"}] * 2}}}
    ),
    "a template whose container has no name": make_job(
        worker={"replicas": 1, "template": {"spec": {"containers": [{"image": "i"}]}}}
    ),
    "a template with a port out of range": make_job(
        worker={
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 65_536}]}]}},
        }
    ),
    "arguments that are no list": make_job(
        worker={"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "args": "b"}]}}}
    ),
    "an invalid quantity": make_job(
        worker={
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "much"}}}]}},
        }
    ),
    "a boolean quantity": make_job(
        worker={
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": True}}}]}},
        }
    ),
}


def causes_of(status: Any) -> set[tuple[str, str, str]]:
    causes = status.get("details", {}).get("causes", [])
    return {(each.get("field", ""), each.get("reason", ""), each["message"]) for each in causes}


@pytest.mark.parametrize("case", INVALID_OBJECTS)
async def test_invalid_object_gets_the_same_errors(candidate: KubectlServer, real: KubectlServer, case: str) -> None:
    responses = [await server.create(INVALID_OBJECTS[case]) for server in (candidate, real)]
    ours, theirs = (reply.json() for reply in responses)
    assert responses[1].status == 422, theirs
    assert responses[0].status == 422, ours
    assert causes_of(ours)
    assert causes_of(ours) <= causes_of(theirs)  # the real server reports some errors twice


VALID_OBJECTS: dict[str, Manifest] = {
    "variables twice": make_pod("twice", env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    "a variable with a dot": make_pod("dot", env=[{"name": "a.b-c", "value": "1"}]),
    "ports twice": make_pod("ports", ports=[{"containerPort": 1}, {"containerPort": 1}]),
    "a name with dots": make_pod("a.b.c"),
    "fractions of a core": make_pod("fractions", resources={"limits": {"cpu": 0.25}}),
    "a Service that begins with a digit": make_object("Service", "1a", spec={"ports": [{"port": 1}]}),
    "a finalizer with a domain": make_object("ConfigMap", "held")
    | {"metadata": {"name": "held", "finalizers": ["example.com/held"]}},
    "a job with a finalizer without a domain": make_job("finalizer")
    | {"metadata": {"name": "finalizer", "finalizers": ["finalizers.example.com"]}},
    "a job with a fraction of a core": make_job(
        worker={
            "replicas": 1,
            "template": {
                "spec": {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": 0.5, "gpu": 1}}}]}
            },
        }
    ),
    "a job with a null": make_job("nulls", schedulingPolicy=None, intranet=None),
    "a job whose template has a null": make_job(
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


@pytest.mark.parametrize("case", VALID_OBJECTS)
async def test_valid_object_is_accepted_by_both(candidate: KubectlServer, real: KubectlServer, case: str) -> None:
    manifest = in_namespace(VALID_OBJECTS[case], real.namespace)
    responses = [await server.create(manifest) for server in (real, candidate)]
    assert [reply.status for reply in responses] == [201, 201], [reply.body for reply in responses]


CHANGES: dict[str, tuple[Manifest, Manifest]] = {
    "an image": (make_pod("image"), {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}}),
    "a deadline": (make_pod("deadline"), {"spec": {"activeDeadlineSeconds": 1}}),
    "a label": (make_pod("label"), {"metadata": {"labels": {"a": "b"}}}),
    "a restart policy": (make_pod("policy"), {"spec": {"restartPolicy": "Never"}}),
    "a longer deadline": (
        make_pod("longer", spec={"activeDeadlineSeconds": 5}),
        {"spec": {"activeDeadlineSeconds": 6}},
    ),
    "no deadline": (make_pod("none", spec={"activeDeadlineSeconds": 5}), {"spec": {"activeDeadlineSeconds": None}}),
    "another container": (
        make_pod("another"),
        {"spec": {"containers": [{"name": "main", "image": "a"}, {"name": "b", "image": "b"}]}},
    ),
    "immutable data": (make_object("ConfigMap", "immutable", data={"a": "b"}, immutable=True), {"data": {"a": "c"}}),
    "a secret's type": (make_object("Secret", "type", stringData={"a": "b"}), {"type": "example.com/other"}),
    "a claim's class": (CLAIM, {"spec": {"storageClassName": "fast"}}),
    "a Service's address": (
        make_object("Service", "address", spec={"clusterIP": "None", "selector": {"a": "b"}}),
        {"spec": {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_update_gets_the_same_result(candidate: KubectlServer, real: KubectlServer, change: str) -> None:
    manifest, patch = CHANGES[change]
    results = []
    for server in (candidate, real):
        await server.create_and_get(manifest)
        path = server.path(manifest, name=manifest["metadata"]["name"])
        reply = await server.send("PATCH", path, patch, media=MERGE)
        fields = {field for field, _, _ in causes_of(reply.json())}
        results.append((reply.status, fields))
    assert results[0] == results[1]


async def test_custom_resource_definition_gets_422_with_advice(embedded: KubectlServer) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "a"},
    }
    reply = await embedded.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert reply.status == 422
    assert "skip this file" in reply.json()["message"]
