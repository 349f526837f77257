"""Finds the file and the instruction of an edit: in the `/edit` command, or in a plain sentence.

The first words separate an instruction from a question. A mistake leads to an answer instead of an edit, never to a
changed file.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.context.workspace_roots import WorkspaceRoots
from specchat.errors import UsageError
from specchat.syntax.languages import language_tables

FILE_AND_INSTRUCTION = re.compile(
    r"(?P<quote>[`\"']?)(?P<file>.+?)(?P=quote)(?::(?P<lines>\d+(?:-\d+)?))?(?=\s)\s+(?P<instruction>.+)", re.DOTALL
)
TABLES = language_tables(__file__)
EDIT, QUESTION = TABLES["edit"], TABLES["question"]
VERBS, POLITE_WORDS = "|".join(EDIT["verbs"].split()), rf"\W*(?:(?:{'|'.join(EDIT['polite'])})\W+)*"
EDIT_INSTRUCTION = re.compile(rf"{POLITE_WORDS}(?:in\s+\S+,?\s+)?(?:{VERBS})\b", re.IGNORECASE)
NEW_FILE_INSTRUCTION = re.compile(
    rf"{POLITE_WORDS}(?:create|write|make|add)\s+(?:(?:a|an|the|new|empty|file|called|named)\s+)*"
    r"(?P<quote>[`\"']?)(?P<file>[\w./-]+\.\w+)(?P=quote)(?=[\s,:]|\Z)",
    re.IGNORECASE,
)
QUESTION_OPENING = re.compile(
    rf"\W*(?:(?:{'|'.join(QUESTION['polite'])})\W+)*(?:{'|'.join(QUESTION['openings'])})(?!\w)", re.IGNORECASE
)
WEAK_OPENING = re.compile(rf"\W*(?:{'|'.join(QUESTION['weak_openings'].split())})\b", re.IGNORECASE)
CHANGE_WORDS = re.compile(rf"\b(?:{VERBS}|{'|'.join(TABLES['change']['words'])})\b", re.IGNORECASE)


def is_question(instruction: str) -> bool:
    """Whether an instruction asks for an explanation and names no change: then no text may change.

    >>> is_question("explain this"), is_question("explain this in a comment")
    (True, False)
    """
    opening = QUESTION_OPENING.match(instruction)
    if not opening and not (WEAK_OPENING.match(instruction) and instruction.rstrip().endswith("?")):
        return False
    return not CHANGE_WORDS.search(instruction, opening.end() if opening else 0)


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
