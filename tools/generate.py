"""Writes what is derived from the types: the CRDs and the API reference. `--check` only says what is stale."""

import json
from pathlib import Path
from typing import Any

import yaml

from paddle_operator.api.crd import crd, crd_v1beta1
from tools.derived import ROOT, main
from tools.options import chinese, english, options
from tools.reference import reference
from tools.sbom import sbom

HEAD = "# Derived from src/paddle_operator/api by `python -m tools.generate`: change it there.\n"


class Expanded(yaml.SafeDumper):
    """Writes what stands in three places three times: not every tool that reads a CRD knows YAML's anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's face
        return True


def as_yaml(manifest: dict[str, Any]) -> str:
    return HEAD + yaml.dump(manifest, Dumper=Expanded, sort_keys=False, width=10_000, allow_unicode=True)


def on_one_line(manifest: dict[str, Any]) -> str:
    """Copies for programs, which need no lines: JSON is YAML, a third of the size."""
    return HEAD + json.dumps(manifest, separators=(",", ":"), ensure_ascii=False) + "\n"


def derived() -> dict[Path, str]:
    """The text of every file that is derived, by where it stands."""
    return {
        ROOT / "deploy/v1/crd.yaml": as_yaml(crd()),
        ROOT / "config/crd/bases/batch.paddlepaddle.org_paddlejobs.yaml": on_one_line(crd()),
        ROOT / "charts/paddle-operator/crds/paddlejobs.yaml": on_one_line(crd()),
        ROOT / "deploy/v1beta1/crd.yaml": as_yaml(crd_v1beta1()),
        ROOT / "docs/en/api_doc.md": reference(),
        ROOT / "docs/en/options.md": options(english()),
        ROOT / "docs/zh_CN/options.md": options(chinese()),
        ROOT / "images/controller/sbom.cdx.json": sbom(),
    }


if __name__ == "__main__":
    main(__doc__, derived, "python -m tools.generate")
