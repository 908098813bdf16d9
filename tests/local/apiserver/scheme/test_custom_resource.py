from datetime import UTC, datetime

import pytest

from paddle_operator.api.crd import crd
from paddle_operator.local.apiserver.printers import table
from paddle_operator.local.apiserver.scheme import custom_resource
from paddle_operator.local.apiserver.scheme.kind import Scale, nothing_more

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JOBS = custom_resource.kind_of(crd(), nothing_more)


def test_a_kind_is_what_its_definition_says() -> None:
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


def test_its_columns_follow_their_paths() -> None:
    job = {
        "metadata": {"name": "job", "creationTimestamp": "2026-01-02T03:04:00Z"},
        "status": {"phase": "Running", "ready": "1/2"},
    }
    printed = table.table(JOBS, [job], {"resourceVersion": "7"}, NOW)
    assert [each["name"] for each in printed["columnDefinitions"]] == [
        "Name",
        "Status",
        "Mode",
        "Ready",
        "Started",
        "Age",
    ]
    assert printed["rows"][0]["cells"] == ["job", "Running", None, "1/2", None, "5s"]
    assert printed["metadata"] == {"resourceVersion": "7"}


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
def test_a_cell_is_of_its_columns_type(kind: str, value: object, cell: object) -> None:
    column = custom_resource.column({"name": "X", "type": kind, "jsonPath": ".status.list[0].x"})
    assert column.of({"status": {"list": [{"x": value}]}}, NOW) == cell


@pytest.mark.parametrize("item", [{}, {"status": 1}, {"status": {"list": []}}, {"status": {"list": {"x": 1}}}])
def test_a_path_that_leads_nowhere_leaves_a_cell_empty(item: dict[str, object]) -> None:
    assert custom_resource.at(".status.list[0].x")(item) is None


def test_a_path_with_a_filter_is_refused() -> None:
    with pytest.raises(ValueError, match="more than names and indices"):
        custom_resource.at('.status.conditions[?(@.type=="Ready")].status')
