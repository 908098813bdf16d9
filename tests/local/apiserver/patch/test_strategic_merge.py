"""Strategic merge patch; served/test_strategic_merge_cluster.py sends the same patches to a real API server."""

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.local.apiserver.patch.strategic_merge import InvalidPatch, apply_strategic_merge_patch
from paddle_operator.local.apiserver.scheme import builtin

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

PODS, SERVICES = builtin.POD_KIND.schema, builtin.SERVICE_KIND.schema


def test_retain_keys_drops_other_union_members() -> None:
    """As when a volume's source changes. A stored pod's volumes are immutable, so no API server is compared."""
    before = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/a"}}]}}
    patched = apply_strategic_merge_patch(PODS, before, patch)
    assert patched == {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/a"}}]}}


def test_arguments_are_not_modified() -> None:
    original = {"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}}
    patch = {"spec": {"$setElementOrder/ports": [{"port": 2}, {"port": 1}], "ports": [{"port": 1, "name": "c"}]}}
    copies = copy.deepcopy((original, patch))
    patched = apply_strategic_merge_patch(SERVICES, original, patch)
    assert patched["spec"]["ports"] == [{"port": 2, "name": "b"}, {"port": 1, "name": "c"}]
    assert (original, patch) == copies


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
def test_invalid_patch_is_rejected(patch: Any) -> None:
    with pytest.raises(InvalidPatch):
        apply_strategic_merge_patch(SERVICES, {"metadata": {"finalizers": []}, "spec": {"ports": [{"port": 1}]}}, patch)


PORTS = st.lists(st.integers(1, 6), unique=True, max_size=6)


@quick
@given(PORTS, PORTS)
def test_merged_list_has_the_order_of_the_patch(old: list[int], new: list[int]) -> None:
    original = {"spec": {"ports": [{"port": port, "name": "old"} for port in old]}}
    patch = {"spec": {"ports": [{"port": port, "name": "new"} for port in new]}}
    patched = apply_strategic_merge_patch(SERVICES, original, patch)["spec"].get("ports", [])
    ports = [each["port"] for each in patched]
    assert sorted(ports) == sorted({*old, *new})
    assert [port for port in ports if port in new] == new
    assert [port for port in ports if port not in new] == [port for port in old if port not in new]
    assert all((each["name"] == "new") == (each["port"] in new) for each in patched)


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
def test_fuzzed_patches_raise_only_invalid_patch(original: Any, patch: Any) -> None:
    with contextlib.suppress(InvalidPatch):
        assert isinstance(apply_strategic_merge_patch(SERVICES, original, patch), dict)
