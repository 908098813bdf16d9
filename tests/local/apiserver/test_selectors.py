"""Selectors are judged in tests/conformance; here is what only the parser knows."""

import pytest

from paddle_operator.local.apiserver.api_errors import Refusal
from paddle_operator.local.apiserver.selectors import field_test, label_test


def test_a_selector_of_nothing_asks_nothing() -> None:
    assert label_test("") is None
    assert label_test("  ") is None
    assert field_test("", "", "pods") is None


@pytest.mark.parametrize(
    ("text", "labels", "fits"),
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
def test_labels_fit_or_not(text: str, labels: dict[str, str], fits: bool) -> None:
    test = label_test(text)
    assert test is not None
    assert test(labels) is fits


@pytest.mark.parametrize("text", ["a in (b", "a in b)", "a notin", "a !b", "a=b c", "a==!b", ",a", "a>", "a/=b", "/a"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match=r"labelSelector|expected"):
        label_test(text)


def test_values_of_fields_may_have_commas_and_equal_signs() -> None:
    test = field_test(r"metadata.name=a\,b\=c\\", "", "pods")
    assert test is not None
    assert test({"metadata.name": "a,b=c\\"})
    assert not test({"metadata.name": "a"})
