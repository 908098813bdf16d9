"""Whatever is sent, the answer is a refusal or an object, and never a defect of the server."""

import contextlib
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddle_operator.api.crd import crd
from paddle_operator.kube.clock import SystemClock
from paddle_operator.local.apiserver.answers import Answer
from paddle_operator.local.apiserver.api_errors import Refusal
from paddle_operator.local.apiserver.handlers import Api, Request
from paddle_operator.local.apiserver.patch.json_patch import JSON, MERGE, STRATEGIC
from paddle_operator.local.apiserver.request_info import target_of
from paddle_operator.local.apiserver.scheme.builtin import KINDS
from paddle_operator.local.apiserver.scheme.custom_resource import kind_of
from paddle_operator.local.apiserver.scheme.kind import nothing_more
from tests.conftest import say

TRIES = 4000
ODD: list[Any] = [
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


def spoiled(value: Any, dice: random.Random) -> Any:
    """The same with one part replaced, removed or doubled, anywhere in it."""
    if not isinstance(value, dict | list) or not value or dice.random() < 0.15:
        return dice.choice(ODD)
    copy = value.copy()
    place = dice.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    deed = dice.random()
    if deed < 0.1:
        del copy[place]
    elif deed < 0.15 and isinstance(copy, list):
        copy.append(copy[place])
    elif deed < 0.2 and isinstance(copy, dict):
        copy[dice.choice(("", "x", "spec", "name", "$patch", "ä"))] = dice.choice(ODD)
    else:
        copy[place] = spoiled(copy[place], dice)
    return copy


def requests(dice: random.Random) -> Request:
    path, content = dice.choice(list(OBJECTS.items()))
    whole = {"metadata": METADATA | ({"ownerReferences": [OWNER]} if dice.random() < 0.3 else {})} | content
    status = f"{path}/a/status"
    makers: list[Callable[[], tuple[str, str, Any, str]]] = [
        lambda: ("POST", path, spoiled(whole, dice), ""),
        lambda: ("PUT", f"{path}/a", spoiled(whole, dice), ""),
        lambda: ("PUT", status, spoiled(whole, dice), ""),
        lambda: ("PATCH", f"{path}/a", spoiled(whole, dice), dice.choice((MERGE, STRATEGIC))),
        lambda: ("PATCH", status, spoiled(whole, dice), dice.choice((MERGE, STRATEGIC))),
        lambda: ("PATCH", f"{path}/a", spoiled(operations(whole, dice), dice), JSON),
        lambda: ("DELETE", f"{path}/a", spoiled(OPTIONS, dice), ""),
        lambda: ("POST", f"{CORE}pods/a/binding", spoiled(BINDING, dice), ""),
        lambda: ("POST", f"{CORE}pods/a/eviction", spoiled(EVICTION, dice), ""),
        lambda: ("PUT", f"{list(OBJECTS)[-1]}/a/scale", spoiled(SCALE, dice), ""),
        lambda: ("PATCH", f"{list(OBJECTS)[-1]}/a/scale", spoiled(SCALE, dice), MERGE),
    ]
    method, where, body, media = dice.choice(makers)()
    target = target_of(where)
    assert target
    return Request(method, target, {}, msgspec.json.encode(body), media)


def operations(whole: dict[str, Any], dice: random.Random) -> list[dict[str, Any]]:
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
        {"op": dice.choice(names), "path": dice.choice(paths), "value": dice.choice(ODD), "from": dice.choice(paths)}
        for _ in range(dice.randrange(1, 4))
    ]


def code_of(api: Api, request: Request) -> int:
    try:
        outcome = api.answer(request)
    except Refusal as refusal:
        msgspec.json.encode(refusal.status)
        return refusal.code
    except Exception as defect:
        raise AssertionError(f"{request} made {type(defect).__name__}: {defect}") from defect
    assert isinstance(outcome, Answer)
    return outcome.code


async def test_no_request_of_any_form_makes_a_defect(
    tmp_path: Path, pytestconfig: pytest.Config, caplog: pytest.LogCaptureFixture
) -> None:
    seed = pytestconfig.getoption("randomly_seed", None) or random.randrange(2**32)
    say(pytestconfig, f"hostile requests: seed {seed}")
    dice = random.Random(seed)
    api = Api(tmp_path, (*KINDS, kind_of(crd(), nothing_more)), SystemClock())
    codes: dict[int, int] = {}
    try:
        for number in range(TRIES):
            if number % 20 == 0:
                await renew(api)
            code = code_of(api, requests(dice))
            codes[code] = codes.get(code, 0) + 1
        await api.garbage._collect()
    finally:
        api.store.close()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == [], "nor in cleaning up"
    assert sum(count for code, count in codes.items() if code < 300) > TRIES / 20, codes
    assert sum(count for code, count in codes.items() if code >= 400) > TRIES / 20, codes


async def renew(api: Api) -> None:
    """An object of each kind, whole, for the next ones to be aimed at."""
    for path, content in OBJECTS.items():
        target = target_of(path)
        assert target
        resource = api.resources.find(target.group, target.version, target.plural)
        assert resource
        for record in tuple(resource.table):
            if record.key.name == "a":
                api.writer.remove(resource, record, resource.manifest(record))
        body = msgspec.json.encode({"metadata": {"name": "a", "labels": {"x": "y"}}} | content)
        with contextlib.suppress(Refusal):  # an Event of the new form needs more than it has here
            api.answer(Request("POST", target, {}, body))


@pytest.mark.parametrize("depth", [100, 900, 5000, 100_000])
async def test_what_is_nested_too_deeply_is_refused_or_dropped(tmp_path: Path, depth: int) -> None:
    api = Api(tmp_path, (*KINDS, kind_of(crd(), nothing_more)), SystemClock())
    try:
        for path in OBJECTS:
            target = target_of(path)
            assert target
            nested = b'{"metadata": {"name": "deep"}, "spec": ' + b'{"a":' * depth + b"1" + b"}" * (depth + 1)
            assert code_of(api, Request("POST", target, {}, nested)) < 500, path
    finally:
        api.store.close()
