"""Every PaddleJob that the documents show (tests/corpus, verbatim), and every example that we ship (deploy)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("tests/corpus", "deploy/examples", "deploy/elastic")


@dataclass(frozen=True)
class Document:
    """One PaddleJob as it stands in a file; `text` is untouched."""

    source: str
    text: str

    def __str__(self) -> str:
        return self.source

    @property
    def written(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load(self.text)
        return loaded


def documents() -> list[Document]:
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.yaml"))]
    found = [(file, text) for file in files for text in re.split(r"^---\n", file.read_text(), flags=re.MULTILINE)]
    return [Document(f"{file.parent.name}/{file.name}", text) for file, text in found if "kind: PaddleJob" in text]
