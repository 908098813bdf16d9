"""Does every relative link of a Markdown page lead to a file, and every anchor to a heading?

External links are not requested. 100 pages take 0.1 s.
"""
# ruff: noqa: T201 -- the output is the purpose

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)\s*?$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
EXPLICIT_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class BrokenLink(NamedTuple):
    page: Path
    line: int
    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.target}: {self.reason}"


def markdown_files(root: Path) -> list[Path]:
    """The pages that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout  # noqa: S603
    return [path for line in sorted(set(listed.splitlines())) if (path := root / line).exists()]


def broken_links(pages: list[Path], root: Path) -> Iterator[BrokenLink]:
    for page in pages:
        text = without_code(page.read_text())
        for match in LINK.finditer(text):
            target = match[1] or match[2]
            reason = None if EXTERNAL.match(target) else failure_reason(page, target, root)
            if reason:
                yield BrokenLink(page.relative_to(root), text.count("\n", 0, match.start()) + 1, target, reason)


def failure_reason(page: Path, target: str, root: Path) -> str | None:
    path, _, anchor = unquote(target).partition("#")
    if path.startswith("/"):
        return "link relative to the page, not from the root"
    file = (page.parent / path).resolve() if path else page
    if not file.is_relative_to(root.resolve()):
        return "leads out of the repository"
    if not file.exists():
        return "no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"{file.relative_to(root.resolve())} has no such heading"
    return None


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub gives the headings of a page: a repeated one gets -1, -2, …"""
    text = FENCE.sub("", page.read_text())
    found = set(EXPLICIT_ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        slug = unique = slugify(heading)
        count = 0
        while unique in found:
            count += 1
            unique = f"{slug}-{count}"
        found.add(unique)
    return frozenset(found)


def slugify(heading: str) -> str:
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def without_code(text: str) -> str:
    """The text with code blanked, line by line the same length."""
    text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return CODE.sub(lambda match: " " * len(match[0]), text)


if __name__ == "__main__":
    files = markdown_files(ROOT)
    broken = list(broken_links(files, ROOT))
    for link in broken:
        print(link)
    print(f"links: {len(files)} pages, {len(broken)} broken links")
    sys.exit(bool(broken))
