"""Objects as users and our operator write them, for both servers."""

import copy
import re
import uuid
from pathlib import Path
from typing import Any

import yaml

from tests.local.served.servers import Manifest

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/stories/golden"
JOB_UID = str(uuid.UUID(int=7))


def golden_objects(namespace: str) -> list[Manifest]:
    """All objects that the operator writes for the examples, each once."""
    objects: dict[str, Manifest] = {}
    for path in sorted(GOLDEN.glob("*.yaml")):
        text = path.read_text().replace("<uid of the job>", JOB_UID).replace("<namespace>", namespace)
        text = re.sub("<address of [^>]*>", "10.0.0.1", text)
        for document in yaml.safe_load_all(text):
            if document and "kind" in document:
                document = writable(document)
                document["metadata"]["name"] = f"{path.stem.replace('_', '-')}-{document['metadata']['name']}"[:63]
                objects[f"{document['kind']} {document['metadata']['name']}"] = document
    return list(objects.values())


def writable(document: Manifest) -> Manifest:
    """Golden files show binary data as lines; replace it with valid data."""
    if "binaryData" in document:
        document["binaryData"] = dict.fromkeys(document["binaryData"], "aGVsbG8=")
    return document


def make_pod(name: str = "pod", *, spec: Manifest | None = None, **container: Any) -> Manifest:
    """With a scheduler name that no scheduler has: the cluster's own would write to the pod during the test."""
    main = {"name": "main", "image": "example.com/image:v1"} | container
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [main], "schedulerName": "nobody"} | (spec or {}),
    }


def make_object(kind: str, name: str, **content: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}} | content


def make_job(name: str = "job", **spec: Any) -> Manifest:
    template = {"spec": {"containers": [{"name": "paddle", "image": "paddle"}]}}
    worker = {"replicas": 2, "template": template}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name},
        "spec": {"worker": worker} | spec,
    }


FULL_POD = make_pod(
    "rich",
    spec={
        "restartPolicy": "OnFailure",
        "hostNetwork": True,
        "nodeSelector": {"disk": "fast"},
        "setHostnameAsFQDN": False,
        "shareProcessNamespace": False,
        "terminationGracePeriodSeconds": 0,
        "hostPID": False,
        "dnsConfig": {"searches": [], "options": [{"name": "ndots", "value": ""}]},
        "initContainers": [
            {"name": "first", "image": "example.com/init", "command": ["true"]},
            {"name": "side", "image": "example.com/side@sha256:" + "0" * 64, "restartPolicy": "Always"},
        ],
        "volumes": [
            {"name": "none"},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}},
            {"name": "host", "hostPath": {"path": "/data"}},
            {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
            {"name": "secret", "secret": {"secretName": "s", "optional": False}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "claim", "readOnly": False}},
            {
                "name": "downward",
                "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            },
            {
                "name": "projected",
                "projected": {"sources": [{"configMap": {"name": "c"}}, {"serviceAccountToken": {"path": "t"}}]},
            },
        ],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "automountServiceAccountToken": False,
    },
    image="example.com/image:latest",
    command=["python3", "train.py"],
    env=[
        {"name": "EMPTY", "value": ""},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
    envFrom=[{"prefix": "A_", "configMapRef": {"name": "c", "optional": False}}],
    ports=[{"containerPort": 8080, "name": "http"}, {"containerPort": 53, "protocol": "UDP", "hostPort": 53}],
    resources={
        "limits": {"cpu": 0.5, "memory": "1024Mi", "nvidia.com/gpu": 1},
        "requests": {"cpu": "0.1", "memory": "1e9"},
    },
    livenessProbe={"httpGet": {"port": "http"}, "initialDelaySeconds": 0},
    readinessProbe={"tcpSocket": {"port": 8080}, "periodSeconds": 0, "timeoutSeconds": 7},
    startupProbe={"exec": {"command": ["true"]}},
    lifecycle={"preStop": {"httpGet": {"port": 8080, "path": "/stop"}}},
    securityContext={"privileged": False, "runAsUser": 0, "runAsNonRoot": False},
    volumeMounts=[{"name": "shm", "mountPath": "/dev/shm", "readOnly": False}, {"name": "host", "mountPath": "/data"}],
    stdin=False,
    args=[],
    workingDir="",
)

VOLUME_AND_CLAIM = [
    make_object(
        "PersistentVolume",
        "nfs-pv",
        spec={
            "capacity": {"storage": "10Gi"},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Recycle",
            "storageClassName": "slow",
            "mountOptions": ["hard", "nfsvers=4.1"],
            "nfs": {"path": "/nas", "server": "10.12.201.xx"},
        },
    ),
    make_object(
        "PersistentVolumeClaim",
        "nfs-pvc",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10240Mi"}},
            "storageClassName": "slow",
            "volumeName": "nfs-pv",
        },
    ),
]

PLAIN_OBJECTS: list[Manifest] = [
    FULL_POD,
    make_pod("plain"),
    make_pod("limits", resources={"limits": {"cpu": "1000m", "memory": "1G"}}),
    make_object("ConfigMap", "empty", data={}, binaryData={"b": "aGVsbG8="}, immutable=False),
    make_object("Secret", "texts", stringData={"a": "b", "c": ""}, data={"a": "eA==", "d": "eQ=="}),
    make_object("Secret", "typed", type="kubernetes.io/basic-auth", data={"username": "eA=="}),
    make_object("Service", "headless", spec={"clusterIP": "None", "selector": {"a": "b"}}),
    make_object("Service", "ports", spec={"clusterIP": "None", "ports": [{"port": 80}], "selector": {"a": "b"}}),
    make_object("Service", "given", spec={"ports": [{"name": "a", "port": 80, "targetPort": "http"}]}),
    make_object("Service", "sticky", spec={"ports": [{"port": 80}], "sessionAffinity": "ClientIP"}),
    make_object("Service", "elsewhere", spec={"type": "ExternalName", "externalName": "example.com"}),
    make_object("Namespace", "<namespace>-more"),
    make_object(
        "Event",
        "old",
        involvedObject={"kind": "Pod", "name": "pod", "namespace": "<namespace>"},
        reason="Started",
        message="it started",
        type="Normal",
        source={"component": "kubelet", "host": "local-1"},
        firstTimestamp="2026-01-02T03:04:05Z",
        lastTimestamp="2026-01-02T05:04:05+01:00",
        count=2,
    ),
    {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "new"},
        "regarding": {"kind": "Pod", "name": "pod", "namespace": "<namespace>"},
        "reason": "Started",
        "note": "it started",
        "type": "Normal",
        "action": "Starting",
        "eventTime": "2026-01-02T03:04:05.123000Z",
        "reportingController": "example.com/one",
        "reportingInstance": "one-0",
    },
    {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lease"},
        "spec": {
            "holderIdentity": "",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 0,
            "renewTime": "2026-01-02T04:04:05.500000+01:00",
        },
    },
    make_object(
        "Node",
        "<namespace>-node",
        spec={"unschedulable": False, "podCIDR": ""},
        status={"capacity": {"cpu": 4, "memory": "16Gi"}, "phase": "Running"},
    ),
    *VOLUME_AND_CLAIM,
]


def in_namespace(manifest: Manifest, namespace: str) -> Manifest:
    text = yaml.safe_dump(copy.deepcopy(manifest)).replace("<namespace>", namespace)
    copied: Manifest = yaml.safe_load(text)
    return copied
