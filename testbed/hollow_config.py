"""Which ConfigMaps and Secrets are there, and with which keys? Values are not kept.

A kubelet asks in the order of its own watches: a pod's annotation may be heard of before the ConfigMap made earlier.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Object, Resource
from testbed.hollow_pod import Need


class Content(Object, frozen=True):
    data: Mapping[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    binary_data: Mapping[str, msgspec.Raw] = msgspec.field(default_factory=dict)


class Keys(msgspec.Struct, frozen=True):
    """What is kept of a ConfigMap or Secret."""

    key: Key
    uid: str
    version: int
    names: frozenset[str]


CONFIG_MAPS = Resource("api/v1", "configmaps", Content)
SECRETS = Resource("api/v1", "secrets", Content)


class Config(Protocol):
    def lack(self, namespace: str, need: Need) -> str:
        """Kubelet's complaint about what is missing; empty where nothing is."""


class WatchedConfig:
    """All of a cluster's, followed by two informers."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.config_maps = Informer(client, CONFIG_MAPS, project=_keys, clock=clock)
        self.secrets = Informer(client, SECRETS, project=_keys, clock=clock)

    def lack(self, namespace: str, need: Need) -> str:
        informer, title = (self.secrets, "Secret") if need.kind == "secret" else (self.config_maps, "ConfigMap")
        found = informer.store.get(Key(namespace, need.name))
        if found is None:
            return f'{need.kind} "{need.name}" not found'
        absent = next((key for key in need.keys if key not in found.names), None)
        return f"couldn't find key {absent} in {title} {namespace}/{need.name}" if absent is not None else ""


def _keys(content: Content) -> Keys:
    return Keys(content.key, content.uid, content.version, frozenset(content.data) | frozenset(content.binary_data))
