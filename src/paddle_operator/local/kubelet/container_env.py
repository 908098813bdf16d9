"""What does a container find in its environment, and what is its command line? Kubelet's rules, as pure functions.

What is missing is said in kubelet's words, since people search for them: `configmap "mnist" not found`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from paddle_operator.kube.quantities import Amounts, amount, in_units
from paddle_operator.local.cri import DEFAULT_PATH, Image
from paddle_operator.local.kubelet.pod import ContainerSpec, KeyOf, LocalPod, ValueFrom, Variables
from paddle_operator.local.kubelet.pod_volumes import ResourceOf

CONFIG_MAP, SECRET = "configmap", "secret"  # as kubelet spells them when they are missing
_TITLES = {CONFIG_MAP: "ConfigMap", SECRET: "Secret"}
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


class ConfigError(Exception):
    """Something that a container needs is not there; str() is kubelet's complaint."""


class Contents(Protocol):
    """The values of ConfigMaps and Secrets."""

    def content(self, kind: str, namespace: str, name: str) -> Mapping[str, bytes] | None: ...

    def texts(self, kind: str, namespace: str, name: str) -> Mapping[str, str] | None:
        """Only what envFrom makes variables of: a ConfigMap's binary data is left out."""


@dataclass(frozen=True)
class Facts:
    """What is known of a pod that its object does not say yet, or never will."""

    pod: LocalPod
    node_address: str = ""
    address: str = ""
    allocatable: Amounts = field(default_factory=dict)


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` is the variable's value, or stays as it is where there is none; `$$` is a dollar sign."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return "$" if name is None else variables.get(name, found[0])

    return _REFERENCE.sub(value, text)


def variables(container: ContainerSpec, facts: Facts, contents: Contents) -> dict[str, str]:
    """What the manifest asks for. Raises ConfigError."""
    made: dict[str, str] = {}
    for source in container.env_from:
        made |= _all_of(source, facts.pod.key.namespace, contents)
    for variable in container.env:
        if variable.value_from is None:
            made[variable.name] = expanded(variable.value, made)
        else:
            value = _value(variable.value_from, container, facts, contents)
            if value is not None:
                made[variable.name] = value
    return made


def environment(asked: Mapping[str, str], image: Image, *, host_name: str, home: str) -> dict[str, str]:
    """All that the process sees: what the manifest asks for, over what the image says, over what a runtime sets."""
    whole = {"PATH": DEFAULT_PATH, "HOSTNAME": host_name, "HOME": home} | dict(image.environment) | dict(asked)
    if image.programs and "PATH" not in asked:
        whole["PATH"] = ":".join([*map(str, image.programs), whole["PATH"]])
    return whole


def command_line(container: ContainerSpec, image: Image, asked: Mapping[str, str]) -> tuple[str, ...]:
    """A command of the manifest replaces the image's entrypoint and arguments. Raises ConfigError for none."""
    command = tuple(expanded(each, asked) for each in container.command)
    arguments = tuple(expanded(each, asked) for each in container.args)
    line = (*command, *arguments) if command else (*image.entrypoint, *(arguments or image.command))
    if not line:
        raise ConfigError(
            f"no command specified: image {container.image} has neither ENTRYPOINT nor CMD, "
            f"so set command of container {container.name}"
        )
    return line


def missing(kind: str, name: str) -> str:
    return f'{kind} "{name}" not found'


def missing_key(kind: str, namespace: str, name: str, key: str) -> str:
    return f"couldn't find key {key} in {_TITLES[kind]} {namespace}/{name}"


def _all_of(source: Variables, namespace: str, contents: Contents) -> dict[str, str]:
    for kind, reference in ((CONFIG_MAP, source.config_map_ref), (SECRET, source.secret_ref)):
        if reference is None:
            continue
        texts = contents.texts(kind, namespace, reference.name)
        if texts is None and not reference.optional:
            raise ConfigError(missing(kind, reference.name))
        named = ((source.prefix + key, text) for key, text in sorted((texts or {}).items()))
        return {name: text for name, text in named if _can_be_a_name(name)}
    return {}


def _can_be_a_name(name: str) -> bool:
    """Since 1.34 everything printable but the equals sign."""
    return bool(name) and name.isascii() and name.isprintable() and "=" not in name


def _value(source: ValueFrom, container: ContainerSpec, facts: Facts, contents: Contents) -> str | None:
    """None where an optional reference leads nowhere: then there is no such variable."""
    namespace = facts.pod.key.namespace
    if source.field_ref:
        return field_text(source.field_ref.field_path, facts)
    if source.resource_field_ref:
        return resource_text(source.resource_field_ref, facts, container.name)
    if source.config_map_key_ref:
        return _key_text(CONFIG_MAP, namespace, source.config_map_key_ref, contents)
    if source.secret_key_ref:
        return _key_text(SECRET, namespace, source.secret_key_ref, contents)
    return ""


def _key_text(kind: str, namespace: str, reference: KeyOf, contents: Contents) -> str | None:
    content = contents.content(kind, namespace, reference.name)
    if content is None:
        if reference.optional:
            return None
        raise ConfigError(missing(kind, reference.name))
    if reference.key not in content:
        if reference.optional:
            return None
        raise ConfigError(missing_key(kind, namespace, reference.name, reference.key))
    return content[reference.key].decode(errors="replace")


def field_text(path: str, facts: Facts) -> str:
    """The downward API's fields of a pod. Raises ConfigError for one that it does not have."""
    pod = facts.pod
    if found := _SUBSCRIPT.fullmatch(path):
        chosen = pod.metadata.labels if found[1] == "labels" else pod.metadata.annotations
        return chosen.get(found[2], "")
    fields = {
        "metadata.name": pod.key.name,
        "metadata.namespace": pod.key.namespace,
        "metadata.uid": pod.uid,
        "metadata.labels": _lines(pod.metadata.labels),
        "metadata.annotations": _lines(pod.metadata.annotations),
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name or "default",
        "status.hostIP": facts.node_address,
        "status.hostIPs": facts.node_address,
        "status.podIP": facts.address,
        "status.podIPs": facts.address,
    }
    if path not in fields:
        raise ConfigError(f"unsupported fieldPath: {path}; there are {', '.join(fields)}")
    return fields[path]


def _lines(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={_quoted(value)}" for name, value in sorted(pairs.items()))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def resource_text(reference: ResourceOf, facts: Facts, own_name: str) -> str:
    """A container's limit or request; a limit that is not set is what the node can give. Raises ConfigError."""
    name = reference.container_name or own_name
    container = next((each for each in facts.pod.spec.every_container if each.name == name), None)
    which, _, resource = reference.resource.partition(".")
    if container is None or which not in ("limits", "requests"):
        raise ConfigError(f"unsupported resourceFieldRef: {reference.resource} of container {name}")
    limits, requests = container.resources.limits, container.resources.requests
    quantity = limits.get(resource) if which == "limits" else requests.get(resource, limits.get(resource))
    if quantity is not None:
        value = amount(quantity)
    else:
        value = facts.allocatable.get(resource, Fraction(0)) if which == "limits" else Fraction(0)
    return in_units(value, reference.divisor)
