"""What of a filling is worth showing: no fence, no control token, no loop, nothing that is there already."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specchat.editors.lsp.cursor_context import CLOSING, Place

FOREIGN = re.compile(
    r"```|<\|\w+\|>|<｜[^｜\n]{1,40}｜>|<fim[_-]\w+>|<(file_sep|repo_name)>|<(PRE|SUF|MID|EOT)>|\[(PRE|SUF)FIX\]"
)
LOOP = re.compile(r"(.{1,40}?)\1{4,}", re.DOTALL)  # the same, five times
LONGEST_DRAWING = 100  # letters; more than that is a model that does not stop
TELLING_LETTERS = 3  # a line with fewer, a bracket, stands everywhere
UNFINISHED = ("length", "late")
TAB = 4


def trimmed(text: str, reason: str, place: Place, most_lines: int = 0) -> str:
    """The insertion behind what is typed, in the newlines and the indentation of its text; "" for nothing."""
    text = FOREIGN.split(text.replace("\r\n", "\n"), maxsplit=1)[0]
    if reason in UNFINISHED and "\n" in text:
        text = text.rpartition("\n")[0]
    text = _without_loop(text)
    lines = _block(text.split("\n"), place)
    lines = _new_lines(lines, place)[: most_lines or None]
    text = _before_suffix("\n".join(lines).rstrip(), place)
    return _in_the_manner_of(place, text) if text.strip() else ""


def _without_loop(text: str) -> str:
    """Nothing of a line that says the same again and again, unless it is drawn: "------" and spaces may repeat."""
    found = next((found for found in LOOP.finditer(text) if not _is_drawn(found)), None)
    if found is None:
        return text
    return text[: found.start()].rpartition("\n")[0]


def _is_drawn(found: re.Match[str]) -> bool:
    is_said = any(letter.isalnum() for letter in found[1])
    return not is_said and (found[0].isspace() or len(found[0]) <= LONGEST_DRAWING)


def _block(lines: Sequence[str], place: Place) -> list[str]:
    """Up to the end of the block that the cursor is in: the first line that stands further left."""
    depth = _depth(place.line_before if place.line_before.strip() else place.line_before + lines[0])
    kept = [lines[0]]
    for line in lines[1:]:
        if line.strip() and _depth(line) < depth:
            break
        kept.append(line)
    return kept


def _new_lines(lines: Sequence[str], place: Place) -> list[str]:
    """Up to the first line that stands before or behind the cursor already, or that is said twice in a row."""
    above = [line for line in place.before.split("\n")[-4:-1] if line.strip()]
    below = next((line for line in place.after.split("\n")[1:] if line.strip()), "")
    kept: list[str] = []
    last = above[-1] if above else ""
    for number, line in enumerate(lines):
        whole = place.line_before + line if number == 0 else line
        if len(whole.strip()) >= TELLING_LETTERS and whole.rstrip() in (last.rstrip(), below.rstrip()):
            break
        kept.append(line)
        last = whole if whole.strip() else last
    return kept


def _before_suffix(text: str, place: Place) -> str:
    """Without the end that the rest of the line begins with; closing brackets are replaced, see `repeated`."""
    rest = place.line_after.strip()
    if not rest or "\n" in text or CLOSING.match(rest):
        return text
    longest = next((size for size in range(min(len(rest), len(text)), 0, -1) if text.endswith(rest[:size])), 0)
    return text[: len(text) - longest] if longest else text


def repeated(text: str, place: Place) -> int:
    """How many characters of the rest of the line the text says itself, and takes the place of: closing brackets."""
    rest = place.line_after.rstrip()
    is_said = bool(rest.strip()) and CLOSING.match(rest) and rest.strip() in text.partition("\n")[0]
    return len(rest) if is_said else 0


def _in_the_manner_of(place: Place, text: str) -> str:
    """Tabs where the text has tabs, "\\r\\n" where it has those."""
    document = place.document.text
    if re.search(r"^\t", document, re.MULTILINE):
        text = re.sub(r"(?m)^ +", lambda found: _tabs(found[0]), text)
    elif re.search(r"^ ", document, re.MULTILINE):
        text = re.sub(r"(?m)^\t+", lambda found: " " * (TAB * len(found[0])), text)
    return text.replace("\n", place.document.newline)


def _tabs(spaces: str) -> str:
    return "\t" * (len(spaces) // TAB) + " " * (len(spaces) % TAB)


def _depth(line: str) -> int:
    spread = line.expandtabs(TAB)
    return len(spread) - len(spread.lstrip())
