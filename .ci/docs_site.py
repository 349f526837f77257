"""What the site needs beyond docs/: the pages that lie at the top of the repository, and links to files of it.

A hook of mkdocs.yml. README.md, CONTRIBUTING.md, SECURITY.md and CHANGELOG.md link to docs/ from above, and pages link
to source files; on the site, the former are pages, and the latter are shown as names without a link.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
HOME = {"README.md": "index.md"}  # what it says stands in pages of the site
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=from_above((ROOT / name).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, **_arguments: Any) -> str:
    return LINK.sub(_link_in_docs, markdown)


def from_above(markdown: str) -> str:
    """The text of a file at the top of the repository, with links as they are in docs/."""
    return LINK.sub(lambda link: _as_link(link, _below_docs(link[2])), markdown)


def _below_docs(target: str) -> str:
    if "://" in target:
        return target
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def _link_in_docs(link: re.Match[str]) -> str:
    if not link[2].startswith("../"):
        return link[0]
    page = {**PAGES, **HOME}.get(link[2].removeprefix("../"))
    return _as_link(link, page) if page else link[1]


def _as_link(link: re.Match[str], target: str) -> str:
    return f"[{link[1]}]({target}{link[3] or ''})"
