"""Are the functions of src/ small enough to be read at a glance? Fewer than 5 % of them may pass 40 lines."""
# ruff: noqa: T201 -- what is printed is what this program is for

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

LONG_FUNCTION = 40
LONG_FILE = 400
LONG_SHARE = 0.05


@dataclass(frozen=True)
class Function:
    where: str
    name: str
    lines: int


def functions_of(source: Path) -> Iterator[Function]:
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Function(f"{path}:{node.lineno}", node.name, (node.end_lineno or node.lineno) - node.lineno + 1)


def report(functions: list[Function], files: dict[str, int]) -> tuple[str, bool]:
    """What to print, and whether the share of long functions is small enough; long files are told and not forbidden."""
    long = [function for function in functions if function.lines > LONG_FUNCTION]
    share = len(long) / max(1, len(functions))
    typical = median([function.lines for function in functions] or [0])
    told = [
        f"sizes: {len(functions)} functions, the median has {typical:.0f} lines, {share:.1%} pass {LONG_FUNCTION}; "
        f"{len(files)} files, the median has {median(files.values() or [0]):.0f} lines",
        *(f"  {function.where}: {function.name} has {function.lines} lines" for function in long),
        *(f"  {path} has {lines} lines" for path, lines in files.items() if lines > LONG_FILE),
    ]
    if share >= LONG_SHARE:
        told.append(
            f"{share:.1%} of the functions pass {LONG_FUNCTION} lines, {LONG_SHARE:.0%} may: split some of them"
        )
    return "\n".join(told), share < LONG_SHARE


if __name__ == "__main__":
    lines_of = {str(path): len(path.read_text().splitlines()) for path in sorted(Path("src").rglob("*.py"))}
    text, small_enough = report(list(functions_of(Path("src"))), lines_of)
    print(text)
    sys.exit(not small_enough)
