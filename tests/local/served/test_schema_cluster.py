"""Stored objects compared with a real API server: defaults, quantities, zeros, unknown fields."""

import re
from typing import Any

import pytest

from testbed.control_plane import ControlPlane
from tests.local.served.objects import FULL_POD, PLAIN_OBJECTS, golden_objects, in_namespace, make_job, make_pod
from tests.local.served.servers import MERGE, KubectlServer, Manifest, leaves
from tools.kubernetes_schemas import fetch_schemas, stored_schemas

# Expected differences: metadata that each server sets, and fields that admission plugins add on a cluster.
OWN_METADATA = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace")
PROTECTIONS = (
    ["kubernetes.io/pv-protection"],
    ["kubernetes.io/pvc-protection"],
)  # the local cluster has no controller for them
DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def comparable(stored: Manifest) -> Manifest:
    """Without fields that always differ between two servers."""
    found = dict(stored)
    found["metadata"] = {key: value for key, value in stored["metadata"].items() if key not in OWN_METADATA}
    if found["metadata"].get("finalizers") in PROTECTIONS:
        del found["metadata"]["finalizers"]
    if stored["kind"] == "Pod":
        found["spec"] = pod_spec(stored["spec"])
    if stored["kind"] == "PersistentVolume":
        found["status"] = {key: value for key, value in stored["status"].items() if key != "lastPhaseTransitionTime"}
    if stored["kind"] == "Node":  # a cluster taints a new node as not ready
        found["spec"] = {key: value for key, value in stored["spec"].items() if key != "taints"}
    if stored["kind"] == "Service" and stored["spec"].get("clusterIP", "None") != "None":
        found["spec"] = stored["spec"] | {"clusterIP": "<assigned>", "clusterIPs": ["<assigned>"]}
    return found


def pod_spec(spec: Manifest) -> Manifest:
    """Without the token's volume and the default tolerations, which an admission plugin adds."""
    found = dict(spec)
    found["tolerations"] = [each for each in spec.get("tolerations", ()) if each.get("key") not in DEFAULT_TOLERATIONS]
    found["volumes"] = [each for each in spec.get("volumes", ()) if not each["name"].startswith("kube-api-access-")]
    for key in ("containers", "initContainers"):
        if key in spec:
            found[key] = [without_token(container) for container in spec[key]]
    return {key: value for key, value in found.items() if value not in ([], None)}


def without_token(container: Manifest) -> Manifest:
    mounts = [each for each in container.get("volumeMounts", ()) if "serviceaccount" not in each["mountPath"]]
    return {key: value for key, value in (container | {"volumeMounts": mounts}).items() if value != []}


async def test_schema_files_are_up_to_date(control_plane: ControlPlane) -> None:
    assert stored_schemas() == await fetch_schemas(control_plane), "stale: python -m tools.kubernetes_schemas"


@pytest.mark.parametrize("manifest", PLAIN_OBJECTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
async def test_object_is_stored_the_same(candidate: KubectlServer, real: KubectlServer, manifest: Manifest) -> None:
    written = in_namespace(manifest, real.namespace)
    query = "?dryRun=All" if manifest["kind"] in ("PersistentVolume", "Node", "Namespace") else ""
    theirs, ours = await real.create_and_get(written, query), await candidate.create_and_get(written, query)
    assert leaves(comparable(ours)) == leaves(comparable(theirs))


async def test_operator_objects_are_stored_the_same(candidate: KubectlServer, real: KubectlServer) -> None:
    written = golden_objects(real.namespace)
    assert {each["kind"] for each in written} == {"ConfigMap", "Pod", "Service"}
    for manifest in written:
        theirs, ours = (
            await real.create_and_get(manifest, "?dryRun=All"),
            await candidate.create_and_get(manifest, "?dryRun=All"),
        )
        assert leaves(comparable(ours)) == leaves(comparable(theirs))


A_STATUS: Manifest = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05.678Z"}],
    "podIP": "127.16.1.1",
    "podIPs": [{"ip": "127.16.1.1"}],
    "startTime": "2026-01-02T03:04:05Z",
    "containerStatuses": [
        {
            "name": "main",
            "ready": False,
            "restartCount": 0,
            "image": "",
            "imageID": "",
            "started": False,
            "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
            "lastState": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-02T03:04:05Z"}},
        }
    ],
    "initContainerStatuses": [],
    "message": "",
}


async def test_pod_status_is_stored_the_same(candidate: KubectlServer, real: KubectlServer) -> None:
    statuses = []
    for server in (candidate, real):
        pod = make_pod("reported", spec={"restartPolicy": "Always"})
        await server.create_and_get(pod)
        path = f"{server.path(pod, name='reported')}/status"
        reply = await server.send("PATCH", path, {"status": A_STATUS}, media=MERGE)
        assert reply.ok, reply.body
        statuses.append(reply.json()["status"])
    assert statuses[0] == statuses[1]


UNKNOWN: list[Manifest] = [
    make_pod(imagePulPolicy="Always"),
    make_pod(env=[{"nam": "A", "name": "A"}]),
    make_pod() | {"statuss": {}},
    make_pod() | {"metadata": {"name": "pod", "label": {"a": "b"}}},
    make_job() | {"metadata": {"name": "job", "label": {"a": "b"}}},
    make_job(cleanPodPolice="Never"),
    make_pod(spec={"volumes": [{"name": "v", "emptyDirr": {}}], "dnsConfig": {"option": []}}),
]


@pytest.mark.parametrize("manifest", UNKNOWN, ids=range(len(UNKNOWN)))
async def test_unknown_field_gets_the_same_message(
    candidate: KubectlServer, real: KubectlServer, manifest: Manifest
) -> None:
    responses = [await server.create(manifest, "?fieldValidation=Strict") for server in (candidate, real)]
    ours, theirs = (reply.json() for reply in responses)
    assert [reply.status for reply in responses] == [400, 400]
    assert ours["message"] == theirs["message"]


MISTYPED: list[Manifest] = [
    make_pod(env=[{"name": "A", "value": 1}]),
    make_pod(command="python3 train.py"),
    make_pod(ports=[{"containerPort": "http"}]),
    make_pod(spec={"activeDeadlineSeconds": "1"}),
    make_pod(spec={"hostNetwork": "yes"}),
    make_pod() | {"metadata": {"name": "pod", "labels": {"a": 1}}},
    make_pod(ports=[{"containerPort": 3_000_000_000}]),
]


@pytest.mark.parametrize("manifest", MISTYPED, ids=range(len(MISTYPED)))
async def test_wrong_type_gets_400(candidate: KubectlServer, real: KubectlServer, manifest: Manifest) -> None:
    responses = [await server.create(manifest) for server in (candidate, real)]
    ours, theirs = (reply.json() for reply in responses)
    assert [reply.status for reply in responses] == [400, 400]
    assert message_without_path(ours) == message_without_path(theirs)


def message_without_path(status: Any) -> str:
    """Without the field's path, which our message has at the start."""
    return re.sub(r"(as a \w+: )[^ ]*: json", r"\1json", status["message"])


# Not 01, +1, 1., 1E3 and 1e0: a real server stores these integers as written.
QUANTITIES: list[str | float] = [
    *("0", "1", ".5", "0.5", "1.5", "100m", "1000m", "1500m", "0.0001", "1n", "1u", "1001u", "999n"),
    *("1k", "1000k", "1024k", "1.5k", "1M", "1G", "1T", "1P", "1E", "12E", "1Ki", "0.5Ki", "1024Ki", "1000Ki", "1.5Gi"),
    *("1024Mi", "2048Mi", "1536Mi", "1Ti", "1Pi", "1Ei", "9Ei", "16Ei", "1e3", "1e-3", "1.2e3", "12e6", "100e-2"),
    *(1, 0.25, 1.0, 1e3, 1000000, 123456789, 0.1),
    *("512Ki", "8Ki", "7Ki", "1023", "1025Ki", "0.1Gi", "3.14159Mi", "1e9", "10e2"),
]


async def test_quantities_are_stored_the_same(candidate: KubectlServer, real: KubectlServer) -> None:
    containers = [
        {"name": f"c{index}", "image": "i", "resources": {"limits": {"memory": written}}}
        for index, written in enumerate(QUANTITIES)
    ]
    stored = []
    for server in (candidate, real):
        pod = await server.create_and_get(make_pod(spec={"containers": containers}), "?dryRun=All")
        stored.append([each["resources"]["limits"]["memory"] for each in pod["spec"]["containers"]])
    assert dict(zip(map(str, QUANTITIES), stored[0], strict=True)) == dict(
        zip(map(str, QUANTITIES), stored[1], strict=True)
    )


async def test_significant_zeros_are_stored(embedded: KubectlServer) -> None:
    spec = (await embedded.create_and_get(FULL_POD))["spec"]
    assert spec["setHostnameAsFQDN"] is False
    assert spec["terminationGracePeriodSeconds"] == 0
    assert "hostPID" not in spec
    assert "args" not in spec["containers"][0]
