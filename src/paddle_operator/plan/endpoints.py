"""Where does each pod listen, and under which address do its peers know it?

POD_IP and every list spell an address alike, and with a dot: Paddle's launch compares texts, and ignores a POD_IP
without a dot. Paddle splits endpoints at the first colon, so only IPv4 addresses and names work.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from paddle_operator.api.paddlejob import Intranet, Role
from paddle_operator.kube.objects import Manifest
from paddle_operator.plan.children import PodView
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.metadata import ATTEMPT_ANNOTATION, JOB_UID_LABEL, POD_NAME_LABEL, owner_reference, pod_name
from paddle_operator.plan.observed import ObservedJob, individually_replaceable

DEFAULT_PORT = 2379
PORTS_PER_JOB = 20
GLOO_PORT_OFFSET = 18  # PS 0 serves the rendezvous on this port: on its training port it broke every job


@dataclass(frozen=True)
class Ports:
    """One port for each role. They differ on the host network, where two roles may share a node."""

    ps: int
    worker: int
    heter: int
    gloo: int

    def of(self, role: Role) -> int:
        return {Role.PS: self.ps, Role.WORKER: self.worker, Role.HETER: self.heter}[role]


def ports_of(job: Job) -> Ports:
    first = job.status.host_port
    if first is not None:
        return Ports(first, first + 1, first + 2, first + GLOO_PORT_OFFSET)
    return Ports(DEFAULT_PORT, DEFAULT_PORT, DEFAULT_PORT, DEFAULT_PORT + GLOO_PORT_OFFSET)


@dataclass(frozen=True)
class Endpoints:
    """The address and port of every pod, by role and index."""

    hosts: Mapping[Role, list[str]]
    ports: Ports
    pinned_hosts: Mapping[Role, list[str]]  # those that must not change: without individually replaceable pods

    def of(self, role: Role) -> str:
        port = self.ports.of(role)
        return ",".join(f"{host}:{port}" for host in self.hosts[role])

    @cached_property
    def digest(self) -> str:
        """Changes only if a pod would no longer be found: a variable added by a newer operator restarts nothing."""
        text = "\n".join(f"{role} {self.ports.of(role)} {','.join(hosts)}" for role, hosts in self.pinned_hosts.items())
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def endpoints_of(observed: ObservedJob) -> Endpoints | None:
    """None until every pod can be reached, and always for elastic jobs, whose pods meet through etcd.

    A name resolves only once its pod has an address and its Service exists.
    """
    if observed.spec.is_elastic or observed.missing_services:
        return None
    by_name = observed.spec.intranet is Intranet.SERVICE
    hosts: dict[Role, list[str]] = {}
    for role, pods in observed.pods_by_role.items():
        addresses = [pod.address for pod in pods if pod and (pod.address if by_name else is_ipv4(pod.address))]
        if len(addresses) < len(pods):
            return None
        names = [service_address(observed.job, role, index) for index in range(len(pods))] if by_name else []
        hosts[role] = names or addresses
    has_replaceable = bool(observed.spec.worker) and individually_replaceable(observed.spec, Role.WORKER, 1)
    pinned = {**hosts, Role.WORKER: hosts[Role.WORKER][:1]} if has_replaceable else hosts
    return Endpoints(hosts, ports_of(observed.job), pinned)


def service_address(job: Job, role: Role, index: int) -> str:
    return f"{pod_name(job.key, role, index)}.{job.key.namespace}.svc"


def is_ipv4(address: str) -> bool:
    return "." in address and ":" not in address


def has_no_ipv4(observed: ObservedJob, pod: PodView) -> bool:
    """Its address is one that Paddle cannot parse. A second one would not help: POD_IP is always the first."""
    return observed.spec.intranet is not Intranet.SERVICE and bool(pod.address) and not is_ipv4(pod.address)


def service_manifest(job: Job, role: Role, index: int) -> Manifest:
    """A headless Service that gives one pod a name, also before the pod is ready."""
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
            "ports": [{"port": DEFAULT_PORT, "targetPort": DEFAULT_PORT, "protocol": "TCP"}],
        },
    }
