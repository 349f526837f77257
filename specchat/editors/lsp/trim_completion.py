"""What of a filling is worth showing: no fence, no control token, no loop, nothing that is there already."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specchat.editors.lsp.cursor_context import CLOSING_CHARS, CursorContext

CONTROL_TOKENS = re.compile(
    r"```|<\|\w+\|>|<｜[^｜\n]{1,40}｜>|<fim[_-]\w+>|<(file_sep|repo_name)>|<(PRE|SUF|MID|EOT)>|\[(PRE|SUF)FIX\]"
)
LOOP = re.compile(r"(.{1,40}?)\1{4,}", re.DOTALL)  # the same, five times
MAX_RULE_LINE_CHARS = 100  # letters; more than that is a model that does not stop
MIN_DISTINCTIVE_CHARS = 3  # a line with fewer, a bracket, stands everywhere
UNFINISHED_REASONS = ("length", "late")
TAB_WIDTH = 4


def trim_completion(text: str, reason: str, context: CursorContext, max_lines: int = 0) -> str:
    """The insertion behind what is typed, in the newlines and the indentation of its text; "" for nothing."""
    text = CONTROL_TOKENS.split(text.replace("\r\n", "\n"), maxsplit=1)[0]
    if reason in UNFINISHED_REASONS and "\n" in text:
        text = text.rpartition("\n")[0]
    text = _without_loop(text)
    lines = _current_block(text.split("\n"), context)
    lines = _drop_repeated_lines(lines, context)[: max_lines or None]
    text = _drop_suffix_overlap("\n".join(lines).rstrip(), context)
    return _match_document_style(context, text) if text.strip() else ""


def _without_loop(text: str) -> str:
    """Nothing of a line that says the same again and again, unless it is drawn: "------" and spaces may repeat."""
    found = next((found for found in LOOP.finditer(text) if not _is_rule_line(found)), None)
    if found is None:
        return text
    return text[: found.start()].rpartition("\n")[0]


def _is_rule_line(found: re.Match[str]) -> bool:
    is_said = any(letter.isalnum() for letter in found[1])
    return not is_said and (found[0].isspace() or len(found[0]) <= MAX_RULE_LINE_CHARS)


def _current_block(lines: Sequence[str], context: CursorContext) -> list[str]:
    """Up to the end of the block that the cursor is in: the first line that stands further left."""
    depth = _indent_width(context.line_prefix if context.line_prefix.strip() else context.line_prefix + lines[0])
    kept = [lines[0]]
    for line in lines[1:]:
        if line.strip() and _indent_width(line) < depth:
            break
        kept.append(line)
    return kept


def _drop_repeated_lines(lines: Sequence[str], context: CursorContext) -> list[str]:
    """Up to the first line that stands before or behind the cursor already, or that is said twice in a row."""
    above = [line for line in context.prefix.split("\n")[-4:-1] if line.strip()]
    below = next((line for line in context.suffix.split("\n")[1:] if line.strip()), "")
    kept: list[str] = []
    last = above[-1] if above else ""
    for number, line in enumerate(lines):
        whole = context.line_prefix + line if number == 0 else line
        if len(whole.strip()) >= MIN_DISTINCTIVE_CHARS and whole.rstrip() in (last.rstrip(), below.rstrip()):
            break
        kept.append(line)
        last = whole if whole.strip() else last
    return kept


def _drop_suffix_overlap(text: str, context: CursorContext) -> str:
    """Without the end that the rest of the line begins with; closing brackets are replaced, see `repeated`."""
    rest = context.line_suffix.strip()
    if not rest or "\n" in text or CLOSING_CHARS.match(rest):
        return text
    longest = next((size for size in range(min(len(rest), len(text)), 0, -1) if text.endswith(rest[:size])), 0)
    return text[: len(text) - longest] if longest else text


def overlapping_chars(text: str, context: CursorContext) -> int:
    """How many characters of the rest of the line the text says itself, and takes the place of: closing brackets."""
    rest = context.line_suffix.rstrip()
    is_said = bool(rest.strip()) and CLOSING_CHARS.match(rest) and rest.strip() in text.partition("\n")[0]
    return len(rest) if is_said else 0


def _match_document_style(context: CursorContext, text: str) -> str:
    """Tabs where the text has tabs, "\\r\\n" where it has those."""
    document = context.document.text
    if re.search(r"^\t", document, re.MULTILINE):
        text = re.sub(r"(?m)^ +", lambda found: _spaces_to_tabs(found[0]), text)
    elif re.search(r"^ ", document, re.MULTILINE):
        text = re.sub(r"(?m)^\t+", lambda found: " " * (TAB_WIDTH * len(found[0])), text)
    return text.replace("\n", context.document.newline)


def _spaces_to_tabs(spaces: str) -> str:
    return "\t" * (len(spaces) // TAB_WIDTH) + " " * (len(spaces) % TAB_WIDTH)


def _indent_width(line: str) -> int:
    spread = line.expandtabs(TAB_WIDTH)
    return len(spread) - len(spread.lstrip())
