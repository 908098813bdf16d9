"""The documentation names only kinds, verbs, files and links that exist, and shows valid YAML."""

import re
from pathlib import Path

import pytest
import yaml

from paddle_operator.cli.main import app
from paddle_operator.embedded.api_server import served_kinds
from tests.support.paddlejob import EXAMPLES, InProcessPaddlejob

ROOT = Path(__file__).parents[2]
POLICY_PAGES = [f"docs/en/{name}.md" for name in ("retries", "deadlines", "suspend", "success", "node-failure", "gang")]
OPERATING_PAGES = [f"docs/en/{name}.md" for name in ("install", "troubleshooting", "monitoring", "options")]
CHINESE = ["README-zh_CN.md", *sorted(f"docs/zh_CN/{page.name}" for page in (ROOT / "docs/zh_CN").glob("*.md"))]
PAGES = ["docs/en/local.md", "README.md", "deploy/examples/README.md", *POLICY_PAGES, *OPERATING_PAGES, *CHINESE]


@pytest.mark.parametrize("kind", served_kinds(), ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_served_kinds_are_documented(kind: object) -> None:
    assert f" {getattr(kind, 'kind', '')}" in (ROOT / "docs/en/local.md").read_text().replace("|", " ").replace(
        "(", " "
    )


@pytest.mark.parametrize("page", PAGES)
def test_verbs_of_a_page_exist(page: str) -> None:
    verbs = {command.callback.__name__ for command in app.registered_commands if command.callback}
    words = (ROOT / page).read_text().replace(".venv/bin/", "").split("paddlejob ")
    named = {text.split()[0].strip("`,.)，。、；") for text in words[1:] if text[:1].islower()}
    assert named <= verbs, named - verbs


@pytest.mark.parametrize("page", PAGES)
def test_files_of_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    named = {word.strip("`(),。，；") for word in text.split() if word.strip("`(").startswith("deploy/examples/")}
    assert all((ROOT / name).exists() for name in named if name.endswith((".yaml", ".md"))), named


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["retries", "deadlines", "success"])
def test_yaml_of_a_page_is_the_example_file(page: str) -> None:
    assert yaml_blocks(f"docs/en/{page}.md") == [(EXAMPLES / f"{page}.yaml").read_text()]


@pytest.mark.parametrize("page", ["docs/en/node-failure.md", "docs/en/gang.md"])
def test_yaml_of_a_page_is_accepted(paddlejob_without_cluster: InProcessPaddlejob, page: str) -> None:
    (text,) = yaml_blocks(page)
    outcome = paddlejob_without_cluster("run", "-", "--dry-run", stdin=text)
    assert outcome.code == 0, outcome


@pytest.mark.parametrize("page", [*PAGES, "docs/en/paddlejob.md", "docs/en/plan.md", "docs/en/from-the-go-operator.md"])
def test_links_of_a_page_exist(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert missing == []


def code_blocks(page: str) -> list[tuple[str, object]]:
    """Language and text of each code block, without comments."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [(language, without_comments(language, text)) for language, text in blocks]


def without_comments(language: str, text: str) -> object:
    if language == "yaml":
        return list(yaml.safe_load_all(text))
    return [re.sub(r"\s+#.*", "", line) if language == "sh" else line for line in text.splitlines()]


@pytest.mark.parametrize("page", [page for page in CHINESE if page != "docs/zh_CN/local.md"])
def test_chinese_page_has_the_same_commands(page: str) -> None:
    """Except local.md, which is a shorter text."""
    assert code_blocks(page) == code_blocks(page.replace("README-zh_CN", "README").replace("/zh_CN/", "/en/"))
