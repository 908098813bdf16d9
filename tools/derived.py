"""Files that are made of something else: written anew, or with `--check` only said to be stale."""
# ruff: noqa: T201 -- what is printed is what this program is for

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
Texts = dict[Path, str]
"""What should stand in each file."""


def stale(texts: Texts) -> list[str]:
    return [
        str(path.relative_to(ROOT)) for path, text in texts.items() if not path.exists() or path.read_text() != text
    ]


def main(about: str | None, texts: Callable[[], Texts], command: str) -> None:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something is stale")
    if parser.parse_args().check:
        for name in (found := stale(texts())):
            print(f"{name} is stale: {command}")
        sys.exit(bool(found))
    for path, text in texts().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
