"""Does every package of src/ import only the layers below it? docs/en/architecture.md has the table, too."""
# ruff: noqa: T201 -- the output is the purpose

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = "paddle_operator"
ALL = ("api", "kube", "plan", "controllers", "local", "data", "launch", "client", "embedded", "cli", "manager")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "api": (),
    "kube": (),
    "plan": (
        "api",
        "kube.backoff.exponential",
        "kube.objects",
        "kube.quantities",
        "kube.writes",
        "kube.conditions",
        "kube.pod_requests",
    ),
    "controllers": ("api", "kube", "plan"),
    "local": ("kube",),
    "data": ("api",),
    "launch": ("api",),
    "client": ("api", "kube", "plan"),
    "embedded": tuple(name for name in ALL if name != "cli"),
    "cli": ALL,
}


def broken_rules(source: Path) -> Iterator[str]:
    """A message for each import that the table does not allow, and for each package that is not in it."""
    for path in sorted((source / ROOT).rglob("*.py")):
        package, *within = path.relative_to(source / ROOT).parts
        if not within:
            continue  # modules at the top, such as manager.py, put everything together
        if package not in MAY_IMPORT:
            yield f"{path}: package {package} has no rule: add it to MAY_IMPORT in tools/layers.py"
            continue
        allowed = (package, *MAY_IMPORT[package])
        for line, target in imports_of(path, source):
            if not any(target == name or target.startswith(f"{name}.") for name in allowed):
                may = ", ".join(MAY_IMPORT[package]) or "nothing of ours"
                yield f"{path}:{line}: imports {target}, but {package} may import {may}: move what both need below"


def imports_of(path: Path, source: Path) -> Iterator[tuple[int, str]]:
    """Line and target of each import of ours, without the root's name: kube.objects.Pod."""
    package = ".".join(path.relative_to(source).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{absolute(node, package)}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            root, _, target = name.partition(".")
            # Names of the root itself, such as __version__, belong to no package.
            if root == ROOT and target.partition(".")[0] in ALL:
                yield node.lineno, target


def absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *filter(None, [node.module])])


if __name__ == "__main__":
    broken = list(broken_rules(Path("src")))
    print("\n".join(broken) or "imports: every package imports only packages below it")
    sys.exit(bool(broken))
