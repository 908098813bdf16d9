"""Writes the generated files: CRDs, API reference, options, SBOM. `--check` only reports stale ones."""

import json
from typing import Any

import yaml

from paddle_operator.api.crd import crd, crd_v1beta1
from tools.generated import ROOT, Texts, write_or_check
from tools.options import chinese, english, options
from tools.reference import reference
from tools.sbom import sbom

HEAD = "# Generated from src/paddle_operator/api by `python -m tools.generate`: edit it there.\n"


class AliasFreeDumper(yaml.SafeDumper):
    """Writes no YAML anchors and aliases: not every tool that reads a CRD supports them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's interface
        return True


def to_yaml(manifest: dict[str, Any]) -> str:
    return HEAD + yaml.dump(manifest, Dumper=AliasFreeDumper, sort_keys=False, width=10_000, allow_unicode=True)


def to_compact_json(manifest: dict[str, Any]) -> str:
    """For copies that only programs read: JSON is YAML, and a third of the size."""
    return HEAD + json.dumps(manifest, separators=(",", ":"), ensure_ascii=False) + "\n"


def generated_files() -> Texts:
    """The text of every generated file, by its path."""
    return {
        ROOT / "deploy/v1/crd.yaml": to_yaml(crd()),
        ROOT / "config/crd/bases/batch.paddlepaddle.org_paddlejobs.yaml": to_compact_json(crd()),
        ROOT / "charts/paddle-operator/crds/paddlejobs.yaml": to_compact_json(crd()),
        ROOT / "deploy/v1beta1/crd.yaml": to_yaml(crd_v1beta1()),
        ROOT / "docs/en/api_doc.md": reference(),
        ROOT / "docs/en/options.md": options(english()),
        ROOT / "docs/zh_CN/options.md": options(chinese()),
        ROOT / "images/controller/sbom.cdx.json": sbom(),
    }


if __name__ == "__main__":
    write_or_check(__doc__, generated_files, "python -m tools.generate")
