"""Where does each pod listen, and under which address do the others know it?

The same spelling stands in POD_IP and in every list, and it has a dot: Paddle's launch compares texts, and takes a
POD_IP without a dot for none (paddle-runtime.md, sections 0 and 2b). Paddle splits endpoints at the first colon: only
IPv4 addresses and names work.
"""

from dataclasses import dataclass
from typing import Any

from paddle_operator.api.paddlejob import API_VERSION, KIND, Intranet, Role
from paddle_operator.kube.objects import Manifest
from paddle_operator.plan.names import ATTEMPT, POD_NAME_LABEL, pod_name
from paddle_operator.plan.world import Job, PodView

PORT = 2379
PORTS_PER_JOB = 20
GLOO_OFFSET = 18  # PS 0 serves the rendezvous on a port of its own: on its training port it broke every job


@dataclass(frozen=True)
class Ports:
    """One port a role. On the host network two roles may share a node, so there each has its own."""

    ps: int
    worker: int
    heter: int
    gloo: int

    def of(self, role: Role) -> int:
        return {Role.PS: self.ps, Role.WORKER: self.worker, Role.HETER: self.heter}[role]


def ports_of(job: Job) -> Ports:
    first = job.status.host_port
    if job.spec and job.spec.intranet is Intranet.HOST and first is not None:
        return Ports(first, first + 1, first + 2, first + GLOO_OFFSET)
    return Ports(PORT, PORT, PORT, PORT + GLOO_OFFSET)


def service_address(job: Job, role: Role, index: int) -> str:
    return f"{pod_name(job.key, role, index)}.{job.key.namespace}.svc"


def ipv4_of(pod: PodView) -> str | None:
    return next((each for each in pod.addresses if "." in each and ":" not in each), None)


def address_of(job: Job, role: Role, index: int, pod: PodView) -> str | None:
    """How the others reach this pod, or None while they cannot: a name resolves only once its pod has an address."""
    if not pod.addresses:
        return None
    if job.spec and job.spec.intranet is Intranet.SERVICE:
        return service_address(job, role, index)
    return ipv4_of(pod)


def owner_of(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def service(job: Job, role: Role, index: int) -> Manifest:
    """The headless Service that gives one pod a name, also before it is ready."""
    name = pod_name(job.key, role, index)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": job.key.namespace,
            "annotations": {ATTEMPT: str(job.status.attempt)},
            "ownerReferences": [owner_of(job)],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {POD_NAME_LABEL: name},
            "ports": [{"port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    }
