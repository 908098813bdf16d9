"""The numbers of docs/design/reshape.md are counted as the table says."""

from tools.tree_metrics import Metric, metrics_of, table

SHORT = "class Answer: ...\ndef f() -> None: ...\n"
LONG = "class Answer: ...\ndef g() -> None:\n" + "    pass\n" * 60


def test_metrics_of_a_small_tree() -> None:
    sources = {
        "src/a.py": SHORT,
        "src/b.py": LONG,
        "src/__init__.py": "",
        "tests/test_a.py": f"def test_{'x' * 60}() -> None: ...\n",
    }
    assert [metric.value for metric in metrics_of(sources)] == [1, 2, 1, 1, 2, 1, 64]


def test_table_has_a_column_per_revision() -> None:
    text = table({"before": [Metric("lines", 1234)], "after": [Metric("lines", 5)]})
    assert text.splitlines()[-1] == "| lines | 1,234 | 5 |"
