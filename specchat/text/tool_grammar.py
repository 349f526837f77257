"""Tool calls as grammars over tokens: a call of one of the tools, with arguments that its schema allows.

A forced call is the whole answer, as is a text in a required format, in place of which tools may be called. Else the
grammar begins behind the marker of a call.

A grammar alone lets a model write a string or a list until the answer is at its limit, and a call that is cut is
invalid. So from some token on, what closes the call is allowed alone, wherever the grammar allows it. All of it depends
on the tokens before, so the argument of `engine/accept.py` holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from specchat.engine.grammar import Grammar
from specchat.text.closed_schema import least_objects, tool_schema
from specchat.text.llguidance_grammar import LARK, TokenGrammar, compile_grammar
from specchat.text.thinking_budget import Phase, ThinkingBudget
from specchat.text.tokenizer import Tokenizer
from specchat.text.tool_calls import JsonPlace

BRACKETS = re.compile(rb"[\]}\s]*[\]}][\]}\s]*")
CLOSING_TOKENS = 64  # at least, for the fields that a schema requires
COMMA, QUOTE, NO_OPENING = re.compile(rb","), re.compile(rb'"'), re.compile(rb"[^\[{]+")


def call_grammar(
    tokenizer: Tokenizer, schemas: Mapping[str, Mapping[str, Any]], vocab_size: int, text: str = ""
) -> TokenGrammar:
    """Exactly one call of one of these tools, or the text that this rule of Lark describes."""
    return compile_grammar(LARK, _call_lark(tokenizer, schemas, text=text), tokenizer, vocab_size)


def closed_in_time(
    grammar: Grammar, schemas: Iterable[Mapping[str, Any]], tokenizer: Tokenizer, vocab_size: int, max_tokens: int
) -> ClosingGrammar:
    """A grammar of JSON, closed within `max_tokens` if these schemas let it end."""
    level_tokens = max(len(tokenizer.encode(text)) for schema in schemas for text in least_objects(schema))
    return ClosingGrammar(grammar, tokenizer, vocab_size, ClosingTime(max_tokens, level_tokens))


def free_call_grammar(
    tokenizer: Tokenizer, schemas: Mapping[str, Mapping[str, Any]], vocab_size: int, thought: ThinkingBudget | None
) -> CallsInText | None:
    """Free text with valid calls. None where a marker does not tell that a call begins, or several may follow."""
    form = tokenizer.chat.tool_format
    if not form.marker or form.next_call or form.last or form.read_arguments:
        return None
    call = compile_grammar(LARK, _call_lark(tokenizer, schemas, is_begun=True), tokenizer, vocab_size)
    return CallsInText(tokenizer, call, vocab_size, thought)


def _call_lark(
    tokenizer: Tokenizer, schemas: Mapping[str, Mapping[str, Any]], *, is_begun: bool = False, text: str = ""
) -> str:
    form = tokenizer.chat.tool_format
    beginning = form.opening.removeprefix(form.marker) if is_begun else form.opening
    calls = [
        f"call_{number}: {_literal(tokenizer, beginning + name + form.between)} arguments_{number} "
        f"{_literal(tokenizer, form.after)}\narguments_{number}: %json {json.dumps(tool_schema(schema))}"
        for number, (name, schema) in enumerate(schemas.items())
    ]
    names = [*(f"call_{number}" for number in range(len(calls))), *(["text"] if text else [])]
    return "\n".join([f"start: {' | '.join(names)}", *calls, *([f"text: {text}"] if text else [])])


def _literal(tokenizer: Tokenizer, text: str) -> str:
    """A text in Lark, whose markers are tokens; a token that ends the answer is left to its end."""
    known = [token for token in tokenizer.chat.tool_format.tokens if tokenizer.vocabulary.get(token) in tokenizer.added]
    pieces = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
    written: list[str] = []
    for piece in filter(None, pieces):
        token = tokenizer.vocabulary[piece] if piece in known else None
        if token is None:
            written.append(json.dumps(piece, ensure_ascii=False))
        elif token not in tokenizer.stop_token_ids:
            written.append(f"<[{token}]>")
    return " ".join(written)


@dataclass(frozen=True)
class ClosingTime:
    """When a call or another JSON must be closed: a quarter of its tokens before the end, and earlier if much is open.

    `level_tokens`: so many may be needed for the fields that an open object still lacks.
    """

    max_tokens: int
    level_tokens: int

    def has_come(self, token_count: int, depth: int) -> bool:
        """Whether so many tokens are written and so many brackets open that the call must be closed."""
        reserve = max(self.max_tokens // 4, CLOSING_TOKENS) + depth * self.level_tokens
        return token_count >= self.max_tokens - reserve


class ClosingGrammar:
    """A grammar of JSON that closes what is open when its time has come."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer, vocab_size: int, closing_time: ClosingTime) -> None:
        self._grammar, self._token_bytes = grammar, tokenizer.token_bytes
        self._closing_time = closing_time
        self._in_string, *self._outside = _closing_masks(tokenizer, vocab_size)
        self._places = [JsonPlace()]  # before the first token, and after each

    def allowed_mask(self) -> Tensor:
        """What the grammar allows, or what of it closes a string, a list or an object. bool [V]"""
        mask = self._grammar.allowed_mask()
        if not self._must_close:
            return mask
        for closing in [self._in_string] if self._places[-1].is_in_string else self._outside:
            if (narrowed := mask & closing).any():
                return narrowed
        return mask

    def advance(self, token: int) -> bool:
        if self._must_close and not self.allowed_mask()[token]:
            return False
        if not self._grammar.advance(token):
            return False
        self._places.append(self._places[-1].after(self._token_bytes(token).decode("latin-1")))
        return True

    def rollback(self, count: int) -> None:
        if count:
            del self._places[-count:]
            self._grammar.rollback(count)

    @property
    def _must_close(self) -> bool:
        return self._closing_time.has_come(len(self._places) - 1, self._places[-1].depth)

    def forced_tokens(self) -> list[int]:
        return self._grammar.forced_tokens()

    def is_free(self, draft_tokens: Sequence[int]) -> bool:
        return self._grammar.is_free(draft_tokens)


@lru_cache(maxsize=2)
def _closing_masks(tokenizer: Tokenizer, vocab_size: int) -> list[Tensor]:
    """The tokens that end a string; and outside of one, those that end it all, close, go on, open nothing. bool [V]"""
    pieces = [tokenizer.token_bytes(token) for token in range(vocab_size)]

    def mask(is_meant: Any) -> Tensor:
        return torch.tensor([bool(is_meant(piece)) for piece in pieces])

    ends = torch.isin(torch.arange(vocab_size), torch.tensor(sorted(tokenizer.stop_token_ids)))
    return [mask(QUOTE.match), ends, mask(BRACKETS.fullmatch), mask(COMMA.match), mask(NO_OPENING.fullmatch)]


@dataclass(frozen=True)
class _Place:
    """Where a token of an answer with calls stands."""

    end_of_text: bytes = b""  # which may be the beginning of a marker
    call: TokenGrammar | None = None  # the next token belongs to it
    reader: ThinkingBudget | TokenGrammar | None = None  # which consumed the last token


class CallsInText:
    """Free text in which every call follows a grammar, from behind its marker on; a thought before it has its limit."""

    def __init__(
        self, tokenizer: Tokenizer, call: TokenGrammar, vocab_size: int, thought: ThinkingBudget | None
    ) -> None:
        shown = tokenizer.chat.tool_token_ids | tokenizer.chat.thinking_token_ids
        hidden = tokenizer.special_token_ids - shown
        self._token_bytes = lambda token: b"" if token in hidden else tokenizer.token_bytes(token)
        self._marker, self._call, self._thought = tokenizer.chat.tool_format.marker.encode(), call, thought
        self._every_token = torch.ones(vocab_size, dtype=torch.bool)
        self._places = [_Place()]

    def allowed_mask(self) -> Tensor:
        """In a call what its grammar allows, outside every token. bool [V]"""
        if call := self._places[-1].call:
            return call.allowed_mask()
        return self._thought.allowed_mask() if self._thought else self._every_token

    def advance(self, token: int) -> bool:
        place = self._places[-1]
        if place.call is not None:
            if not place.call.advance(token):
                return False
            self._places.append(_Place(call=None if place.call.is_over else place.call, reader=place.call))
            return True
        if self._thought and not self._thought.advance(token):
            return False
        text = place.end_of_text + self._token_bytes(token)
        is_thought = self._thought is not None and self._thought.phase is not Phase.ANSWER
        call = self._call.copy() if text.endswith(self._marker) and not is_thought else None
        self._places.append(_Place(text[-len(self._marker) :], call, self._thought))
        return True

    def rollback(self, count: int) -> None:
        for _ in range(count):
            if reader := self._places.pop().reader:
                reader.rollback(1)

    def forced_tokens(self) -> list[int]:
        if call := self._places[-1].call:
            return call.forced_tokens()
        return self._thought.forced_tokens() if self._thought else []

    def is_free(self, draft_tokens: Sequence[int]) -> bool:
        """Whether no call can begin before the last of these tokens."""
        if self._places[-1].call is not None:
            return False
        end = self._marker[-1]
        if any(end in self._token_bytes(token) for token in draft_tokens):
            return False
        return self._thought is None or self._thought.is_free(draft_tokens)
