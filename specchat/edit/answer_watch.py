"""Watches the beginning of an answer: an answer that cannot become the file is ended before it costs more.

Only the clear cases count: a refusal, a sentence where code has to stand, another language, and a text without one line
and with few words of the file, unless the instruction asks for new text. Everything else is decided at the end, by
`answer_check.py`. A model that was not given the beginning of its answer may talk before its code.
"""

import re

from specchat.chat.edit_contract import DIVIDER, SEARCH_MARKER
from specchat.edit.answer_check import PROSE_LANGUAGES, REFUSAL, AnswerProblem, starts_with_sentence
from specchat.edit.answer_patches import has_search_blocks, may_be_searched, starts_changes
from specchat.edit.asked_changes import AskedChanges, May
from specchat.edit.source_text import Source
from specchat.syntax.sniff import sniff_language

MAX_WATCHED_CHARACTERS = 600
MIN_REFUSAL_CHARACTERS = 20
MIN_SNIFFED_LINES = 3
MIN_WORDS = 20  # of the answer, before it is compared with the file: about thirty tokens
MAX_FOREIGN_SHARE = 0.5  # of known words, in another language
MIN_KNOWN_SHARE = 0.15
MIN_LINE_CHARACTERS = 4  # shorter lines stand in every file
WORD = re.compile(r"[^\W\d_]\w+")
SEARCHED_LINES = re.compile(rf"^{SEARCH_MARKER}[^\n]*\n(.*?\n)?{DIVIDER}", re.MULTILINE | re.DOTALL)
OPENING_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})[^\n]*\n")


class AnswerWatch:
    """Reads the answer about one text piece by piece."""

    def __init__(self, source: Source, instruction: str) -> None:
        self._source, self._instruction = source, instruction
        self._language = source.language
        self._known_words = {word.lower() for word in WORD.findall(f"{source.text} {instruction}")}
        self._known_lines = {line.strip() for line in source.text.split("\n")}
        self._text = ""
        self._is_done = not source.text.strip()

    def feed(self, text: str) -> AnswerProblem | None:
        """The problem that this piece makes certain, if any."""
        self._text += text
        is_divided = DIVIDER in self._text[-len(text) - len(DIVIDER) :]
        if is_divided and not has_search_blocks(self._source.text) and (problem := self._problem_of_blocks()):
            return problem
        if self._is_done:
            return None
        self._is_done = len(self._text) > MAX_WATCHED_CHARACTERS
        fence = OPENING_FENCE.match(self._text)
        inside = self._text[fence.end() :] if fence else self._text
        if self._is_refusal(inside):
            return AnswerProblem.REFUSAL
        if fence is None or starts_changes(inside) or has_search_blocks(self._source.text):
            return None  # talk may come before the code, and changes are compared with the file when they are applied
        return self._problem_of_code(inside)

    def _problem_of_blocks(self) -> AnswerProblem | None:
        """Whether the lines that a search/replace block searches cannot stand in the file, or were searched before.

        A later block may search what an earlier one writes; none can search the same lines twice.
        """
        searched = SEARCHED_LINES.findall(self._text)
        if len(searched) == 1 and not may_be_searched(self._source.text, searched[0]):
            return AnswerProblem.PATCH
        return AnswerProblem.LOOP if searched and searched[-1] in searched[:-1] else None

    def _is_refusal(self, text: str) -> bool:
        is_long_enough = len(text.strip()) >= MIN_REFUSAL_CHARACTERS
        return is_long_enough and bool(REFUSAL.match(text)) and not REFUSAL.match(self._source.text)

    def _problem_of_code(self, text: str) -> AnswerProblem | None:
        """What is wrong with the code so far; the last line may be incomplete."""
        is_code = self._language not in PROSE_LANGUAGES
        whole_lines = [line for line in text.split("\n")[:-1] if line.strip()]
        words = [word.lower() for word in WORD.findall(text)]
        known_share = sum(word in self._known_words for word in words) / max(1, len(words))
        if is_code and starts_with_sentence(self._source, text):
            return AnswerProblem.PROSE
        may = AskedChanges.of(self._instruction, self._source.text).may
        if May.REWORD in may:
            return None
        if is_code and len(whole_lines) >= MIN_SNIFFED_LINES and known_share < MAX_FOREIGN_SHARE:
            sniffed = sniff_language("\n".join(whole_lines))
            if sniffed and sniffed != self._language and not self._is_related(sniffed):
                return AnswerProblem.OTHER_LANGUAGE
        is_unlike = len(words) >= MIN_WORDS and known_share < MIN_KNOWN_SHARE and not self._has_known_line(whole_lines)
        return AnswerProblem.UNLIKE if is_unlike and May.DEFINE not in may else None

    def _has_known_line(self, lines: list[str]) -> bool:
        return any(line.strip() in self._known_lines for line in lines if len(line.strip()) >= MIN_LINE_CHARACTERS)

    def _is_related(self, sniffed: str) -> bool:
        """Whether a language can stand in such a file, as a script does in a page."""
        families = (("javascript", "typescript", "tsx"), ("c", "cpp"), ("html", "javascript", "css"))
        return any(sniffed in family and self._language in family for family in families)
