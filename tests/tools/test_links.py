"""Broken links and anchors of Markdown pages are found; code and external links are not looked at."""

from pathlib import Path

import pytest

from tools.links import anchors, broken_links, slugify


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "other.md").write_text("# Exit codes\n\n## `kubectl apply`: what next?\n\n## Exit codes\n")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "[a](other.md)",
        "[a](other.md#exit-codes)",
        "[a](other.md#exit-codes-1)",
        "[a](other.md#kubectl-apply-what-next)",
        "[a](#here)\n\n# Here",
        "[a](https://example.org/missing)",
        "`[a](missing.md)`",
        "```\n[a](missing.md)\n```",
    ],
)
def test_valid_links_pass(pages: Path, text: str) -> None:
    page = pages / "page.md"
    page.write_text(text)
    assert list(broken_links([page], pages)) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a](missing.md)", "no such file"),
        ("[a]: missing.md", "no such file"),
        ("[a](other.md#nothing)", "other.md has no such heading"),
        ("[a](#nothing)", "page.md has no such heading"),
        ("[a](/other.md)", "link relative to the page, not from the root"),
        ("[a](../../outside.md)", "leads out of the repository"),
    ],
)
def test_broken_links_are_named_with_their_line(pages: Path, text: str, reason: str) -> None:
    page = pages / "page.md"
    page.write_text(f"```\ncode\n```\n{text}\n")
    (link,) = broken_links([page], pages)
    assert (str(link.page), link.line, link.reason) == ("page.md", 4, reason)


def test_anchors_are_those_of_github(pages: Path) -> None:
    assert anchors(pages / "other.md") == {"exit-codes", "exit-codes-1", "kubectl-apply-what-next"}
    assert slugify("什么是 PaddleJob？") == "什么是-paddlejob"
