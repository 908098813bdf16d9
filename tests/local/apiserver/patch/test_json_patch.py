"""The examples of RFC 7396 (merge patch) and RFC 6902 (JSON patch)."""

from copy import deepcopy
from typing import Any

import pytest

from paddle_operator.local.apiserver.api_errors import StatusError
from paddle_operator.local.apiserver.patch.json_patch import apply_json_patch, apply_merge_patch

MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("original", "patch", "result"), MERGES, ids=str)
def test_merge_patch_follows_rfc_7396(original: Any, patch: Any, result: Any) -> None:
    before = deepcopy(original)
    assert apply_merge_patch(original, patch) == result
    assert original == before, "the original is not modified"


PATCHES: list[tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    ({"foo": [1, 2, 3]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": [2, 3, 1]}),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": 2}], {"a/b": 2}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ({"foo": [1, 2]}, [{"op": "replace", "path": "/foo/-1", "value": 3}], {"foo": [1, 3]}),
]


@pytest.mark.parametrize(("original", "operations", "result"), PATCHES, ids=str)
def test_json_patch_follows_rfc_6902(original: Any, operations: Any, result: Any) -> None:
    before = deepcopy(original)
    assert apply_json_patch(original, operations) == result
    assert original == before, "the original is not modified"


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": "1"},
        {"op": "test", "path": "/list", "value": [1]},
        {"op": "test", "path": "/truth", "value": 1},
        {"op": "remove", "path": "/nothing"},
        {"op": "remove", "path": "/list/7"},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "move", "path": "/b", "from": "/nothing"},
        {"op": "copy", "path": "/b"},
        {"op": "add", "path": "no-slash", "value": 1},
        {"op": "remove", "path": ""},
        {"op": "bogus", "path": "/a"},
    ],
    ids=str,
)
def test_inapplicable_operation_gets_422_with_a_cause(operation: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as raised:
        apply_json_patch({"a": 1, "list": [1, 2], "truth": True}, [operation])
    assert raised.value.code == 422
    assert raised.value.details["causes"]


def test_patch_with_too_many_operations_is_rejected() -> None:
    with pytest.raises(StatusError, match="maximum operations"):
        apply_json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
