"""Pods as the operator creates them and a kubelet reports them: 10 variables, an owner, 5 conditions.

Stored with the managedFields of both, they have the 6 to 8 KB of pods of a real training job.
"""

from paddle_operator.api.paddlejob import API_VERSION, KIND
from paddle_operator.kube.objects import Key, Manifest
from paddle_operator.plan.metadata import (
    ATTEMPT_ANNOTATION,
    JOB_UID_LABEL,
    MAIN_CONTAINER,
    POD_NAME_LABEL,
    ROLE_ANNOTATION,
    ROLE_LABEL,
)

PODS_PER_JOB = 20
TIMESTAMP = "2026-01-02T03:04:05Z"
IMAGE = "images.example.com/team/paddle:3.2.0-gpu"
DIGEST = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"


def job_name(number: int) -> str:
    return f"train-{number // PODS_PER_JOB:05d}"


def owner_uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number // PODS_PER_JOB:012d}"


def pod_key(namespace: str, number: int) -> Key:
    return Key(namespace, f"{job_name(number)}-worker-{number % PODS_PER_JOB}")


def build_pod(namespace: str, number: int, *, node: str = "") -> Manifest:
    """A pod as the operator creates it; with a node it is already bound, so the scheduler ignores it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_key(namespace, number).name,
            "namespace": namespace,
            "labels": {
                POD_NAME_LABEL: pod_key(namespace, number).name,
                ROLE_LABEL: "worker",
                JOB_UID_LABEL: owner_uid(number),
            },
            "annotations": {ROLE_ANNOTATION: "worker", ATTEMPT_ANNOTATION: "0"},
            "ownerReferences": [_owner(number)],
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [_container(number)],
            "volumes": [{"name": "data", "emptyDir": {}}],
        }
        | ({"nodeName": node} if node else {}),
    }


def running_status(number: int, *, ready: bool = True) -> Manifest:
    """The status of a running pod; toggle `ready` to produce changes."""
    ready_status = "True" if ready else "False"
    conditions = {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": ready_status,
        "ContainersReady": ready_status,
        "PodScheduled": "True",
    }
    address = f"10.{128 + number // 65536}.{number // 256 % 256}.{number % 256}"
    return {
        "phase": "Running",
        "hostIP": f"198.18.0.{number % 200 + 1}",
        "hostIPs": [{"ip": f"198.18.0.{number % 200 + 1}"}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": TIMESTAMP,
        "conditions": [
            {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": TIMESTAMP}
            for type_, status in conditions.items()
        ],
        "containerStatuses": [
            {
                "name": MAIN_CONTAINER,
                "image": IMAGE,
                "imageID": f"{IMAGE}@sha256:{DIGEST}",
                "containerID": f"containerd://{DIGEST[::-1]}",
                "ready": ready,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": TIMESTAMP}},
                "lastState": {},
            }
        ],
    }


def _owner(number: int) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job_name(number),
        "uid": owner_uid(number),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _container(number: int) -> Manifest:
    job, index = job_name(number), number % PODS_PER_JOB
    variables = {
        "PADDLE_JOB_ID": job,
        "PADDLE_MASTER": f"{job}-worker-0:37777",
        "PADDLE_TRAINERS_NUM": str(PODS_PER_JOB),
        "PADDLE_TRAINER_ID": str(index),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{job}-worker-{peer}:37777" for peer in range(4)),
        "PADDLE_CURRENT_ENDPOINT": f"{job}-worker-{index}:37777",
        "PADDLE_PORT": "37777",
        "TRAINING_ROLE": "TRAINER",
        "GLOG_v": "0",
        "OMP_NUM_THREADS": "8",
    }
    return {
        "name": MAIN_CONTAINER,
        "image": IMAGE,
        "command": ["python", "-m", "paddle.distributed.launch", "train.py", "--epochs=10"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "ports": [{"name": "master", "containerPort": 37777}],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"cpu": "8", "memory": "32Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
