"""Finds the file and the instruction of an edit: in the `/edit` command, or in a plain sentence.

The first word separates an instruction from a question. A mistake leads to an answer instead of an edit, never to a
changed file.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.errors import UsageError

FILE_AND_INSTRUCTION = re.compile(
    r"(?P<quote>[`\"']?)(?P<file>.+?)(?P=quote)(?::(?P<lines>\d+(?:-\d+)?))?(?=\s)\s+(?P<instruction>.+)", re.DOTALL
)
EDIT_VERBS = (
    "add", "change", "clean", "convert", "correct", "delete", "drop", "edit", "extract", "fix", "format", "improve",
    "inline", "insert", "make", "modernize", "modify", "move", "optimize", "port", "refactor", "reformat", "remove",
    "rename", "reorder", "replace", "rewrite", "shorten", "simplify", "sort", "split", "translate", "turn", "update",
    "use", "wrap",
)  # fmt: skip
POLITE_WORDS = r"(?:please|kindly|can you|could you|would you|now|then|also|and|,)"
EDIT_INSTRUCTION = re.compile(
    rf"\W*(?:{POLITE_WORDS}\W+)*(?:in\s+\S+,?\s+)?(?:{'|'.join(EDIT_VERBS)})\b", re.IGNORECASE
)
NEW_FILE_INSTRUCTION = re.compile(
    rf"\W*(?:{POLITE_WORDS}\W+)*(?:create|write|make|add)\s+(?:(?:a|an|the|new|empty|file|called|named)\s+)*"
    r"(?P<quote>[`\"']?)(?P<file>[\w./-]+\.\w+)(?P=quote)(?=[\s,:]|\Z)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class EditIntent:
    """A file, the instruction, and the lines ("3-9") if not all."""

    path: Path
    instruction: str
    line_range: str = ""


def intent_from_command(argument: str, workspace: WorkspaceRoots) -> EditIntent:
    """Parse `/edit FILE[:FIRST-LAST] INSTRUCTION`."""
    match = FILE_AND_INSTRUCTION.fullmatch(argument.strip())
    if not match:
        raise UsageError("/edit needs a file and an instruction: /edit FILE[:FIRST-LAST] INSTRUCTION")
    return EditIntent(workspace.path_of(match["file"]), match["instruction"].strip(), match["lines"] or "")


def intent_from_text(text: str, linked_paths: Sequence[Path], workspace: WorkspaceRoots) -> EditIntent | None:
    """Recognize an instruction about one file, linked or named ("rename total to amount in a.py"), or one to create a
    missing file ("create `b.py` with a class Point"). None for everything else.
    """
    if text.lstrip().startswith("/"):
        return None  # a command
    paths = linked_paths or workspace.files_named_in(text)
    if len(paths) == 1 and EDIT_INSTRUCTION.match(text):
        return EditIntent(paths[0], text)
    new = NEW_FILE_INSTRUCTION.match(text)
    if new and not linked_paths and not os.path.lexists(path := workspace.path_of(new["file"])):
        return EditIntent(path, text)
    return None
