"""Generated files: written, or with `--check` compared and reported if stale."""
# ruff: noqa: T201 -- the output is the purpose

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
Texts = dict[Path, str]
"""The text that each file should have."""


def stale_files(texts: Texts) -> list[str]:
    return [
        str(path.relative_to(ROOT)) for path, text in texts.items() if not path.exists() or path.read_text() != text
    ]


def write_or_check(description: str | None, generate: Callable[[], Texts], command: str) -> None:
    """The main function of a generator; exits with 1 if `--check` finds a stale file."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    if parser.parse_args().check:
        for name in (found := stale_files(generate())):
            print(f"{name} is stale: {command}")
        sys.exit(bool(found))
    for path, text in generate().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
