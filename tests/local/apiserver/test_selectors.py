"""Parsing of selectors; tests/conformance tests them through the API."""

import pytest

from paddle_operator.local.apiserver.api_errors import StatusError
from paddle_operator.local.apiserver.selectors import parse_field_selector, parse_label_selector


def test_empty_selector_has_no_predicate() -> None:
    assert parse_label_selector("") is None
    assert parse_label_selector("  ") is None
    assert parse_field_selector("", "", "pods") is None


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("a=b,c!=d", {"a": "b"}, True),
        ("a=b,c!=d", {"a": "b", "c": "d"}, False),
        ("a in(b,c),!d", {"a": "c"}, True),
        ("in in (in)", {"in": "in"}, True),
        ("notin notin (x)", {"notin": "y"}, True),
        ("example.com/a", {"example.com/a": ""}, True),
        ("a=", {"a": ""}, True),
        ("a in (b,)", {"a": ""}, True),
        ("a>5", {"a": "many"}, False),
        ("a<5", {}, False),
    ],
)
def test_label_selector_matches(text: str, labels: dict[str, str], matches: bool) -> None:
    predicate = parse_label_selector(text)
    assert predicate is not None
    assert predicate(labels) is matches


@pytest.mark.parametrize("text", ["a in (b", "a in b)", "a notin", "a !b", "a=b c", "a==!b", ",a", "a>", "a/=b", "/a"])
def test_invalid_label_selector_is_rejected(text: str) -> None:
    with pytest.raises(StatusError, match=r"labelSelector|expected"):
        parse_label_selector(text)


def test_field_values_may_have_escaped_characters() -> None:
    predicate = parse_field_selector(r"metadata.name=a\,b\=c\\", "", "pods")
    assert predicate is not None
    assert predicate({"metadata.name": "a,b=c\\"})
    assert not predicate({"metadata.name": "a"})
