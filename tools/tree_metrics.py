"""How well does the tree read, in numbers? `python tools/tree_metrics.py a482f7b HEAD` has a column for each revision.

Without a revision, the working tree is measured. docs/design/reshape.md has the table before and after the reshape.
"""
# ruff: noqa: T201 -- the output is the purpose

import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = "src/"
LONG_NAME_CHARACTERS = 60
SHORT_MODULE_LINES = 60
LONG_FUNCTION_LINES = 40
Sources = dict[str, str]
"""The text of every Python file, by its path."""


class Metric(NamedTuple):
    name: str
    value: int


def sources_of(revision: str | None) -> Sources:
    """The Python files of a git revision, or of the working tree."""
    if revision is None:
        listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py").decode()
        return {name: (ROOT / name).read_text() for name in listed.split("\0") if name and (ROOT / name).exists()}
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", revision))) as archive:
        return {
            member.name: file.read().decode()
            for member in archive
            if member.name.endswith(".py") and (file := archive.extractfile(member))
        }


def metrics_of(sources: Sources) -> Iterator[Metric]:
    trees = {path: ast.parse(text, path) for path, text in sources.items()}
    of_source = {path: tree for path, tree in trees.items() if path.startswith(SOURCE)}
    lines = {path: len(sources[path].splitlines()) for path in of_source}
    modules = [path for path in lines if not path.endswith("__init__.py")]
    classes = Counter(
        node.name for tree in of_source.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    functions = [node for tree in of_source.values() for node in ast.walk(tree) if _is_function(node)]
    yield Metric("names over 60 characters, tests included", sum(map(_long_names, trees.values())))
    yield Metric("modules of src, without `__init__.py`", len(modules))
    yield Metric("modules of src under 60 lines", sum(lines[path] < SHORT_MODULE_LINES for path in modules))
    yield Metric("class names that stand in several places of src", sum(count > 1 for count in classes.values()))
    yield Metric("functions of src", len(functions))
    yield Metric("functions of src over 40 lines", sum(_length(node) > LONG_FUNCTION_LINES for node in functions))
    yield Metric("lines of src", sum(lines.values()))


def _long_names(tree: ast.Module) -> int:
    return sum(
        len(node.name) > LONG_NAME_CHARACTERS
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _length(node: ast.AST) -> int:
    start, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return int(end) - int(start) + 1


def table(columns: dict[str, list[Metric]]) -> str:
    names = [metric.name for metric in next(iter(columns.values()))]
    rows = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for index, name in enumerate(names):
        rows.append(f"| {name} | {' | '.join(f'{column[index].value:,}' for column in columns.values())} |")
    return "\n".join(rows)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout  # noqa: S603, S607


if __name__ == "__main__":
    revisions: list[str | None] = list(sys.argv[1:]) or [None]
    print(table({revision or "working tree": list(metrics_of(sources_of(revision))) for revision in revisions}))
