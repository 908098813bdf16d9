"""Which ConfigMaps and Secrets does a pod need, and which exist with which keys? Values are not stored.

A kubelet sees changes in the order of its own watches: an annotation of a pod may arrive before a ConfigMap that was
created earlier.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Object, Resource
from paddle_operator.local.kubelet.container_env import CONFIG_MAP, SECRET, key_not_found_message, not_found_message
from paddle_operator.local.kubelet.pod import (
    ConfigMapVolumeSource,
    ContainerSpec,
    LocalPod,
    SecretVolumeSource,
    Volume,
    VolumeProjection,
)


class Requirement(NamedTuple):
    """A ConfigMap or Secret that must exist, and keys that it must have."""

    kind: str  # as kubelet spells it in its messages
    name: str
    keys: tuple[str, ...] = ()


class ConfigChecker(Protocol):
    def missing(self, namespace: str, requirement: Requirement) -> str:
        """Kubelet's message about what is missing; empty if nothing is."""


class ConfigKeys(msgspec.Struct, frozen=True):
    """What is stored of a ConfigMap or Secret."""

    key: Key
    uid: str
    version: int
    names: frozenset[str]


class RawConfig(Object, frozen=True):
    data: Mapping[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    binary_data: Mapping[str, msgspec.Raw] = msgspec.field(default_factory=dict)


CONFIG_MAPS = Resource("api/v1", "configmaps", RawConfig)
SECRETS = Resource("api/v1", "secrets", RawConfig)


class ConfigCache:
    """The keys of all ConfigMaps and Secrets of a cluster, from two informers."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.config_maps = Informer(client, CONFIG_MAPS, project=_project_keys, clock=clock)
        self.secrets = Informer(client, SECRETS, project=_project_keys, clock=clock)

    def missing(self, namespace: str, requirement: Requirement) -> str:
        kind, name, keys = requirement
        informer = self.secrets if kind == SECRET else self.config_maps
        found = informer.store.get(Key(namespace, name))
        if found is None:
            return not_found_message(kind, name)
        absent = next((key for key in keys if key not in found.names), None)
        return "" if absent is None else key_not_found_message(kind, namespace, name, absent)


def _project_keys(config: RawConfig) -> ConfigKeys:
    return ConfigKeys(config.key, config.uid, config.version, frozenset(config.data) | frozenset(config.binary_data))


def volume_requirements(pod: LocalPod) -> Iterator[Requirement]:
    """What the pod's volumes need before they can be mounted."""
    for volume in pod.spec.volumes:
        yield from _source_requirements(volume)
        for source in volume.projected.sources if volume.projected else ():
            yield from _source_requirements(source)


def _source_requirements(source: Volume | VolumeProjection) -> Iterator[Requirement]:
    kinds: tuple[tuple[str, ConfigMapVolumeSource | SecretVolumeSource | None], ...] = (
        (CONFIG_MAP, source.config_map),
        (SECRET, source.secret),
    )
    for kind, files in kinds:
        if files and not files.optional:
            name = files.name or (files.secret_name if isinstance(files, SecretVolumeSource) else "")
            yield Requirement(kind, name, tuple(item.key for item in files.items))


def container_requirements(container: ContainerSpec) -> Iterator[Requirement]:
    """What the container's variables need before it can be created."""
    for source in container.env_from:
        for kind, reference in ((CONFIG_MAP, source.config_map_ref), (SECRET, source.secret_ref)):
            if reference and not reference.optional:
                yield Requirement(kind, reference.name)
    for variable in container.env:
        if value_from := variable.value_from:
            for kind, selector in (
                (CONFIG_MAP, value_from.config_map_key_ref),
                (SECRET, value_from.secret_key_ref),
            ):
                if selector and not selector.optional:
                    yield Requirement(kind, selector.name, (selector.key,))
