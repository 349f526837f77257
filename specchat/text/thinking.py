"""How a model marks its thinking, and the parts of a streamed answer: thinking and text.

A model that thinks writes its thought between two markers, before its answer. `thinking.toml` has those of the usual
families; the chat template and the vocabulary of a model tell which of them it uses. The text is split by the parser of
transformers, which is imported when such a model is loaded. Knows texts only: no token, no model, no torch.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from specchat.own_tables import own_tables

if TYPE_CHECKING:
    from transformers.utils.chat_parsing import ResponseParser

THINKING, TEXT = "thinking", "text"  # the kinds of parts
NO_ANCHOR = "\0"  # the parser gets the beginning of the answer only, and need not look for it in a prompt


@dataclass(frozen=True)
class AnswerPart:
    """A piece of an answer. Of a tool call, `text` is from its arguments, and the first piece has the name."""

    kind: str
    text: str
    call_index: int = 0
    call_name: str = ""


@dataclass(frozen=True)
class ThinkingFormat:
    """The markers of a family: `opening` thought `closing` answer.

    `forced_closing` ends a thought that is long enough. `skipped` is the beginning of an answer without a thought.
    `tokens` are the markers as a vocabulary has them, if it has them.
    """

    opening: str
    closing: str
    forced_closing: str
    skipped: str
    tokens: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of transformers' response template

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt ends inside a thought: some templates write the opening marker themselves."""
        return prompt.rstrip().endswith(self.opening.rstrip())

    def answer_text(self, thought: str, answer: str) -> str:
        """An answer with its thought, as a model of this family writes it."""
        return f"{self.skipped.removesuffix(self.forced_closing)}{thought}{self.forced_closing}{answer}"

    def without_thought(self, prompt: str, *, is_call: bool) -> str:
        """What follows a prompt that lets the answer, or a call, begin without a thought."""
        if self.is_skipped(prompt):
            return ""
        text_opening = "" if self.closing in self.skipped else self.skipped  # which some families mark, and no call has
        end = self.forced_closing if self.is_open(prompt) else self.skipped
        return end.removesuffix(text_opening) if is_call else end

    def is_skipped(self, prompt: str) -> bool:
        """Whether a prompt ends after the thought, usually an empty one, so that the answer follows."""
        end = prompt.rstrip()
        return end.endswith((self.closing, self.skipped.rstrip()))


def _tag_format(opening: str, closing: str, before: str = "\n", after: str = "\n\n") -> ThinkingFormat:
    """A thought between two tags. Only one that begins the answer is a thought: a later tag belongs to the text."""
    fields = {THINKING: {"open_pattern": rf"\A\s*{re.escape(opening)}", "close": closing}, TEXT: {}}
    tokens = (opening.removesuffix("thought\n"), closing)
    return ThinkingFormat(
        opening, closing, f"{before}{closing}{after}", f"{opening}{before}{before}{closing}{after}", tokens, fields
    )


def _format_of_row(row: Mapping[str, Any]) -> ThinkingFormat:
    fields: dict[str, Any] = {**row, "tokens": tuple(row.get("tokens", ()))}
    return ThinkingFormat(**fields) if fields["tokens"] else _tag_format(**row)


FORMATS: Mapping[str, ThinkingFormat] = {name: _format_of_row(row) for name, row in own_tables(__file__).items()}


def find_thinking_format(template: str, vocabulary: Container[str]) -> ThinkingFormat | None:
    """The format whose markers the chat template writes or the vocabulary has; None for a model that does not think."""
    return next(
        (
            each
            for each in FORMATS.values()
            if all(token in template for token in each.tokens) or all(token in vocabulary for token in each.tokens)
        ),
        None,
    )


class PartParser:
    """Splits one answer. `is_open` says that the prompt ends inside a thought.

    Spaces and line ends around a thought are not shown. Where a marker may have begun, text waits for what follows.
    """

    def __init__(self, thinking: ThinkingFormat, *, is_open: bool) -> None:
        template = {"start_anchor": NO_ANCHOR, "fields": dict(thinking.fields)}
        self._parser = import_parser()(template, prefix=thinking.opening if is_open else "")
        self.is_thinking = is_open
        self._has_thought, self._is_at_start = is_open, is_open
        self._pending_space = ""  # at the end of the thought so far: dropped if nothing follows

    def push(self, text: str) -> list[AnswerPart]:
        return self._parts_of(self._parser.feed(text)) if text else []

    def flush(self) -> list[AnswerPart]:
        """The text that was held back, at the end of the answer. A thought that is not closed stays one."""
        return self._parts_of(self._parser.finalize()[1])

    def _parts_of(self, events: Iterable[Mapping[str, Any]]) -> list[AnswerPart]:
        parts: list[AnswerPart] = []
        for event in events:
            kind = THINKING if event["field"] == THINKING else TEXT
            if event["type"] == "region_open":
                self._open(kind)
            elif event["type"] == "region_chunk" and (text := self._without_outer_space(kind, event["text"])):
                parts.append(AnswerPart(kind, text))
            elif event["type"] == "region_close":
                self.is_thinking = False
        return merge_parts(parts)

    def _open(self, kind: str) -> None:
        self.is_thinking = kind == THINKING
        self._has_thought = self._has_thought or self.is_thinking
        self._is_at_start, self._pending_space = self._has_thought, ""

    def _without_outer_space(self, kind: str, text: str) -> str:
        """Drop spaces at the start of a thought and of the text after it; keep back those at the end of a thought."""
        text = text.lstrip() if self._is_at_start else self._pending_space + text
        kept = text.rstrip() if kind == THINKING else text
        self._pending_space = "" if self._is_at_start and not kept else text[len(kept) :]
        self._is_at_start = self._is_at_start and not kept
        return kept


def import_parser() -> type[ResponseParser]:
    """The parser of transformers. Its import takes a second, which only models that think need."""
    from transformers.utils.chat_parsing import ResponseParser

    return ResponseParser


def merge_parts(parts: Sequence[AnswerPart]) -> list[AnswerPart]:
    """The same parts, each kind in one piece until the other one follows, and so each tool call."""
    groups = [list(group) for _, group in groupby(parts, lambda part: (part.kind, part.call_index))]
    return [
        replace(group[0], text="".join(part.text for part in group), call_name="".join(p.call_name for p in group))
        for group in groups
    ]
