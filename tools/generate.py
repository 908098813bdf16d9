"""Writes what is derived from the types: the CRDs and the API reference. `--check` only says what is stale."""
# ruff: noqa: T201 -- what is printed is what this program is for

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from paddle_operator.api.crd import crd, crd_v1beta1
from tools.reference import reference

ROOT = Path(__file__).parent.parent
HEAD = "# Derived from src/paddle_operator/api by `python -m tools.generate`: change it there.\n"


class Expanded(yaml.SafeDumper):
    """Writes what stands in three places three times: not every tool that reads a CRD knows YAML's anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's face
        return True


def as_yaml(manifest: dict[str, Any]) -> str:
    return HEAD + yaml.dump(manifest, Dumper=Expanded, sort_keys=False, width=10_000, allow_unicode=True)


def derived() -> dict[Path, str]:
    """The text of every file that is derived, by where it stands."""
    return {
        ROOT / "deploy/v1/crd.yaml": as_yaml(crd()),
        ROOT / "deploy/v1beta1/crd.yaml": as_yaml(crd_v1beta1()),
        ROOT / "docs/api.md": reference(),
    }


def stale() -> list[str]:
    texts = derived().items()
    return [str(path.relative_to(ROOT)) for path, text in texts if not path.exists() or path.read_text() != text]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something is stale")
    if parser.parse_args().check:
        for name in (found := stale()):
            print(f"{name} is stale: python -m tools.generate")
        sys.exit(bool(found))
    for path, text in derived().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
