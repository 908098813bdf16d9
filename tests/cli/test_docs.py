"""The pages tell the truth: kinds, verbs, files and YAML exist, and both languages have the same pages and commands."""

import re
from pathlib import Path

import pytest
import yaml

from paddle_operator.cli.main import app
from paddle_operator.embedded.api_server import served_kinds
from tests.support.paddlejob import EXAMPLES, InProcessPaddlejob

ROOT = Path(__file__).parents[2]
ENGLISH = sorted(f"docs/en/{page.name}" for page in (ROOT / "docs/en").glob("*.md"))
CHINESE = sorted(f"docs/zh_CN/{page.name}" for page in (ROOT / "docs/zh_CN").glob("*.md"))
PAGES = ["README.md", "README-zh_CN.md", "CONTRIBUTING.md", "deploy/examples/README.md", *ENGLISH, *CHINESE]


def test_both_languages_have_the_same_pages() -> None:
    assert [Path(page).name for page in CHINESE] == [Path(page).name for page in ENGLISH]


@pytest.mark.parametrize("page", ENGLISH)
def test_each_page_links_its_translation(page: str) -> None:
    name = Path(page).name
    assert f"](../zh_CN/{name})" in (ROOT / page).read_text()
    assert f"](../en/{name})" in (ROOT / "docs/zh_CN" / name).read_text()


@pytest.mark.parametrize("kind", served_kinds(), ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_every_served_kind_is_documented(kind: object) -> None:
    text = (ROOT / "docs/en/local.md").read_text().replace("|", " ").replace("(", " ")
    assert f" {getattr(kind, 'kind', '')}" in text


@pytest.mark.parametrize("page", PAGES)
def test_verbs_of_a_page_exist(page: str) -> None:
    verbs = {command.callback.__name__ for command in app.registered_commands if command.callback}
    code = re.findall(r"^```sh\n(.*?)^```$|`([^`\n]+)`", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    used = set(re.findall(r"(?:^|[\s/])paddlejob ([a-z]+)", "\n".join(block or inline for block, inline in code)))
    assert used <= verbs, used - verbs


@pytest.mark.parametrize("page", PAGES)
def test_example_files_of_a_page_exist(page: str) -> None:
    named = set(re.findall(r"deploy/examples/[\w.-]+\.(?:yaml|md)", (ROOT / page).read_text()))
    assert [name for name in named if not (ROOT / name).exists()] == []


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["retries", "deadlines", "success"])
def test_yaml_of_a_page_is_the_example(page: str) -> None:
    assert yaml_blocks(f"docs/en/{page}.md") == [(EXAMPLES / f"{page}.yaml").read_text()]


@pytest.mark.parametrize("page", ["node-failure", "gang", "paddlejob", "paddlejob-tutorails"])
def test_yaml_of_a_page_is_accepted(paddlejob_without_cluster: InProcessPaddlejob, page: str) -> None:
    for text in yaml_blocks(f"docs/en/{page}.md"):
        outcome = paddlejob_without_cluster("run", "-", "--cpu", "--dry-run", stdin=text)
        assert outcome.code == 0, outcome


def code_blocks(page: str) -> list[tuple[str, object]]:
    """The fenced blocks with their languages, without comments."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [(language, without_comments(language, text)) for language, text in blocks]


def without_comments(language: str, text: str) -> object:
    if language == "yaml":
        return list(yaml.safe_load_all(text))
    return [re.sub(r"\s+#.*", "", line) if language == "sh" else line for line in text.splitlines()]


@pytest.mark.parametrize("page", ["README-zh_CN.md", *CHINESE])
def test_both_languages_have_the_same_commands(page: str) -> None:
    assert code_blocks(page) == code_blocks(page.replace("README-zh_CN", "README").replace("/zh_CN/", "/en/"))


@pytest.mark.parametrize("page", CHINESE)
def test_both_languages_link_the_same_sources(page: str) -> None:
    def sources(path: str) -> set[str]:
        return set(re.findall(r"\]\(((?:\.\./){2}(?:src|tests|tools)/[^)]+)\)", (ROOT / path).read_text()))

    assert sources(page) == sources(page.replace("/zh_CN/", "/en/"))
