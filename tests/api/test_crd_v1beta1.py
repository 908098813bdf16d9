"""No API server that can still be built serves apiextensions v1beta1: these are its rules in Kubernetes 1.15."""

from collections.abc import Iterator
from typing import Any

from paddle_operator.api.crd import crd, crd_v1beta1
from paddle_operator.api.paddlejob import PADDLE_JOB, Role

Schema = dict[str, Any]

SPEC = crd_v1beta1(PADDLE_JOB)["spec"]
ROOT_SCHEMA: Schema = SPEC["validation"]["openAPIV3Schema"]
OF_1_15 = {
    "additionalProperties",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minimum",
    "not",
    "nullable",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
}


def schemas(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """The schema and every one within it, with its path."""
    yield path, schema
    for name, within in schema.get("properties", {}).items():
        yield from schemas(within, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from schemas(schema[key], f"{path}[{key}]")


def at(*path: str) -> Schema:
    schema = ROOT_SCHEMA
    for part in path:
        schema = schema["properties"][part]
    return schema


def test_only_words_of_that_time_are_used() -> None:
    assert [(path, key) for path, schema in schemas(ROOT_SCHEMA) for key in schema if key not in OF_1_15] == []


def test_what_it_spells_differently_is_spelled_so() -> None:
    assert SPEC["version"] == SPEC["versions"][0]["name"] == "v1"  # the first of the versions, and needed beside them
    assert "schema" not in SPEC["versions"][0]  # of one version it stands at the top, and may not stand in both places
    assert {"subresources", "additionalPrinterColumns", "validation"} <= set(SPEC)
    assert {tuple(column) for column in SPEC["additionalPrinterColumns"]} == {("name", "type", "JSONPath")}
    assert SPEC["preserveUnknownFields"] is False  # else the schema is not served, and kubectl lets a typo pass


def test_it_is_structural() -> None:
    """Each value has a type, or is one of the two that cannot; a map has properties or additionalProperties."""
    typeless = [path for path, schema in schemas(ROOT_SCHEMA) if "type" not in schema]
    excused = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
    assert [
        path for path, schema in schemas(ROOT_SCHEMA) if path in typeless and not any(map(schema.get, excused))
    ] == []
    assert [
        path for path, schema in schemas(ROOT_SCHEMA) if {"properties", "additionalProperties"} <= set(schema)
    ] == []
    assert set(at("metadata")) == {"type", "properties"}
    assert set(at("metadata")["properties"]) == {"name"}  # of metadata, only names may be restricted


def test_v1beta1_root_has_only_allowed_keys() -> None:
    assert set(ROOT_SCHEMA) == {"type", "description", "required", "properties"}


def test_it_has_the_same_fields_as_v1() -> None:
    newer = crd(PADDLE_JOB)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    named = {path for path, _ in schemas(ROOT_SCHEMA)} - {".metadata.name"}
    assert named == {path for path, _ in schemas(newer)}


def test_v1beta1_has_cel_bounds_as_min_and_max() -> None:
    for role in Role:
        assert at("spec", role, "replicas")["minimum"] == 1
        assert at("spec", role, "replicas")["maximum"] == 10000
        assert at("spec", role, "requests")["minimum"] == 0
    assert (at("spec", "withGloo")["minimum"], at("spec", "withGloo")["maximum"]) == (0, 2)
    assert at("metadata", "name")["maxLength"] == 51
    assert (at("spec", "backoffLimit")["minimum"], at("spec", "backoffLimit")["maximum"]) == (0, 2**31 - 1)
    for name, lowest in (("activeDeadlineSeconds", 1), ("startDeadlineSeconds", 1), ("ttlSecondsAfterFinished", 0)):
        assert at("spec", name)["minimum"] == lowest


def test_lists_and_texts_have_an_end_there_as_well() -> None:
    rules = at("spec", "podFailurePolicy", "rules")
    assert (rules["minItems"], rules["maxItems"]) == (1, 20)
    codes = rules["items"]["properties"]["onExitCodes"]["properties"]["values"]
    assert (codes["minItems"], codes["items"]["minimum"], codes["items"]["maximum"]) == (1, 1, 255)
    assert at("spec", "successPolicy", "rules")["maxItems"] == 1
    assert at("spec", "managedBy")["maxLength"] == 63
