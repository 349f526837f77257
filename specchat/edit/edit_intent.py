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

# A question begins with one of these, after politeness. The weaker ones need a question mark.
QUESTION_OPENING = re.compile(
    r"\W*(?:(?:please|kindly|can you|could you|would you|now|bitte|kannst du|s'il te plaît|por favor)\W+)*"
    r"(?:explain|describe|clarify|what|why|how(?! about)|tell me|show me (?:how|why|what|where)|walk me through"
    r"|help me (?:to )?understand|i (?:do not|don't|don’t) understand"
    r"|erklär\w*|beschreib\w*|warum|wieso|weshalb|wie|was"
    r"|expli(?:que|quez|ca|came)|décri(?:s|vez)|pourquoi|comment (?:fonctionne|marche|ça)|que|qu'est-ce"
    r"|por qué|qué|cómo|describe)(?!\w)",
    re.IGNORECASE,
)
WEAK_OPENING = re.compile(
    r"\W*(?:is|are|was|were|does|do|did|should|who|which|where|when|ist|sind|macht|est-ce|es)\b", re.IGNORECASE
)
# A word that may ask for a change, in any place. A question that has one is an instruction, too.
CHANGE_WORDS = re.compile(
    rf"\b(?:{'|'.join(EDIT_VERBS)}|allow|append|apply|avoid|combine|complete|create|define|disable|enable|ensure|expand"
    r"|extend|generate|handle|implement|introduce|merge|put|raise|reduce|reverse|set|speed|support|swap|transform|try"
    r"|undo|write|instead|\w*(?:comment|docstring|documentation|annotation)s?|type hints?"
    r"|kommentar\w*|mache?|ändere?|füge?|schreibe?|ersetze?|entferne?|benenne?|übersetze?|verbessere?|nutze?|verwende?"
    r"|commentaires?|ajoute\w*|change\w*|supprime\w*|remplace\w*|corrige\w*|écri\w+|traduis\w*|améliore\w*|renomme\w*"
    r"|comentarios?|añad\w+|cambia\w*|elimina\w*|reemplaza\w*|escrib\w+|traduc\w+|mejora\w*|renombra\w*)\b",
    re.IGNORECASE,
)


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
