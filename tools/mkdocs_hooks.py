"""The documentation site: its navigation, and links that leave docs/. mkdocs loads this file (mkdocs.yaml, hooks)."""

import posixpath
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
LANGUAGES = {"English": "en", "简体中文": "zh_CN"}
SECTIONS = (
    (
        {"en": "Train", "zh_CN": "训练"},
        (
            "paddlejob-tutorails",
            "local",
            "paddlejob",
            "retries",
            "deadlines",
            "suspend",
            "success",
            "gang",
            "node-failure",
            "ext-overview",
        ),
    ),
    (
        {"en": "Operate", "zh_CN": "运维"},
        (
            "install",
            "options",
            "troubleshooting",
            "monitoring",
            "security",
            "performance",
            "e2e",
            "from-the-go-operator",
        ),
    ),
    ({"en": "Reference", "zh_CN": "参考"}, ("api_doc", "glossary")),
    (
        {"en": "Develop", "zh_CN": "开发"},
        ("architecture", "plan", "kube", "testbed", "add-a-field", "add-a-kind", "add-a-verb"),
    ),
)
"""The pages of each language, in the order of the site; a page that is not translated yet is left out there."""


def on_config(config: Any, **_: Any) -> Any:
    """Called by mkdocs once: the same navigation for both languages."""
    languages = [{name: navigation(folder, DOCS)} for name, folder in LANGUAGES.items()]
    design = sorted(f"design/{page.name}" for page in (DOCS / "design").glob("*.md"))
    config.nav = [{"paddle-operator": "index.md"}, *languages, {"Design": design}]
    return config


def navigation(language: str, docs: Path) -> list[dict[str, list[str]]]:
    return [
        {titles[language]: [page for name in names if (docs / (page := f"{language}/{name}.md")).exists()]}
        for titles, names in SECTIONS
    ]


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called by mkdocs for each page, before it is rendered."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    return link_to_repository(markdown, folder, f"{config.repo_url.rstrip('/')}/blob/main")


def link_to_repository(markdown: str, folder: str, repository: str) -> str:
    def replace(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        if target.startswith("docs/"):
            return match[0]
        return f"]({repository}/{target}{match[2] or ''})"

    return LINK.sub(replace, markdown)
