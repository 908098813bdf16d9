"""What an API server makes of an object, without one; test_schema_cluster.py asks the real one the same."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.api.crd import crd
from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme import builtin, custom_resource
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest, nothing_more
from paddle_operator.local.apiserver.validation.object import completed, problems, unknown_fields

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

JOBS = custom_resource.kind_of(crd(), nothing_more)

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def a_kind(properties: Manifest, **more: Any) -> Kind:
    """A custom kind whose spec has these properties."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {}}} | more
    described = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version["schema"] = {"openAPIV3Schema": described}
    names = {"kind": "Thing", "plural": "things"}
    return custom_resource.kind_of(
        {"spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}}, nothing_more
    )


def a_thing(**spec: Any) -> Manifest:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "thing"}, "spec": spec}


def completed_spec(kind: Kind, **spec: Any) -> Any:
    return completed(kind, a_thing(**spec))["spec"]


def problems_of(kind: Kind, **spec: Any) -> list[tuple[str, str]]:
    found = problems(kind, completed(kind, a_thing(**spec)), None)
    return [(cause.field, cause.message) for cause in found]


def test_unknown_fields_are_left_out_and_told() -> None:
    kind = a_kind({"a": {"type": "object", "properties": {"b": {"type": "string"}}}})
    written = a_thing(a={"b": "c", "x": 1}, y=2)
    assert completed(kind, written)["spec"] == {"a": {"b": "c"}}
    assert unknown_fields(kind, written) == ['unknown field "spec.a.x"', 'unknown field "spec.y"']


def test_unknown_fields_of_lists_and_maps_are_told_with_their_place() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    kind = a_kind({"list": {"type": "array", "items": inner}, "map": {"type": "object", "additionalProperties": inner}})
    written = a_thing(list=[{"b": "c"}, {"x": 1}], map={"k": {"y": 2}})
    assert unknown_fields(kind, written) == ['unknown field "spec.list[1].x"', 'unknown field "spec.map.k.y"']


def test_a_part_may_keep_what_it_does_not_know() -> None:
    kind = a_kind({"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}})
    assert completed_spec(kind, free={"a": [1, {"b": None}]}) == {"free": {"a": [1, {"b": None}]}}
    assert unknown_fields(kind, a_thing(free={"a": 1})) == []


def test_defaults_are_filled_in_also_below_a_default() -> None:
    inner = {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}}}
    kind = a_kind({"a": inner, "c": {"type": "array", "items": {"type": "string"}, "default": ["x"]}})
    first = completed_spec(kind)
    assert first == {"a": {"b": 3}, "c": ["x"]}
    first["c"].append("changed")
    assert completed_spec(kind)["c"] == ["x"]


def test_a_null_counts_only_where_it_may_be() -> None:
    kind = a_kind(
        {
            "plain": {"type": "string"},
            "default": {"type": "string", "default": "d"},
            "nullable": {"type": "string", "nullable": True, "default": "d"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    )
    nulls = dict.fromkeys(("plain", "default", "nullable"))
    assert completed_spec(kind, **nulls, map={"a": None, "b": "c"}) == {
        "default": "d",
        "nullable": None,
        "map": {"b": "c"},
    }


LIMITS: list[tuple[Manifest, Any, Any, str]] = [
    ({"type": "integer", "minimum": 1}, 1, 0, "spec.x in body should be greater than or equal to 1"),
    ({"type": "integer", "maximum": 3}, 3, 4, "spec.x in body should be less than or equal to 3"),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, 1, "should be greater than 1"),
    ({"type": "integer", "format": "int32"}, 2**31 - 1, 2**31, "must be of type int32"),
    ({"type": "string", "pattern": "^a+$"}, "aa", "aab", "spec.x in body should match '^a+$'"),
    ({"type": "string", "pattern": "^a+$"}, "aa", "aa\n", "spec.x in body should match '^a+$'"),
    ({"type": "string", "minLength": 2}, "ab", "a", "spec.x in body should be at least 2 chars long"),
    ({"type": "string", "maxLength": 2}, "ab", "abc", "Too long: may not be more than 2 bytes"),
    ({"type": "array", "items": {"type": "string"}, "minItems": 1}, ["a"], [], "should have at least 1 items"),
    ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a"], ["a", "b"], "must have at most 1 item"),
    ({"type": "string", "enum": ["a", "b"]}, "a", "c", 'Unsupported value: "c": supported values: "a", "b"'),
    ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05Z", "soon", "must be of type date-time"),
    ({"x-kubernetes-int-or-string": True}, "a", True, "must be of type integer,string"),
    ({"x-kubernetes-int-or-string": True}, 1, [], "must be of type integer,string"),
    ({"type": "integer"}, 1.0, 1.5, 'spec.x in body must be of type integer: "number"'),
    ({"type": "integer"}, 1, True, 'spec.x in body must be of type integer: "boolean"'),
    ({"type": "number"}, 1, "1", 'spec.x in body must be of type number: "string"'),
    (
        {"x-kubernetes-preserve-unknown-fields": True, "not": {"enum": [True, {}]}},
        1,
        True,
        '"spec.x" must not validate the schema (not)',
    ),
    (
        {"x-kubernetes-preserve-unknown-fields": True, "anyOf": [{"type": "string"}, {"type": "boolean"}]},
        "a",
        1,
        '"spec.x" must validate at least one schema (anyOf)',
    ),
    (
        {"x-kubernetes-preserve-unknown-fields": True, "oneOf": [{"type": "string"}, {"pattern": "^a"}]},
        "b",
        "a",
        '"spec.x" must validate one and only one schema (oneOf)',
    ),
    (
        {"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]},
        "ab",
        "a",
        "spec.x in body should match 'b'",
    ),
    ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, ["a"], ["a", "a"], "Duplicate"),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        [{"name": "a"}, {"name": "b"}],
        [{"name": "a", "v": 1}, {"name": "a", "v": 2}],
        'Duplicate value: {"name":"a"}',
    ),
]


@pytest.mark.parametrize(("limit", "good", "bad", "words"), LIMITS, ids=lambda each: str(each)[:40])
def test_a_limit_holds_and_tells(limit: Manifest, good: Any, bad: Any, words: str) -> None:
    kind = a_kind({"x": limit})
    assert problems_of(kind, x=good) == []
    ((_, message),) = problems_of(kind, x=bad)
    assert words in message


def test_a_kinds_own_check_is_asked_where_the_types_are_right() -> None:
    asked: list[Manifest] = []

    def check(new: Manifest, _old: Manifest | None) -> list[Cause]:
        asked.append(new)
        return [Cause("spec", "not today", "FieldValueForbidden")]

    kind = custom_resource.kind_of(crd(), check)
    job: Manifest = {
        "metadata": {"name": "job"},
        "spec": {"worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}},
    }
    assert [cause.message for cause in problems(kind, job, None)] == ["not today"]
    job["spec"]["worker"]["replicas"] = "1"
    assert [cause.field for cause in problems(kind, job, None)] == ["spec.worker.replicas"]
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("kind", "finalizer", "accepted"),
    [
        (JOBS, "finalizers.paddlepaddle.org", True),  # of the Go operator
        (JOBS, "not a name", False),
        (builtin.PODS, "finalizers.paddlepaddle.org", False),
        (builtin.PODS, "foregroundDeletion", True),
        (builtin.PODS, "paddlepaddle.org/finalizer", True),
    ],
    ids=["custom", "custom-invalid", "built-in", "built-in-standard", "built-in-qualified"],
)
def test_finalizer_without_domain_needs_custom_kind(kind: Kind, finalizer: str, accepted: bool) -> None:
    stored = completed(kind, {"metadata": {"name": "a", "finalizers": [finalizer]}, "spec": {}})
    refused = {cause.field for cause in problems(kind, stored, None)} & {"metadata.finalizers[0]"}
    assert not refused if accepted else refused


@pytest.mark.parametrize("kind", [*builtin.KINDS, JOBS], ids=lambda kind: f"{kind.kind}.{kind.group}")
@quick
@given(spec=ANYTHING, status=ANYTHING, metadata=ANYTHING, data=ANYTHING)
def test_whatever_is_written_is_answered(kind: Kind, spec: Any, status: Any, metadata: Any, data: Any) -> None:
    """Neither crash nor change: problems are told, and the writer's own object stays as it is."""
    written = {"spec": spec, "status": status, "metadata": metadata, "data": data, "stringData": data}
    before = copy.deepcopy(written)
    stored = completed(kind, written)
    unknown_fields(kind, written)
    problems(kind, stored, None)
    assert written == before


FIELDS = st.sampled_from(
    [
        "containers",
        "volumes",
        "initContainers",
        "nodeSelector",
        "ports",
        "clusterIP",
        "resources",
        "accessModes",
        "type",
    ]
)


@quick
@given(
    st.dictionaries(
        FIELDS, ANYTHING | st.lists(st.dictionaries(st.sampled_from(["name", "image", "ports"]), ANYTHING))
    ),
    st.sampled_from(builtin.KINDS),
)
def test_whatever_is_written_into_a_spec_is_answered(spec: Manifest, kind: Kind) -> None:
    stored = completed(kind, {"metadata": {"name": "a"}, "spec": spec})
    problems(kind, stored, None)


@quick
@given(spec=ANYTHING)
def test_what_is_completed_is_complete(spec: Any) -> None:
    once = completed(builtin.PODS, {"metadata": {"name": "pod"}, "spec": spec})
    assert completed(builtin.PODS, once) == once
    assert unknown_fields(builtin.PODS, once) == []
