"""Are the functions of src/ small? Fewer than 5 % may have more than 40 lines; long files are only reported."""
# ruff: noqa: T201 -- the output is the purpose

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

MAX_FUNCTION_LINES = 40
MAX_FILE_LINES = 400
MAX_LONG_FUNCTION_SHARE = 0.05


@dataclass(frozen=True)
class Function:
    location: str
    name: str
    lines: int


def functions_of(source: Path) -> Iterator[Function]:
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Function(f"{path}:{node.lineno}", node.name, (node.end_lineno or node.lineno) - node.lineno + 1)


def report(functions: list[Function], files: dict[str, int]) -> tuple[str, bool]:
    """What to print, and whether the share of long functions is small enough."""
    long = [function for function in functions if function.lines > MAX_FUNCTION_LINES]
    share = len(long) / max(1, len(functions))
    typical = median([function.lines for function in functions] or [0])
    lines_to_print = [
        f"sizes: {len(functions)} functions, the median has {typical:.0f} lines, "
        f"{share:.1%} have over {MAX_FUNCTION_LINES}; "
        f"{len(files)} files, the median has {median(files.values() or [0]):.0f} lines",
        *(f"  {function.location}: {function.name} has {function.lines} lines" for function in long),
        *(f"  {path} has {lines} lines" for path, lines in files.items() if lines > MAX_FILE_LINES),
    ]
    if share >= MAX_LONG_FUNCTION_SHARE:
        lines_to_print.append(
            f"{share:.1%} of the functions have over {MAX_FUNCTION_LINES} lines, "
            f"the limit is {MAX_LONG_FUNCTION_SHARE:.0%}: split some of them"
        )
    return "\n".join(lines_to_print), share < MAX_LONG_FUNCTION_SHARE


if __name__ == "__main__":
    lines_of = {str(path): len(path.read_text().splitlines()) for path in sorted(Path("src").rglob("*.py"))}
    text, small_enough = report(list(functions_of(Path("src"))), lines_of)
    print(text)
    sys.exit(not small_enough)
