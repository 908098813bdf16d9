from datetime import UTC, datetime

import pytest

from paddle_operator.api.crd import crd
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.local.apiserver.printers.table import build_table
from paddle_operator.local.apiserver.scheme import custom_resource
from paddle_operator.local.apiserver.scheme.kind import Scale, accept_all
from paddle_operator.local.apiserver.scheme.unstructured import nested_value, parse_json_path

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JOBS = custom_resource.kind_from_crd(crd(PADDLE_JOB), accept_all)


def test_kind_has_the_fields_of_its_crd() -> None:
    assert (JOBS.group, JOBS.version, JOBS.kind, JOBS.plural) == (
        "batch.paddlepaddle.org",
        "v1",
        "PaddleJob",
        "paddlejobs",
    )
    assert JOBS.short_names == ("pdj",)
    assert JOBS.categories == ("all",)
    assert JOBS.custom
    assert JOBS.has_status
    assert JOBS.scale == Scale(".spec.worker.replicas", ".status.worker.replicas", ".status.selector")
    assert JOBS.prefix == "/apis/batch.paddlepaddle.org/v1"


def test_columns_follow_their_json_paths() -> None:
    job = {
        "metadata": {"name": "job", "creationTimestamp": "2026-01-02T03:04:00Z"},
        "status": {"phase": "Running", "ready": "1/2"},
    }
    table = build_table(JOBS, [job], {"resourceVersion": "7"}, NOW)
    assert [each["name"] for each in table["columnDefinitions"]] == [
        "Name",
        "Status",
        "Mode",
        "Ready",
        "Started",
        "Age",
    ]
    assert table["rows"][0]["cells"] == ["job", "Running", None, "1/2", None, "5s"]
    assert table["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("string", "a", "a"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("integer", 3, 3),
        ("integer", "3", None),
        ("number", 3, 3.0),
        ("boolean", True, True),
        ("boolean", "true", None),
        ("date", "2026-01-02T03:04:00Z", "5s"),
        ("date", "soon", "<invalid>"),
        ("date", 3, None),
        ("string", None, None),
    ],
)
def test_cell_has_the_type_of_its_column(kind: str, value: object, cell: object) -> None:
    column = custom_resource.column_from_crd({"name": "X", "type": kind, "jsonPath": ".status.list[0].x"})
    assert column.cell({"status": {"list": [{"x": value}]}}, NOW) == cell


@pytest.mark.parametrize("item", [{}, {"status": 1}, {"status": {"list": []}}, {"status": {"list": {"x": 1}}}])
def test_missing_path_gives_an_empty_cell(item: dict[str, object]) -> None:
    assert nested_value(item, *parse_json_path(".status.list[0].x")) is None


def test_json_path_with_a_filter_is_rejected() -> None:
    with pytest.raises(ValueError, match="use field names and indices only"):
        parse_json_path('.status.conditions[?(@.type=="Ready")].status')
