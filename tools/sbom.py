"""The SBOM of the operator's image and of an installed wheel, without Python and our own code, as CycloneDX 1.6.

The image's components are read from its lock file (`tools.generate`). Those of a wheel are read from the report of
`pip install --dry-run --report`: `python -m tools.sbom report.json` prints them.
"""
# ruff: noqa: T201 -- the output is the purpose

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from paddle_operator import __version__

LOCK = Path(__file__).parent.parent / "images/controller/requirements.lock"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:\s*\\\n\s*--hash=sha256:[0-9a-f]{64})+)", re.MULTILINE)
OWN_NAME = "paddle-operator"


class Component(NamedTuple):
    name: str
    version: str
    hashes: list[str]


def locked_components(lock: str) -> list[Component]:
    return [
        Component(name, version, re.findall(r"sha256:([0-9a-f]{64})", hashes))
        for name, version, hashes in PINNED.findall(lock)
    ]


def reported_components(report: dict[str, Any]) -> list[Component]:
    """The packages of a pip installation report, without our own."""
    found = [
        Component(
            item["metadata"]["name"],
            item["metadata"]["version"],
            [item["download_info"]["archive_info"]["hashes"]["sha256"]],
        )
        for item in report["install"]
        if item["metadata"]["name"] != OWN_NAME
    ]
    return sorted(found)


def sbom() -> str:
    """The SBOM of the image."""
    return cyclonedx("container", f"{OWN_NAME}/controller", locked_components(LOCK.read_text()))


def cyclonedx(kind: str, name: str, components: Iterable[Component]) -> str:
    listed = [
        {
            "type": "library",
            "name": component.name,
            "version": component.version,
            "purl": f"pkg:pypi/{component.name}@{component.version}",
            "hashes": [{"alg": "SHA-256", "content": content} for content in component.hashes],
        }
        for component in components
    ]
    subject = {"component": {"type": kind, "name": name, "version": __version__}}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": subject, "components": listed}
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text())
    print(cyclonedx("library", OWN_NAME, reported_components(report)), end="")
