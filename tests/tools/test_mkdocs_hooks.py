"""The site has every page in its navigation, and a link to a file outside docs/ leads to the repository."""

from pathlib import Path

import pytest

from tools.mkdocs_hooks import DOCS, SECTIONS, link_to_repository, navigation

REPOSITORY = "https://example.org/repository/blob/main"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("../../deploy/examples/retries.yaml", f"{REPOSITORY}/deploy/examples/retries.yaml"),
        ("../../images/README.md#build-them", f"{REPOSITORY}/images/README.md#build-them"),
        ("../zh_CN/install.md", "../zh_CN/install.md"),
        ("install.md#upgrade", "install.md#upgrade"),
    ],
)
def test_links_out_of_docs_lead_to_the_repository(link: str, expected: str) -> None:
    assert link_to_repository(f"see [it]({link}).", "docs/en", REPOSITORY) == f"see [it]({expected})."


def test_every_english_page_is_in_the_navigation() -> None:
    listed = [name for _, names in SECTIONS for name in names]
    assert sorted(listed) == sorted(page.stem for page in (DOCS / "en").glob("*.md"))


def test_untranslated_pages_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "zh_CN").mkdir()
    (tmp_path / "zh_CN" / "install.md").touch()
    assert navigation("zh_CN", tmp_path)[1] == {"运维": ["zh_CN/install.md"]}
