"""Normalization and validation of objects; served/test_schema_cluster.py compares with a real API server."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.api.crd import crd
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme import builtin, custom_resource
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest, accept_all
from paddle_operator.local.apiserver.validation.object import normalize, unknown_fields, validate

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

JOBS = custom_resource.kind_from_crd(crd(PADDLE_JOB), accept_all)

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def make_kind(properties: Manifest, **more: Any) -> Kind:
    """A custom kind with these properties in its spec."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {}}} | more
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version["schema"] = {"openAPIV3Schema": schema}
    names = {"kind": "Thing", "plural": "things"}
    return custom_resource.kind_from_crd(
        {"spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}}, accept_all
    )


def make_thing(**spec: Any) -> Manifest:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "thing"}, "spec": spec}


def normalized_spec(kind: Kind, **spec: Any) -> Any:
    return normalize(kind, make_thing(**spec))["spec"]


def errors_of(kind: Kind, **spec: Any) -> list[tuple[str, str]]:
    errors = validate(kind, normalize(kind, make_thing(**spec)), None)
    return [(cause.field, cause.message) for cause in errors]


def test_unknown_fields_are_pruned_and_reported() -> None:
    kind = make_kind({"a": {"type": "object", "properties": {"b": {"type": "string"}}}})
    written = make_thing(a={"b": "c", "x": 1}, y=2)
    assert normalize(kind, written)["spec"] == {"a": {"b": "c"}}
    assert unknown_fields(kind, written) == ['unknown field "spec.a.x"', 'unknown field "spec.y"']


def test_unknown_fields_in_lists_and_maps_have_their_path() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    kind = make_kind(
        {"list": {"type": "array", "items": inner}, "map": {"type": "object", "additionalProperties": inner}}
    )
    written = make_thing(list=[{"b": "c"}, {"x": 1}], map={"k": {"y": 2}})
    assert unknown_fields(kind, written) == ['unknown field "spec.list[1].x"', 'unknown field "spec.map.k.y"']


def test_unknown_fields_can_be_preserved() -> None:
    kind = make_kind({"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}})
    assert normalized_spec(kind, free={"a": [1, {"b": None}]}) == {"free": {"a": [1, {"b": None}]}}
    assert unknown_fields(kind, make_thing(free={"a": 1})) == []


def test_defaults_are_set_also_inside_a_default() -> None:
    inner = {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}}}
    kind = make_kind({"a": inner, "c": {"type": "array", "items": {"type": "string"}, "default": ["x"]}})
    first = normalized_spec(kind)
    assert first == {"a": {"b": 3}, "c": ["x"]}
    first["c"].append("changed")
    assert normalized_spec(kind)["c"] == ["x"]


def test_null_is_dropped_unless_nullable() -> None:
    kind = make_kind(
        {
            "plain": {"type": "string"},
            "default": {"type": "string", "default": "d"},
            "nullable": {"type": "string", "nullable": True, "default": "d"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    )
    nulls = dict.fromkeys(("plain", "default", "nullable"))
    assert normalized_spec(kind, **nulls, map={"a": None, "b": "c"}) == {
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


@pytest.mark.parametrize(("limit", "valid", "invalid", "message"), LIMITS, ids=lambda value: str(value)[:40])
def test_value_limit(limit: Manifest, valid: Any, invalid: Any, message: str) -> None:
    kind = make_kind({"x": limit})
    assert errors_of(kind, x=valid) == []
    ((_, actual),) = errors_of(kind, x=invalid)
    assert message in actual


def test_kind_validates_only_if_types_are_right() -> None:
    validated: list[Manifest] = []

    def check(new: Manifest, _old: Manifest | None) -> list[Cause]:
        validated.append(new)
        return [Cause("spec", "rejected", "FieldValueForbidden")]

    kind = custom_resource.kind_from_crd(crd(PADDLE_JOB), check)
    job: Manifest = {
        "metadata": {"name": "job"},
        "spec": {"worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}},
    }
    assert [cause.message for cause in validate(kind, job, None)] == ["rejected"]
    job["spec"]["worker"]["replicas"] = "1"
    assert [cause.field for cause in validate(kind, job, None)] == ["spec.worker.replicas"]
    assert len(validated) == 1


@pytest.mark.parametrize(
    ("kind", "finalizer", "accepted"),
    [
        (JOBS, "finalizers.paddlepaddle.org", True),  # of the Go operator
        (JOBS, "not a name", False),
        (builtin.POD_KIND, "finalizers.paddlepaddle.org", False),
        (builtin.POD_KIND, "foregroundDeletion", True),
        (builtin.POD_KIND, "paddlepaddle.org/finalizer", True),
    ],
    ids=["custom", "custom-invalid", "built-in", "built-in-standard", "built-in-qualified"],
)
def test_finalizer_without_domain_needs_custom_kind(kind: Kind, finalizer: str, accepted: bool) -> None:
    stored = normalize(kind, {"metadata": {"name": "a", "finalizers": [finalizer]}, "spec": {}})
    refused = {cause.field for cause in validate(kind, stored, None) if "finalizers" in cause.field}
    assert not refused if accepted else refused


@pytest.mark.parametrize("kind", [*builtin.BUILTIN_KINDS, JOBS], ids=lambda kind: f"{kind.kind}.{kind.group}")
@quick
@given(spec=ANYTHING, status=ANYTHING, metadata=ANYTHING, data=ANYTHING)
def test_fuzzed_objects_are_validated(kind: Kind, spec: Any, status: Any, metadata: Any, data: Any) -> None:
    """No exception, and the argument is not modified."""
    written = {"spec": spec, "status": status, "metadata": metadata, "data": data, "stringData": data}
    before = copy.deepcopy(written)
    stored = normalize(kind, written)
    unknown_fields(kind, written)
    validate(kind, stored, None)
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
    st.sampled_from(builtin.BUILTIN_KINDS),
)
def test_fuzzed_specs_are_validated(spec: Manifest, kind: Kind) -> None:
    stored = normalize(kind, {"metadata": {"name": "a"}, "spec": spec})
    validate(kind, stored, None)


@quick
@given(spec=ANYTHING)
def test_normalize_is_idempotent(spec: Any) -> None:
    once = normalize(builtin.POD_KIND, {"metadata": {"name": "pod"}, "spec": spec})
    assert normalize(builtin.POD_KIND, once) == once
    assert unknown_fields(builtin.POD_KIND, once) == []
