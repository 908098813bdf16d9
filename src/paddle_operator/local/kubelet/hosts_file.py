"""Which names does a pod resolve? The text of its /etc/hosts, made of Services and pods; there is no DNS server here.

A headless Service's name is the addresses of its pods. A Service with a cluster address is its first pod: nothing here
forwards a port, so `targetPort` has to be the port that clients use.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from paddle_operator.kube.objects import Object, Resource, View
from paddle_operator.local.kubelet.pod import LocalPod

DOMAIN = "svc.cluster.local"
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

    def serves(self, pod: LocalPod) -> bool:
        spec, labels = self.spec, pod.metadata.labels
        if not spec.selector or pod.key.namespace != self.key.namespace:
            return False
        if any(labels.get(name) != value for name, value in spec.selector.items()):
            return False
        reachable = bool(pod.status.pod_ip) and not pod.finished
        return reachable and (pod.status.ready or spec.publish_not_ready_addresses)


SERVICES = Resource("api/v1", "services", Service)


@dataclass(frozen=True)
class Name:
    """An address under a name of a namespace; pods of that namespace may leave the namespace away."""

    address: str
    name: str
    namespace: str

    def spellings(self, namespace: str) -> tuple[str, ...]:
        name = f"{self.name}.{self.namespace}"
        short = (self.name,) if namespace == self.namespace else ()
        return (*short, name, f"{name}.svc", f"{name}.{DOMAIN}")


def names_of(services: Iterable[Service], pods: Iterable[LocalPod]) -> tuple[Name, ...]:
    """Every name that resolves in the cluster, in a stable order."""
    by_namespace: dict[str, list[LocalPod]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.key.namespace, []).append(pod)
    found = {
        name
        for service in services
        if service.spec.type != "ExternalName"
        for name in _names_of(service, by_namespace.get(service.key.namespace, []))
    }
    return tuple(sorted(found, key=lambda name: (name.namespace, name.name, _numbers(name.address))))


def _names_of(service: Service, pods: Iterable[LocalPod]) -> Iterator[Name]:
    served = sorted((pod for pod in pods if service.serves(pod)), key=lambda pod: _numbers(pod.status.pod_ip))
    name, namespace = service.key.name, service.key.namespace
    for pod in served if service.is_headless else served[:1]:
        yield Name(pod.status.pod_ip, name, namespace)
    for pod in served:
        if pod.spec.subdomain == name and pod.spec.hostname:
            yield Name(pod.status.pod_ip, f"{pod.spec.hostname}.{name}", namespace)


def hosts_text(pod: LocalPod, address: str, names: Iterable[Name], machine: str = "") -> str:
    """The whole file; `machine` is the text of the machine's own, which pods on the host's network see as well."""
    lines = ["# Written by the local cluster and kept up to date."]
    lines += [machine.rstrip("\n")] if pod.spec.host_network and machine else _LOCALHOST
    own = [pod.host_name]
    if pod.spec.subdomain and not pod.spec.host_network:
        own = [f"{pod.host_name}.{pod.spec.subdomain}.{pod.key.namespace}.{DOMAIN}", pod.host_name]
    lines.append(f"{address}\t{' '.join(own)}")
    lines += [f"{alias.ip}\t{' '.join(alias.hostnames)}" for alias in pod.spec.host_aliases]
    lines += [f"{name.address}\t{' '.join(name.spellings(pod.key.namespace))}" for name in names]
    return "\n".join(lines) + "\n"


def _numbers(address: str) -> tuple[int, ...]:
    return tuple(int(part) for part in address.split(".") if part.isdigit())
