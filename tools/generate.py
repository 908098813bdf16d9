"""Writes the generated files: CRDs, API reference, options, SBOM. `--check` only reports stale ones."""

import json
from collections.abc import Iterable
from typing import Any

import yaml

from paddle_operator.api.crd import crd, crd_v1beta1
from paddle_operator.api.definition import KindDefinition
from paddle_operator.api.kinds import KINDS
from tools.generated import ROOT, Texts, write_or_check
from tools.options import chinese, english, options
from tools.reference import PAGES, reference
from tools.sbom import sbom

HEAD = "# Generated from src/paddle_operator/api by `python -m tools.generate`: edit it there.\n"


class AliasFreeDumper(yaml.SafeDumper):
    """Writes no YAML anchors and aliases: not every tool that reads a CRD supports them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's interface
        return True


def to_yaml(manifests: Iterable[dict[str, Any]]) -> str:
    """One document a manifest."""
    documents = (
        yaml.dump(each, Dumper=AliasFreeDumper, sort_keys=False, width=10_000, allow_unicode=True) for each in manifests
    )
    return HEAD + "---\n".join(documents)


def to_compact_json(manifest: dict[str, Any]) -> str:
    """For copies that only programs read: JSON is YAML, and a third of the size."""
    return HEAD + json.dumps(manifest, separators=(",", ":"), ensure_ascii=False) + "\n"


def files_of_kind(kind: KindDefinition[Any, Any]) -> Texts:
    """The files that one kind has of its own."""
    return {
        ROOT / f"config/crd/bases/{kind.group}_{kind.plural}.yaml": to_compact_json(crd(kind)),
        ROOT / f"charts/paddle-operator/crds/{kind.plural}.yaml": to_compact_json(crd(kind)),
        ROOT / "docs/en" / PAGES[kind.kind].file: reference(kind),
        ROOT / "docs/zh_CN" / PAGES[kind.kind].file: reference(kind, chinese=True),
    }


def generated_files() -> Texts:
    """The text of every generated file, by its path."""
    return {
        ROOT / "deploy/v1/crd.yaml": to_yaml(crd(each) for each in KINDS),
        ROOT / "deploy/v1beta1/crd.yaml": to_yaml(crd_v1beta1(each) for each in KINDS),
        **{path: text for kind in KINDS for path, text in files_of_kind(kind).items()},
        ROOT / "docs/en/options.md": options(english()),
        ROOT / "docs/zh_CN/options.md": options(chinese()),
        ROOT / "images/controller/sbom.cdx.json": sbom(),
    }


if __name__ == "__main__":
    write_or_check(__doc__, generated_files, "python -m tools.generate")
