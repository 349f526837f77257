"""The text around the cursor: whether to suggest something there, the request for it, and what is worth showing.

A completion is trimmed: no fence, control token, loop, or text that is already there. Knows no engine.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lsprotocol import types

from specchat.chat.fim_request import FimRequest
from specchat.syntax import language_of
from specchat_editors.lsp.syntax_trim import Surroundings, trim_to_syntax
from specchat_editors.lsp.text_documents import Document

MAX_PREFIX_CHARS, MAX_SUFFIX_CHARS = 12_000, 4_000
PREFIX_STEP_CHARS = 3_000  # the prefix is cut in steps, so that the KV cache of its start stays valid
CLOSING_CHARS = re.compile(r"[\s)\]}>\"'`;:,]*\Z")
PARTIAL_WORD = re.compile(r"\w*\Z")
EMPTY_COMMENT = re.compile(r"\s*(#|//|--|;|%|/?\*+|<!--|\"\"\"|''')\s*\Z")
CONTROL_TOKENS = re.compile(
    r"```|<\|\w+\|>|<｜[^｜\n]{1,40}｜>|<fim[_-]\w+>|<(file_sep|repo_name)>|<(PRE|SUF|MID|EOT)>|\[(PRE|SUF)FIX\]"
)
LOOP = re.compile(r"(.{1,40}?)\1{4,}", re.DOTALL)  # five repeats
MAX_RULE_LINE_CHARS = 100  # a longer one is a loop
MIN_DISTINCTIVE_CHARS = 3  # shorter lines (brackets) occur everywhere
CUT_REASONS = ("length", "timeout")  # the text ends anywhere
WHOLE_LINE_REASONS = ("lines", "block")  # the text ends after a line, and perhaps before the end of what it began
TAB_WIDTH = 4


@dataclass(frozen=True)
class CursorContext:
    """A cursor in a document. `typed_prefix` stands at `start`:`end`; an inserted text begins with it."""

    document: Document
    start: int
    end: int
    typed_prefix: str

    @property
    def prefix(self) -> str:
        """The text before the gap, with the typed prefix."""
        return _normalize_newlines(self.document.text[: self.start] + self.typed_prefix)

    @property
    def suffix(self) -> str:
        return _normalize_newlines(self.document.text[self.end :])

    @property
    def line_prefix(self) -> str:
        return self.prefix.rpartition("\n")[2]

    @property
    def line_suffix(self) -> str:
        return self.suffix.partition("\n")[0]

    @property
    def surroundings(self) -> Surroundings:
        above, newline, line_prefix = self.prefix.rpartition("\n")
        below = self.suffix.partition("\n")[2]
        language = language_of(self.document.name) or self.document.language
        return Surroundings(above + newline, line_prefix, below, language)

    @property
    def is_suggestible(self) -> bool:
        """Whether to suggest automatically: not inside a line, and not after a bare comment sign."""
        return bool(CLOSING_CHARS.match(self.line_suffix)) and not EMPTY_COMMENT.match(self.line_prefix)

    def make_fim_request(self, max_tokens: int, lines: int, seconds: float) -> FimRequest:
        """A fill-in-the-middle request with the nearest text, from the start of a line."""
        before, after = self.prefix, self.suffix[:MAX_SUFFIX_CHARS]
        if CLOSING_CHARS.match(self.line_suffix):
            after = after[len(self.line_suffix) :]  # auto-closed brackets carry no information
        excess = len(before) - MAX_PREFIX_CHARS
        if excess > 0:
            cut = -(-excess // PREFIX_STEP_CHARS) * PREFIX_STEP_CHARS
            before = before[before.find("\n", cut) + 1 or cut :]
        return FimRequest(
            _without_surrogates(before),
            _without_surrogates(after),
            max_tokens,
            max_lines=lines,
            timeout_seconds=seconds,
        )


def cursor_context(
    document: Document, position: types.Position, selected: types.SelectedCompletionInfo | None = None
) -> CursorContext:
    """The context at a position; if an entry of the editor's list is selected, as if it had been typed."""
    if selected is not None:
        first, end = document.offset(selected.range.start), document.offset(selected.range.end)
        return CursorContext(document, first, max(first, end), selected.text)
    end = document.offset(position)
    word = PARTIAL_WORD.search(document.text[max(0, end - 100) : end])
    typed = word[0] if word else ""
    return CursorContext(document, end - len(typed), end, typed)


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, which some editors send while an emoji is typed."""
    return text.encode("utf-8", "replace").decode()


def _normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def trim_completion(text: str, reason: str, context: CursorContext, max_lines: int = 0) -> str:
    """The text to insert, with the newlines and indentation of the document; "" for nothing."""
    text = CONTROL_TOKENS.split(text.replace("\r\n", "\n"), maxsplit=1)[0]
    if reason in CUT_REASONS:
        text = trim_to_syntax(text, context.surroundings, is_cut=True)
    text = _without_loop(text)
    lines = _current_block(text.split("\n"), context)
    lines = _drop_repeated_lines(lines, context)[: max_lines or None]
    text = _drop_suffix_overlap("\n".join(lines).rstrip(), context)
    if reason in WHOLE_LINE_REASONS:
        text = trim_to_syntax(text, context.surroundings, is_cut=False)
    return _match_document_style(context, text) if text.strip() else ""


def _without_loop(text: str) -> str:
    """Drop a line that repeats itself and everything after it; rules ("------") and spaces may repeat."""
    loop = next((match for match in LOOP.finditer(text) if not _is_rule_line(match)), None)
    return text if loop is None else text[: loop.start()].rpartition("\n")[0]


def _is_rule_line(match: re.Match[str]) -> bool:
    has_words = any(character.isalnum() for character in match[1])
    return not has_words and (match[0].isspace() or len(match[0]) <= MAX_RULE_LINE_CHARS)


def _current_block(lines: Sequence[str], context: CursorContext) -> list[str]:
    """The lines up to the end of the block with the cursor: the first line with less indentation ends it."""
    depth = _indent_width(context.line_prefix if context.line_prefix.strip() else context.line_prefix + lines[0])
    block = [lines[0]]
    for line in lines[1:]:
        if line.strip() and _indent_width(line) < depth:
            break
        block.append(line)
    return block


def _drop_repeated_lines(lines: Sequence[str], context: CursorContext) -> list[str]:
    """The lines before the first one that the document has around the cursor, or that repeats the line above."""
    above = [line for line in context.prefix.split("\n")[-4:-1] if line.strip()]
    below = next((line for line in context.suffix.split("\n")[1:] if line.strip()), "")
    new_lines: list[str] = []
    last = above[-1] if above else ""
    for number, line in enumerate(lines):
        whole = context.line_prefix + line if number == 0 else line
        if len(whole.strip()) >= MIN_DISTINCTIVE_CHARS and whole.rstrip() in (last.rstrip(), below.rstrip()):
            break
        new_lines.append(line)
        last = whole if whole.strip() else last
    return new_lines


def _drop_suffix_overlap(text: str, context: CursorContext) -> str:
    """Drop an end that the rest of the line starts with. Closing brackets are handled by `overlapping_chars`."""
    rest = context.line_suffix.strip()
    if not rest or "\n" in text or CLOSING_CHARS.match(rest):
        return text
    longest = next((size for size in range(min(len(rest), len(text)), 0, -1) if text.endswith(rest[:size])), 0)
    return text[: len(text) - longest] if longest else text


def overlapping_chars(text: str, context: CursorContext) -> int:
    """How many characters of the rest of the line (closing brackets) the text contains and so replaces."""
    rest = context.line_suffix.rstrip()
    is_repeated = bool(rest.strip()) and CLOSING_CHARS.match(rest) and rest.strip() in text.partition("\n")[0]
    return len(rest) if is_repeated else 0


def _match_document_style(context: CursorContext, text: str) -> str:
    """Use tabs and CRLF if the document does."""
    document = context.document.text
    if re.search(r"^\t", document, re.MULTILINE):
        text = re.sub(r"(?m)^ +", lambda match: _spaces_to_tabs(match[0]), text)
    elif re.search(r"^ ", document, re.MULTILINE):
        text = re.sub(r"(?m)^\t+", lambda match: " " * (TAB_WIDTH * len(match[0])), text)
    return text.replace("\n", context.document.newline)


def _spaces_to_tabs(spaces: str) -> str:
    return "\t" * (len(spaces) // TAB_WIDTH) + " " * (len(spaces) % TAB_WIDTH)


def _indent_width(line: str) -> int:
    expanded = line.expandtabs(TAB_WIDTH)
    return len(expanded) - len(expanded.lstrip())
