"""The environment and the command line of a container, computed without a process."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddle_operator.local.cri import Image
from paddle_operator.local.kubelet.container_env import (
    ConfigError,
    DownwardContext,
    expand_references,
    process_environment,
    resolve_command,
    resolve_env,
)
from paddle_operator.local.kubelet.pod import ContainerSpec, LocalPod


class FakeConfigs:
    """ConfigMaps and Secrets of one namespace."""

    def __init__(self, **contents: Mapping[str, bytes]) -> None:
        self._contents = contents

    def data(self, kind: str, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return self._contents.get(name)

    def text_data(self, kind: str, namespace: str, name: str) -> Mapping[str, str] | None:
        data = self._contents.get(name)
        return None if data is None else {key: value.decode() for key, value in data.items()}


def container(**fields: Any) -> ContainerSpec:
    return msgspec.convert({"name": "main", "image": "python"} | fields, ContainerSpec)


def context(**fields: Any) -> DownwardContext:
    meta = {
        "name": "mnist-worker-0",
        "namespace": "ml",
        "uid": "u1",
        "labels": {"role": "worker"},
        "annotations": {"note": 'a "quoted"\nword'},
    }
    manifest = {"metadata": meta, "spec": {"nodeName": "local-1", "containers": [{"name": "main"}]} | fields}
    return DownwardContext(msgspec.convert(manifest, LocalPod), "127.16.0.1", "127.16.1.7", {"cpu": Fraction(4)})


def field(path: str) -> dict[str, Any]:
    return {"name": "VALUE", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(HOST):$(PORT)", "there:80"),
        ("$(ABSENT)", "$(ABSENT)"),
        ("$$(HOST)", "$(HOST)"),
        ("$$$(HOST)", "$there"),
        ("cost: 5$", "cost: 5$"),
        ("$(HOST", "$(HOST"),
        ("$HOST", "$HOST"),
        ("$()", "$()"),
    ],
)
def test_references_are_expanded_like_kubelet(text: str, value: str) -> None:
    assert expand_references(text, {"HOST": "there", "PORT": "80"}) == value


def test_variable_can_refer_only_to_earlier_ones() -> None:
    spec = container(
        envFrom=[{"configMapRef": {"name": "common"}}],
        env=[
            {"name": "URL", "value": "$(HOST):$(PORT)"},
            {"name": "PORT", "value": "80"},
            {"name": "AGAIN", "value": "$(URL)/$(PORT)"},
        ],
    )
    variables = resolve_env(spec, context(), FakeConfigs(common={"HOST": b"there"}))
    assert variables == {"HOST": "there", "URL": "there:$(PORT)", "PORT": "80", "AGAIN": "there:$(PORT)/80"}


def test_env_overrides_later_and_earlier_env_from() -> None:
    spec = container(
        envFrom=[{"configMapRef": {"name": "one"}}, {"secretRef": {"name": "two"}, "prefix": "P_"}],
        env=[{"name": "A", "value": "own"}],
    )
    variables = resolve_env(spec, context(), FakeConfigs(one={"A": b"1", "P_B": b"1"}, two={"B": b"2"}))
    assert variables == {"A": "own", "P_B": "2"}


def test_invalid_variable_name_is_skipped() -> None:
    spec = container(envFrom=[{"configMapRef": {"name": "one"}}])
    assert resolve_env(spec, context(), FakeConfigs(one={"a=b": b"1", "good": b"2"})) == {"good": "2"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "mnist"}}]}, 'configmap "mnist" not found'),
        ({"envFrom": [{"secretRef": {"name": "mnist"}}]}, 'secret "mnist" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "there", "key": "k"}}}]},
            "couldn't find key k in ConfigMap ml/there",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "there", "key": "k"}}}]},
            "couldn't find key k in Secret ml/there",
        ),
        ({"env": [field("status.phase")]}, "unsupported fieldPath: status.phase"),
    ],
)
def test_missing_configuration_has_kubelets_message(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_env(container(**fields), context(), FakeConfigs(there={}))


def test_optional_references_may_be_missing() -> None:
    absent = {"name": "absent", "key": "k", "optional": True}
    spec = container(
        envFrom=[{"configMapRef": {"name": "absent", "optional": True}}],
        env=[
            {"name": "A", "valueFrom": {"configMapKeyRef": absent}},
            {"name": "B", "valueFrom": {"secretKeyRef": absent}},
        ],
    )
    assert resolve_env(spec, context(), FakeConfigs()) == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "mnist-worker-0"),
        ("metadata.namespace", "ml"),
        ("metadata.uid", "u1"),
        ("metadata.labels['role']", "worker"),
        ("metadata.annotations['absent']", ""),
        ("metadata.annotations", 'note="a \\"quoted\\"\\nword"'),
        ("spec.nodeName", "local-1"),
        ("spec.serviceAccountName", "default"),
        ("status.hostIP", "127.16.0.1"),
        ("status.podIP", "127.16.1.7"),
        ("status.podIPs", "127.16.1.7"),
    ],
)
def test_downward_api_fields(path: str, value: str) -> None:
    assert resolve_env(container(env=[field(path)]), context(), FakeConfigs()) == {"VALUE": value}


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.memory", "divisor": "1Mi"}, "512"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu"}, "2"),  # rounded up to whole cores
        ({"resource": "limits.cpu"}, "4"),  # not set: what the node has
        ({"resource": "requests.memory"}, str(512 * 1024**2)),  # not set: what the limit says
    ],
)
def test_downward_api_resources(reference: dict[str, str], value: str) -> None:
    resources = {"limits": {"memory": "512Mi"}, "requests": {"cpu": "1500m"}}
    spec = container(resources=resources, env=[{"name": "VALUE", "valueFrom": {"resourceFieldRef": reference}}])
    pod = context(containers=[{"name": "main", "resources": resources}])
    assert resolve_env(spec, pod, FakeConfigs()) == {"VALUE": value}


IMAGE = Image("demo", entrypoint=("python3",), command=("train.py",), environment={"PATH": "/image/bin", "LANG": "C"})


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, ("python3", "train.py")),
        ({"args": ["other.py"]}, ("python3", "other.py")),
        ({"command": ["bash", "-c"]}, ("bash", "-c")),
        ({"command": ["bash", "-c"], "args": ["echo $(RANK) $$HOME"]}, ("bash", "-c", "echo 3 $HOME")),
    ],
)
def test_command_and_args_override_entrypoint_and_cmd(fields: dict[str, Any], line: tuple[str, ...]) -> None:
    assert resolve_command(container(**fields), IMAGE, {"RANK": "3"}) == line


def test_missing_command_names_the_fix() -> None:
    with pytest.raises(
        ConfigError, match="image python has neither ENTRYPOINT nor CMD, so set command of container main"
    ):
        resolve_command(container(), Image("python"), {})


def test_image_programs_come_first_in_path() -> None:
    image = Image("demo", environment={"PATH": "/image/bin"}, programs=(Path("/venv/bin"),))
    assert process_environment({}, image, host_name="me", home="/root")["PATH"] == "/venv/bin:/image/bin"
    assert process_environment({"PATH": "/own"}, image, host_name="me", home="/root")["PATH"] == "/own"


def test_default_environment() -> None:
    assert process_environment({}, Image("bare"), host_name="me", home="/root") == {
        "HOSTNAME": "me",
        "HOME": "/root",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
