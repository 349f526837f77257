"""Reads settings from the documentation, so that the tested and the documented ones are the same."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
PROGRAM = "/path/to/specchat"  # stands for where specchat is installed


def snippet(page: str, words: str, language: str) -> str:
    """The first block in this language after these words of a page. LookupError for none."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if words not in text:
        raise LookupError(f"{page} does not contain {words!r}")
    for found in BLOCK.finditer(text, text.index(words)):
        if found["language"] == language:
            return found["text"]
    raise LookupError(f"{page} has no block in {language} after {words!r}")


def snippets(page: str, language: str) -> list[str]:
    """All blocks of a page in a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [found["text"] for found in BLOCK.finditer(text) if found["language"] == language]
