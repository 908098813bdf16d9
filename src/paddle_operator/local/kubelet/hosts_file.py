"""Renders a pod's /etc/hosts from Services and pods, since the local cluster has no DNS server.

A headless Service resolves to the addresses of all its pods. A Service with a cluster IP resolves to its first pod:
no port is forwarded, so `targetPort` must be the port that clients use.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from paddle_operator.kube.objects import Object, Resource, View
from paddle_operator.local.kubelet.pod import LocalPod

SERVICE_DOMAIN = "svc.cluster.local"
_LOCALHOST = (
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
)


class ServiceSpec(View, frozen=True):
    selector: dict[str, str] | None = None
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    type: str = "ClusterIP"
    publish_not_ready_addresses: bool = False


class Service(Object, frozen=True):
    spec: ServiceSpec = ServiceSpec()

    @property
    def is_headless(self) -> bool:
        return self.spec.cluster_ip == "None"

    def selects(self, pod: LocalPod) -> bool:
        spec, labels = self.spec, pod.metadata.labels
        if not spec.selector or pod.key.namespace != self.key.namespace:
            return False
        if any(labels.get(name) != value for name, value in spec.selector.items()):
            return False
        reachable = bool(pod.status.pod_ip) and not pod.finished
        return reachable and (pod.status.ready or spec.publish_not_ready_addresses)


SERVICES = Resource("api/v1", "services", Service)


@dataclass(frozen=True)
class HostRecord:
    """An address and its name; pods of the same namespace may use the name without the namespace."""

    address: str
    name: str
    namespace: str

    def aliases(self, namespace: str) -> tuple[str, ...]:
        name = f"{self.name}.{self.namespace}"
        short = (self.name,) if namespace == self.namespace else ()
        return (*short, name, f"{name}.svc", f"{name}.{SERVICE_DOMAIN}")


def cluster_records(services: Iterable[Service], pods: Iterable[LocalPod]) -> tuple[HostRecord, ...]:
    """All names that resolve in the cluster, in a stable order."""
    by_namespace: dict[str, list[LocalPod]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.key.namespace, []).append(pod)
    records = {
        record
        for service in services
        if service.spec.type != "ExternalName"
        for record in _service_records(service, by_namespace.get(service.key.namespace, []))
    }
    return tuple(sorted(records, key=lambda each: (each.namespace, each.name, _octets(each.address))))


def _service_records(service: Service, pods: Iterable[LocalPod]) -> Iterator[HostRecord]:
    selected = sorted((pod for pod in pods if service.selects(pod)), key=lambda pod: _octets(pod.status.pod_ip))
    name, namespace = service.key.name, service.key.namespace
    for pod in selected if service.is_headless else selected[:1]:
        yield HostRecord(pod.status.pod_ip, name, namespace)
    for pod in selected:
        if pod.spec.subdomain == name and pod.spec.hostname:
            yield HostRecord(pod.status.pod_ip, f"{pod.spec.hostname}.{name}", namespace)


class HostRecordCache:
    """The cluster's records, computed again only after `invalidate`."""

    def __init__(self, services: Iterable[Service], pods: Iterable[LocalPod]) -> None:
        self._services = services
        self._pods = pods
        self._records: tuple[HostRecord, ...] | None = None

    def records(self) -> tuple[HostRecord, ...]:
        if self._records is None:
            self._records = cluster_records(self._services, self._pods)
        return self._records

    def invalidate(self) -> None:
        self._records = None


def render_hosts(pod: LocalPod, address: str, records: Iterable[HostRecord], host_file: str = "") -> str:
    """The content of the file; pods on the host's network also see `host_file`, the host's own /etc/hosts."""
    lines = ["# Managed by the local cluster: changes are overwritten."]
    lines += [host_file.rstrip("\n")] if pod.spec.host_network and host_file else _LOCALHOST
    own = [pod.host_name]
    if pod.spec.subdomain and not pod.spec.host_network:
        own = [f"{pod.host_name}.{pod.spec.subdomain}.{pod.key.namespace}.{SERVICE_DOMAIN}", pod.host_name]
    lines.append(f"{address}\t{' '.join(own)}")
    lines += [f"{alias.ip}\t{' '.join(alias.hostnames)}" for alias in pod.spec.host_aliases]
    lines += [f"{each.address}\t{' '.join(each.aliases(pod.key.namespace))}" for each in records]
    return "\n".join(lines) + "\n"


def _octets(address: str) -> tuple[int, ...]:
    return tuple(int(part) for part in address.split(".") if part.isdigit())
