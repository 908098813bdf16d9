"""What docs/local.md says of the embedded server is what it serves."""

from pathlib import Path

import pytest

from paddle_operator.cli.embedded import served_kinds
from paddle_operator.cli.main import app

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", served_kinds(), ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_the_closed_list_is_written_down(kind: object) -> None:
    assert f" {getattr(kind, 'kind', '')}" in (ROOT / "docs/local.md").read_text().replace("|", " ").replace("(", " ")


@pytest.mark.parametrize("page", ["docs/local.md", "docs/local.zh.md", "README.md", "deploy/examples/README.md"])
def test_every_verb_that_a_page_names_exists(page: str) -> None:
    verbs = {command.callback.__name__ for command in app.registered_commands if command.callback}
    words = (ROOT / page).read_text().replace(".venv/bin/", "").split("paddlejob ")
    named = {text.split()[0].strip("`,.)") for text in words[1:] if text[:1].islower()}
    assert named <= verbs, named - verbs


@pytest.mark.parametrize("page", ["docs/local.md", "docs/local.zh.md", "README.md", "deploy/examples/README.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = {word.strip("`(),。，；") for word in text.split() if word.strip("`(").startswith("deploy/examples/")}
    assert all((ROOT / name).exists() for name in named if name.endswith((".yaml", ".md"))), named
