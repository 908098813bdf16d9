"""Fuzzed requests get a Status or an object, never an internal error."""

import contextlib
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddle_operator.api.crd import crd
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.kube.clock import SystemClock
from paddle_operator.local.apiserver.api_errors import StatusError
from paddle_operator.local.apiserver.handlers import APIRequest, Handlers
from paddle_operator.local.apiserver.patch.json_patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from paddle_operator.local.apiserver.registry.resource import APIResponse
from paddle_operator.local.apiserver.request_info import parse_request_path
from paddle_operator.local.apiserver.scheme.builtin import BUILTIN_KINDS
from paddle_operator.local.apiserver.scheme.custom_resource import kind_from_crd
from paddle_operator.local.apiserver.scheme.kind import accept_all
from tests.conftest import print_line

MAX_REQUESTS = 4000
ODD_VALUES: list[Any] = [
    None,
    0,
    -1,
    2**40,
    1.5,
    True,
    "",
    "x",
    "ä€😀",
    "a" * 300,
    [],
    [None],
    [1, "x"],
    {},
    {"x": None},
    {"": {}},
]
METADATA = {"name": "a", "labels": {"x": "y"}, "annotations": {"x": "y"}, "finalizers": ["a.b/c"]}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "blockOwnerDeletion": True}
CONTAINER = {
    "name": "main",
    "image": "image",
    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}],
    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    "ports": [{"containerPort": 80}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
}
TEMPLATE = {"spec": {"containers": [CONTAINER], "volumes": [{"name": "v", "emptyDir": {}}]}}
CORE = "/api/v1/namespaces/default/"
OBJECTS: dict[str, dict[str, Any]] = {
    f"{CORE}pods": TEMPLATE | {"status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": []}},
    f"{CORE}services": {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}, "clusterIP": "None"}},
    f"{CORE}configmaps": {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}},
    f"{CORE}secrets": {"stringData": {"a": "b"}, "type": "Opaque"},
    f"{CORE}events": {"involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"}, "count": 1, "source": {}},
    f"{CORE}persistentvolumeclaims": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "/api/v1/namespaces": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "/api/v1/nodes": {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "1"}, "addresses": []}},
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {"spec": {"holderIdentity": "x", "leaseTransitions": 1}},
    "/apis/events.k8s.io/v1/namespaces/default/events": {
        "regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
    },
    "/apis/batch.paddlepaddle.org/v1/namespaces/default/paddlejobs": {
        "spec": {"worker": {"replicas": 1, "template": TEMPLATE}, "intranet": "PodIP"},
        "status": {"phase": "Running"},
    },
}
BINDING = {"metadata": {"name": "a", "labels": {"x": "y"}}, "target": {"name": "n"}}
EVICTION = {"metadata": {"name": "a"}, "deleteOptions": {"gracePeriodSeconds": 1, "preconditions": {"uid": "u"}}}
SCALE = {"kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
OPTIONS = {"propagationPolicy": "Orphan", "gracePeriodSeconds": 5, "preconditions": {"uid": "u"}, "dryRun": ["All"]}


def mutate(value: Any, dice: random.Random) -> Any:
    """A copy with one value replaced, removed, doubled or added."""
    if not isinstance(value, dict | list) or not value or dice.random() < 0.15:
        return dice.choice(ODD_VALUES)
    copy = value.copy()
    position = dice.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    choice = dice.random()
    if choice < 0.1:
        del copy[position]
    elif choice < 0.15 and isinstance(copy, list):
        copy.append(copy[position])
    elif choice < 0.2 and isinstance(copy, dict):
        copy[dice.choice(("", "x", "spec", "name", "$patch", "ä"))] = dice.choice(ODD_VALUES)
    else:
        copy[position] = mutate(copy[position], dice)
    return copy


def random_request(dice: random.Random) -> APIRequest:
    path, content = dice.choice(list(OBJECTS.items()))
    manifest = {"metadata": METADATA | ({"ownerReferences": [OWNER]} if dice.random() < 0.3 else {})} | content
    status = f"{path}/a/status"
    candidates: list[Callable[[], tuple[str, str, Any, str]]] = [
        lambda: ("POST", path, mutate(manifest, dice), ""),
        lambda: ("PUT", f"{path}/a", mutate(manifest, dice), ""),
        lambda: ("PUT", status, mutate(manifest, dice), ""),
        lambda: ("PATCH", f"{path}/a", mutate(manifest, dice), dice.choice((MERGE_PATCH, STRATEGIC_MERGE_PATCH))),
        lambda: ("PATCH", status, mutate(manifest, dice), dice.choice((MERGE_PATCH, STRATEGIC_MERGE_PATCH))),
        lambda: ("PATCH", f"{path}/a", mutate(random_operations(dice), dice), JSON_PATCH),
        lambda: ("DELETE", f"{path}/a", mutate(OPTIONS, dice), ""),
        lambda: ("POST", f"{CORE}pods/a/binding", mutate(BINDING, dice), ""),
        lambda: ("POST", f"{CORE}pods/a/eviction", mutate(EVICTION, dice), ""),
        lambda: ("PUT", f"{list(OBJECTS)[-1]}/a/scale", mutate(SCALE, dice), ""),
        lambda: ("PATCH", f"{list(OBJECTS)[-1]}/a/scale", mutate(SCALE, dice), MERGE_PATCH),
    ]
    method, url, body, media_type = dice.choice(candidates)()
    info = parse_request_path(url)
    assert info
    return APIRequest(method, info, {}, msgspec.json.encode(body), media_type)


def random_operations(dice: random.Random) -> list[dict[str, Any]]:
    paths = [
        "/metadata/labels/x",
        "/metadata",
        "/spec",
        "/spec/containers/0",
        "/status",
        "/data/a",
        "/metadata/finalizers/-",
    ]
    names = ("add", "remove", "replace", "move", "copy", "test")
    return [
        {
            "op": dice.choice(names),
            "path": dice.choice(paths),
            "value": dice.choice(ODD_VALUES),
            "from": dice.choice(paths),
        }
        for _ in range(dice.randrange(1, 4))
    ]


def response_code(api: Handlers, request: APIRequest) -> int:
    try:
        response = api.handle(request)
    except StatusError as error:
        msgspec.json.encode(error.status)
        return error.code
    except Exception as error:
        raise AssertionError(f"{request} raised {type(error).__name__}: {error}") from error
    assert isinstance(response, APIResponse)
    return response.code


async def test_fuzzed_requests_raise_only_status_errors(
    tmp_path: Path, pytestconfig: pytest.Config, caplog: pytest.LogCaptureFixture
) -> None:
    seed = pytestconfig.getoption("randomly_seed", None) or random.randrange(2**32)
    print_line(pytestconfig, f"fuzzed requests: seed {seed}")
    dice = random.Random(seed)
    api = Handlers(tmp_path, (*BUILTIN_KINDS, kind_from_crd(crd(PADDLE_JOB), accept_all)), SystemClock())
    codes: dict[int, int] = {}
    try:
        for number in range(MAX_REQUESTS):
            if number % 20 == 0:
                await recreate_objects(api)
            code = response_code(api, random_request(dice))
            codes[code] = codes.get(code, 0) + 1
        await api.garbage_collector._collect()
    finally:
        api.store.close()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == [], (
        "no error in garbage collection, either"
    )
    assert sum(count for code, count in codes.items() if code < 300) > MAX_REQUESTS / 20, codes
    assert sum(count for code, count in codes.items() if code >= 400) > MAX_REQUESTS / 20, codes


async def recreate_objects(api: Handlers) -> None:
    """Create a valid object of each kind for the next requests."""
    for path, content in OBJECTS.items():
        info = parse_request_path(path)
        assert info
        resource = api.resources.find(info.group, info.version, info.plural)
        assert resource
        for record in tuple(resource.table):
            if record.key.name == "a":
                api.writer.delete(resource, record, resource.manifest(record))
        body = msgspec.json.encode({"metadata": {"name": "a", "labels": {"x": "y"}}} | content)
        with contextlib.suppress(StatusError):  # an events.k8s.io Event lacks required fields
            api.handle(APIRequest("POST", info, {}, body))


@pytest.mark.parametrize("depth", [100, 900, 5000, 100_000])
async def test_deeply_nested_bodies_are_rejected_or_pruned(tmp_path: Path, depth: int) -> None:
    api = Handlers(tmp_path, (*BUILTIN_KINDS, kind_from_crd(crd(PADDLE_JOB), accept_all)), SystemClock())
    try:
        for path in OBJECTS:
            info = parse_request_path(path)
            assert info
            nested = b'{"metadata": {"name": "deep"}, "spec": ' + b'{"a":' * depth + b"1" + b"}" * (depth + 1)
            assert response_code(api, APIRequest("POST", info, {}, nested)) < 500, path
    finally:
        api.store.close()
