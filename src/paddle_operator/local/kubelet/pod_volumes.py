"""A pod's volumes as the node reads them; a kind that is not here is one that a pod cannot have on this machine."""

from typing import Any

import msgspec

from paddle_operator.kube.objects import View


class Item(View, frozen=True):
    """A key that becomes a file."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class FieldOf(View, frozen=True):
    field_path: str = ""


class ResourceOf(View, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: str | int | float = "0"


class DownwardItem(View, frozen=True):
    path: str = ""
    field_ref: FieldOf | None = None
    resource_field_ref: ResourceOf | None = None
    mode: int | None = None


class ConfigMapFiles(View, frozen=True):
    name: str = ""
    items: tuple[Item, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class SecretFiles(View, frozen=True):
    """A Secret has a secretName as a volume, and a name where it is projected."""

    secret_name: str = ""
    name: str = ""
    items: tuple[Item, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class DownwardFiles(View, frozen=True):
    items: tuple[DownwardItem, ...] = ()
    default_mode: int | None = None


class Source(View, frozen=True):
    config_map: ConfigMapFiles | None = None
    secret: SecretFiles | None = None
    downward_api: DownwardFiles | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: dict[str, Any] | None = None


class Projected(View, frozen=True):
    sources: tuple[Source, ...] = ()
    default_mode: int | None = None


class EmptyDir(View, frozen=True):
    medium: str = ""
    size_limit: str | int | float | None = None


class HostPath(View, frozen=True):
    path: str = ""
    type: str = ""


class Claim(View, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class Volume(View, frozen=True):
    name: str
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    config_map: ConfigMapFiles | None = None
    secret: SecretFiles | None = None
    downward_api: DownwardFiles | None = msgspec.field(default=None, name="downwardAPI")
    projected: Projected | None = None
    persistent_volume_claim: Claim | None = None
