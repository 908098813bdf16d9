"""Strategic merge patch without a server; test_strategic_cluster.py sends the same patches to a real one."""

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.local.apiserver.patch import strategic_merge
from paddle_operator.local.apiserver.scheme import builtin

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

PODS, SERVICES = builtin.PODS.schema, builtin.SERVICES.schema


def test_a_union_loses_what_the_patch_does_not_retain() -> None:
    """As for a volume whose source changes; of a pod that is stored nobody can change it, so no server is asked."""
    before = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/a"}}]}}
    found = strategic_merge.merged(PODS, before, patch)
    assert found == {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/a"}}]}}


def test_neither_the_original_nor_the_patch_is_changed() -> None:
    original = {"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}}
    patch = {"spec": {"$setElementOrder/ports": [{"port": 2}, {"port": 1}], "ports": [{"port": 1, "name": "c"}]}}
    both = copy.deepcopy((original, patch))
    found = strategic_merge.merged(SERVICES, original, patch)
    assert found["spec"]["ports"] == [{"port": 2, "name": "b"}, {"port": 1, "name": "c"}]
    assert (original, patch) == both


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"$patch": "mend"}},
        {"spec": {"ports": [{"name": "a"}]}},
        {"spec": {"ports": [{"port": 1, "$patch": "merge"}]}},
        {"spec": {"$setElementOrder/ports": 1, "ports": []}},
        {"spec": {"$setElementOrder/ports": [{"port": 1}], "ports": [{"port": 9}]}},
        {"spec": {"$retainKeys": ["type"], "clusterIP": "None"}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
    ],
    ids=str,
)
def test_a_patch_that_makes_no_sense_is_refused(patch: Any) -> None:
    with pytest.raises(strategic_merge.BadPatch):
        strategic_merge.merged(SERVICES, {"metadata": {"finalizers": []}, "spec": {"ports": [{"port": 1}]}}, patch)


PORTS = st.lists(st.integers(1, 6), unique=True, max_size=6)


@quick
@given(PORTS, PORTS)
def test_merged_lists_have_every_item_once_and_the_patchs_order(old: list[int], new: list[int]) -> None:
    original = {"spec": {"ports": [{"port": port, "name": "old"} for port in old]}}
    patch = {"spec": {"ports": [{"port": port, "name": "new"} for port in new]}}
    found = strategic_merge.merged(SERVICES, original, patch)["spec"].get("ports", [])
    ports = [each["port"] for each in found]
    assert sorted(ports) == sorted({*old, *new})
    assert [port for port in ports if port in new] == new
    assert [port for port in ports if port not in new] == [port for port in old if port not in new]
    assert all((each["name"] == "new") == (each["port"] in new) for each in found)


KEYS = st.sampled_from(
    [
        *("spec", "ports", "port", "metadata", "finalizers", "labels"),
        *("$patch", "$retainKeys", "$setElementOrder/ports", "$deleteFromPrimitiveList/finalizers"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


@quick
@given(st.dictionaries(KEYS, JSON, max_size=4), st.dictionaries(KEYS, JSON, max_size=4))
def test_whatever_is_sent_is_merged_or_refused(original: Any, patch: Any) -> None:
    with contextlib.suppress(strategic_merge.BadPatch):
        assert isinstance(strategic_merge.merged(SERVICES, original, patch), dict)
