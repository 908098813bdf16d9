"""What are a container's environment variables and its command line? Kubelet's rules, as pure functions.

Errors have kubelet's text, since users search for it: `configmap "mnist" not found`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from paddle_operator.kube.quantities import Amounts, amount, in_units
from paddle_operator.local.cri import DEFAULT_PATH, Image
from paddle_operator.local.kubelet.pod import (
    ConfigKeySelector,
    ContainerSpec,
    EnvFromSource,
    EnvVarSource,
    LocalPod,
    ResourceFieldSelector,
)

CONFIG_MAP, SECRET = "configmap", "secret"  # as kubelet spells them in "not found"
_KIND_NAMES = {CONFIG_MAP: "ConfigMap", SECRET: "Secret"}
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


class ConfigError(Exception):
    """A container's configuration is missing or invalid; str() is kubelet's message."""


class ConfigReader(Protocol):
    """Reads ConfigMaps and Secrets from a cache; None if the object does not exist."""

    def data(self, kind: str, namespace: str, name: str) -> Mapping[str, bytes] | None: ...

    def text_data(self, kind: str, namespace: str, name: str) -> Mapping[str, str] | None:
        """What envFrom may use: without a ConfigMap's binary data."""


@dataclass(frozen=True)
class DownwardContext:
    """What the downward API exposes: the pod, and values that its object does not have yet."""

    pod: LocalPod
    host_ip: str = ""
    pod_ip: str = ""
    allocatable: Amounts = field(default_factory=dict)


def expand_references(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable's value, if there is such a variable, and `$$` by a dollar sign."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return "$" if name is None else variables.get(name, found[0])

    return _REFERENCE.sub(value, text)


def resolve_env(container: ContainerSpec, context: DownwardContext, configs: ConfigReader) -> dict[str, str]:
    """The variables of `env` and `envFrom`. Raises ConfigError."""
    variables: dict[str, str] = {}
    for source in container.env_from:
        variables |= _env_from(source, context.pod.key.namespace, configs)
    for variable in container.env:
        if variable.value_from is None:
            variables[variable.name] = expand_references(variable.value, variables)
        else:
            value = _value_from(variable.value_from, container, context, configs)
            if value is not None:
                variables[variable.name] = value
    return variables


def process_environment(variables: Mapping[str, str], image: Image, *, host_name: str, home: str) -> dict[str, str]:
    """All variables of the process: the manifest's override the image's, which override the runtime's defaults."""
    environment = {"PATH": DEFAULT_PATH, "HOSTNAME": host_name, "HOME": home} | dict(image.environment)
    environment |= dict(variables)
    if image.programs and "PATH" not in variables:
        environment["PATH"] = ":".join([*map(str, image.programs), environment["PATH"]])
    return environment


def resolve_command(container: ContainerSpec, image: Image, variables: Mapping[str, str]) -> tuple[str, ...]:
    """The command line; `command` replaces the image's entrypoint and arguments. Raises ConfigError if it is empty."""
    command = tuple(expand_references(each, variables) for each in container.command)
    arguments = tuple(expand_references(each, variables) for each in container.args)
    line = (*command, *arguments) if command else (*image.entrypoint, *(arguments or image.command))
    if not line:
        raise ConfigError(
            f"no command specified: image {container.image} has neither ENTRYPOINT nor CMD, "
            f"so set command of container {container.name}"
        )
    return line


def not_found_message(kind: str, name: str) -> str:
    return f'{kind} "{name}" not found'


def key_not_found_message(kind: str, namespace: str, name: str, key: str) -> str:
    return f"couldn't find key {key} in {_KIND_NAMES[kind]} {namespace}/{name}"


def _env_from(source: EnvFromSource, namespace: str, configs: ConfigReader) -> dict[str, str]:
    for kind, reference in ((CONFIG_MAP, source.config_map_ref), (SECRET, source.secret_ref)):
        if reference is None:
            continue
        data = configs.text_data(kind, namespace, reference.name)
        if data is None and not reference.optional:
            raise ConfigError(not_found_message(kind, reference.name))
        variables = ((source.prefix + key, text) for key, text in sorted((data or {}).items()))
        return {name: text for name, text in variables if _is_variable_name(name)}
    return {}


def _is_variable_name(name: str) -> bool:
    """Since Kubernetes 1.34: all printable ASCII but the equals sign."""
    return bool(name) and name.isascii() and name.isprintable() and "=" not in name


def _value_from(
    source: EnvVarSource, container: ContainerSpec, context: DownwardContext, configs: ConfigReader
) -> str | None:
    """None if the target of an optional reference is missing: the variable is then not set."""
    namespace = context.pod.key.namespace
    if source.field_ref:
        return field_text(source.field_ref.field_path, context)
    if source.resource_field_ref:
        return resource_text(source.resource_field_ref, context, container.name)
    if source.config_map_key_ref:
        return _key_text(CONFIG_MAP, namespace, source.config_map_key_ref, configs)
    if source.secret_key_ref:
        return _key_text(SECRET, namespace, source.secret_key_ref, configs)
    return ""


def _key_text(kind: str, namespace: str, reference: ConfigKeySelector, configs: ConfigReader) -> str | None:
    data = configs.data(kind, namespace, reference.name)
    if data is None:
        if reference.optional:
            return None
        raise ConfigError(not_found_message(kind, reference.name))
    if reference.key not in data:
        if reference.optional:
            return None
        raise ConfigError(key_not_found_message(kind, namespace, reference.name, reference.key))
    return data[reference.key].decode(errors="replace")


def field_text(path: str, context: DownwardContext) -> str:
    """The value of a downward API field. Raises ConfigError if there is no such field."""
    pod = context.pod
    if found := _SUBSCRIPT.fullmatch(path):
        chosen = pod.metadata.labels if found[1] == "labels" else pod.metadata.annotations
        return chosen.get(found[2], "")
    fields = {
        "metadata.name": pod.key.name,
        "metadata.namespace": pod.key.namespace,
        "metadata.uid": pod.uid,
        "metadata.labels": _format_pairs(pod.metadata.labels),
        "metadata.annotations": _format_pairs(pod.metadata.annotations),
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name or "default",
        "status.hostIP": context.host_ip,
        "status.hostIPs": context.host_ip,
        "status.podIP": context.pod_ip,
        "status.podIPs": context.pod_ip,
    }
    if path not in fields:
        raise ConfigError(f"unsupported fieldPath: {path}; supported are {', '.join(fields)}")
    return fields[path]


def _format_pairs(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={_quoted(value)}" for name, value in sorted(pairs.items()))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def resource_text(reference: ResourceFieldSelector, context: DownwardContext, own_name: str) -> str:
    """A container's limit or request; an unset limit is the node's allocatable. Raises ConfigError."""
    name = reference.container_name or own_name
    container = next((each for each in context.pod.spec.all_containers if each.name == name), None)
    section, _, resource = reference.resource.partition(".")
    if container is None or section not in ("limits", "requests"):
        raise ConfigError(f"unsupported resourceFieldRef: {reference.resource} of container {name}")
    limits, requests = container.resources.limits, container.resources.requests
    quantity = limits.get(resource) if section == "limits" else requests.get(resource, limits.get(resource))
    if quantity is not None:
        value = amount(quantity)
    else:
        value = context.allocatable.get(resource, Fraction(0)) if section == "limits" else Fraction(0)
    return in_units(value, reference.divisor)
