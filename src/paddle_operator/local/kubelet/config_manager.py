"""Caches the cluster's ConfigMaps and Secrets with their values, for variables and volumes of pods."""

import base64
import binascii
from collections.abc import Callable, Mapping

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Object, Resource
from paddle_operator.local.kubelet.container_env import SECRET


class ConfigMapData(Object, frozen=True):
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class SecretData(Object, frozen=True):
    data: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"SecretData({self.key})"  # no value in a log


CONFIG_MAPS = Resource("api/v1", "configmaps", ConfigMapData)
SECRETS = Resource("api/v1", "secrets", SecretData)


class ConfigManager:
    """Two informers; listeners are called with the key of each changed object."""

    def __init__(self, client: Client, scope: Scope, clock: Clock) -> None:
        self.config_maps: Informer[ConfigMapData, ConfigMapData] = Informer(client, CONFIG_MAPS, scope, clock=clock)
        self.secrets: Informer[SecretData, SecretData] = Informer(client, SECRETS, scope, clock=clock)

    def listen(self, listener: Callable[[Key], None]) -> None:
        self.config_maps.store.listen(lambda old, new, _: listener((new or old).key))  # type: ignore[union-attr]
        self.secrets.store.listen(lambda old, new, _: listener((new or old).key))  # type: ignore[union-attr]

    def data(self, kind: str, namespace: str, name: str) -> Mapping[str, bytes] | None:
        key = Key(namespace, name)
        if kind == SECRET:
            secret = self.secrets.store.get(key)
            return None if secret is None else _decode_values(secret.data)
        config_map = self.config_maps.store.get(key)
        if config_map is None:
            return None
        texts = {name: text.encode() for name, text in (config_map.data or {}).items()}
        return texts | _decode_values(config_map.binary_data)

    def text_data(self, kind: str, namespace: str, name: str) -> Mapping[str, str] | None:
        key = Key(namespace, name)
        if kind == SECRET:
            secret = self.secrets.store.get(key)
            decoded = _decode_values(secret.data) if secret else {}
            return None if secret is None else {name: value.decode(errors="replace") for name, value in decoded.items()}
        config_map = self.config_maps.store.get(key)
        return None if config_map is None else config_map.data or {}


def _decode_values(values: Mapping[str, str] | None) -> dict[str, bytes]:
    return {name: _decode_base64(text) for name, text in (values or {}).items()}


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""
