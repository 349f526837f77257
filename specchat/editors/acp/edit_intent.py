"""Which file is to be edited or made, and how: by the command `/edit`, or by words that can mean nothing else.

An order is told from a question by its first word. A wrong guess costs a question back, never a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.editors.acp.workspace_roots import Places
from specchat.errors import UsageError

FILE_AND_WISH = re.compile(
    r"(?P<quote>[`\"']?)(?P<file>.+?)(?P=quote)(?::(?P<lines>\d+(?:-\d+)?))?(?=\s)\s+(?P<wish>.+)", re.DOTALL
)
VERBS = (
    "add", "change", "clean", "convert", "correct", "delete", "drop", "edit", "extract", "fix", "format", "improve",
    "inline", "insert", "make", "modernize", "modify", "move", "optimize", "port", "refactor", "reformat", "remove",
    "rename", "reorder", "replace", "rewrite", "shorten", "simplify", "sort", "split", "translate", "turn", "update",
    "use", "wrap",
)  # fmt: skip
POLITE = r"(?:please|kindly|can you|could you|would you|now|then|also|and|,)"
ORDER = re.compile(rf"\W*(?:{POLITE}\W+)*(?:in\s+\S+,?\s+)?(?:{'|'.join(VERBS)})\b", re.IGNORECASE)
NEW = re.compile(
    rf"\W*(?:{POLITE}\W+)*(?:create|write|make|add)\s+(?:(?:a|an|the|new|empty|file|called|named)\s+)*"
    r"(?P<quote>[`\"']?)(?P<file>[\w./-]+\.\w+)(?P=quote)(?=[\s,:]|\Z)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Wanted:
    """A file, what is to become of it, and which lines ("3-9") if not all."""

    path: Path
    instruction: str
    lines: str = ""


def wanted_by_command(argument: str, places: Places) -> Wanted:
    """`/edit FILE[:FIRST-LAST] INSTRUCTION`."""
    found = FILE_AND_WISH.fullmatch(argument.strip())
    if not found:
        raise UsageError("/edit needs a file and what to do: /edit FILE[:FIRST-LAST] INSTRUCTION")
    return Wanted(places.path(found["file"]), found["wish"].strip(), found["lines"] or "")


def wanted_by_words(text: str, linked: Sequence[Path], places: Places) -> Wanted | None:
    """An order about the one file that comes with it ("rename total to amount in `a.py`"), or about one that is not
    there yet ("create `b.py` with a class Point"); None for anything else, which is talk.
    """
    if len(linked) == 1 and ORDER.match(text):
        return Wanted(linked[0], text)
    new = NEW.match(text)
    if new and not linked and not os.path.lexists(path := places.path(new["file"])):
        return Wanted(path, text)
    return None
