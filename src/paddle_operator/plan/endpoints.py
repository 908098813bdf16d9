"""Where does each pod listen, and under which address do the others know it?

The same spelling stands in POD_IP and in every list, and it has a dot: Paddle's launch compares texts, and takes a
POD_IP without a dot for none (paddle-runtime.md, sections 0 and 2b). Paddle splits endpoints at the first colon: only
IPv4 addresses and names work.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paddle_operator.api.paddlejob import API_VERSION, KIND, Intranet, Role
from paddle_operator.kube.objects import Manifest
from paddle_operator.plan.children import Job, PodView
from paddle_operator.plan.metadata import ATTEMPT_ANNOTATION, JOB_UID_LABEL, POD_NAME_LABEL, pod_name
from paddle_operator.plan.observed import ObservedJob, individually_replaceable

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
    if first is not None:
        return Ports(first, first + 1, first + 2, first + GLOO_OFFSET)
    return Ports(PORT, PORT, PORT, PORT + GLOO_OFFSET)


@dataclass(frozen=True)
class Endpoints:
    """Under which address and port the pods know each other, by role and index."""

    hosts: Mapping[Role, list[str]]
    ports: Ports
    pinned_hosts: Mapping[Role, list[str]]  # those that others have: without the pods that stand alone

    def of(self, role: Role) -> str:
        port = self.ports.of(role)
        return ",".join(f"{host}:{port}" for host in self.hosts[role])

    @cached_property
    def digest(self) -> str:
        """Changes only where a pod would no longer be found: a variable that a later version adds restarts nothing."""
        text = "\n".join(f"{role} {self.ports.of(role)} {','.join(hosts)}" for role, hosts in self.pinned_hosts.items())
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def endpoints_of(observed: ObservedJob) -> Endpoints | None:
    """None while one of them cannot be reached yet, and always for elastic jobs, which find each other through etcd.

    A name resolves only once its pod has an address and its Service is there.
    """
    if observed.spec.is_elastic or observed.missing_services:
        return None
    by_name = observed.spec.intranet is Intranet.SERVICE
    hosts: dict[Role, list[str]] = {}
    for role, pods_by_role in observed.pods_by_role.items():
        known = [pod.address for pod in pods_by_role if pod and (pod.address if by_name else is_ipv4(pod.address))]
        if len(known) < len(pods_by_role):
            return None
        hosts[role] = (
            [service_address(observed.job, role, index) for index in range(len(pods_by_role))] if by_name else known
        )
    loose = individually_replaceable(observed.spec, Role.WORKER, 1)
    pinned_hosts = {**hosts, Role.WORKER: hosts[Role.WORKER][:1]} if loose and observed.spec.worker else hosts
    return Endpoints(hosts, ports_of(observed.job), pinned_hosts)


def service_address(job: Job, role: Role, index: int) -> str:
    return f"{pod_name(job.key, role, index)}.{job.key.namespace}.svc"


def is_ipv4(address: str) -> bool:
    return "." in address and ":" not in address


def has_no_ipv4(observed: ObservedJob, pod: PodView) -> bool:
    """It has an address, but none that Paddle can read. A second one would not help: POD_IP is always the first."""
    return observed.spec.intranet is not Intranet.SERVICE and bool(pod.address) and not is_ipv4(pod.address)


def owner_reference(job: Job) -> dict[str, Any]:
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
            "labels": {JOB_UID_LABEL: job.uid},
            "annotations": {ATTEMPT_ANNOTATION: str(job.status.attempt)},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {POD_NAME_LABEL: name},
            "ports": [{"port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    }
