"""Tool calls as grammars over tokens: a call of one of the tools, with arguments that its schema allows.

A forced call is the whole answer. In an answer that may call tools, the grammar begins behind the marker of a call.

A grammar alone lets a model write a string or a list until the answer is at its limit, and a call that is cut is
invalid. So from some token on, what closes the call is allowed alone, wherever the grammar allows it. All of it depends
on the tokens before, so the argument of `engine/accept.py` holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from specchat.engine.grammar import Grammar
from specchat.errors import UsageError
from specchat.text.llguidance_grammar import FIXED_SPACES, LARK, TokenGrammar, compile_grammar
from specchat.text.thinking_budget import Phase, ThinkingBudget
from specchat.text.tokenizer import Tokenizer
from specchat.text.tool_calls import JsonPlace

ANY_OBJECT = {"type": "object", "additionalProperties": True}
BRACKETS = re.compile(rb"[\]}\s]*[\]}][\]}\s]*")
CLOSING_TOKENS = 64  # at least, for the fields that a schema requires
COMMA, QUOTE, NO_OPENING = re.compile(rb","), re.compile(rb'"'), re.compile(rb"[^\[{]+")


def forced_call_grammar(
    tokenizer: Tokenizer,
    schemas: Mapping[str, Mapping[str, Any]],
    vocab_size: int,
    max_tokens: int,
    *,
    is_lenient: bool = False,
) -> Grammar:
    """Exactly one call of one of these tools, closed within `max_tokens` if its schema lets it end.

    A schema that the grammar does not support is refused, or if lenient, stands for any object.
    """

    def compiled(some: Mapping[str, Mapping[str, Any]]) -> TokenGrammar:
        return compile_grammar(LARK, _call_lark(tokenizer, some), tokenizer, vocab_size)

    def is_supported(schema: Mapping[str, Any]) -> bool:
        try:
            compiled({"tool": schema})
        except UsageError:
            return False
        return True

    try:
        grammar = compiled(schemas)
    except UsageError:
        if not is_lenient:
            raise
        schemas = {name: schema if is_supported(schema) else ANY_OBJECT for name, schema in schemas.items()}
        grammar = compiled(schemas)
    level_tokens = max(len(tokenizer.encode(text)) for schema in schemas.values() for text in _least_objects(schema))
    return ClosingGrammar(grammar, tokenizer, vocab_size, ClosingTime(max_tokens, level_tokens))


def free_call_grammar(
    tokenizer: Tokenizer, schemas: Mapping[str, Mapping[str, Any]], vocab_size: int, thought: ThinkingBudget | None
) -> CallsInText | None:
    """Free text, in which calls are valid. None where a marker does not tell that a call begins, or several may follow.

    A schema that the grammar does not support leaves the calls to the model.
    """
    form = tokenizer.chat.tool_format
    if not form.marker or form.next_call or form.last or form.read_arguments:
        return None
    try:
        call = compile_grammar(LARK, _call_lark(tokenizer, schemas, is_begun=True), tokenizer, vocab_size)
    except UsageError:
        return None
    return CallsInText(tokenizer, call, vocab_size, thought)


def _call_lark(tokenizer: Tokenizer, schemas: Mapping[str, Mapping[str, Any]], *, is_begun: bool = False) -> str:
    form = tokenizer.chat.tool_format
    beginning = form.opening.removeprefix(form.marker) if is_begun else form.opening
    calls = [
        f"call_{number}: {_literal(tokenizer, beginning + name + form.between)} arguments_{number} "
        f"{_literal(tokenizer, form.after)}\narguments_{number}: %json {json.dumps(_closed(schema))}"
        for number, (name, schema) in enumerate(schemas.items())
    ]
    return "\n".join([f"start: {' | '.join(f'call_{number}' for number in range(len(calls)))}", *calls])


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


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as llguidance gets it: with fixed spaces, and without properties that it does not name."""
    return {**_without_other_properties(dict(schema)), "x-guidance": FIXED_SPACES}


def _without_other_properties(schema: Any) -> Any:
    """A model would invent properties until the answer ends; a call without them is valid all the same."""
    if isinstance(schema, list):
        return [_without_other_properties(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _without_other_properties(each) for name, each in schema.items()}
    is_object = schema.get("type") == "object" and isinstance(schema.get("properties", {}), dict)
    has_parts = any(name in schema for name in ("allOf", "anyOf", "oneOf", "$ref", "patternProperties"))
    return inner if not is_object or has_parts else {"additionalProperties": False, **inner}


def _least_objects(schema: Any) -> Iterator[str]:
    """The required fields of every object in a schema, with short values, as JSON."""
    if isinstance(schema, list):
        for each in schema:
            yield from _least_objects(each)
    elif isinstance(schema, dict):
        properties, required = schema.get("properties"), schema.get("required")
        fields = properties if isinstance(properties, dict) else {}
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        yield json.dumps({name: _short_value(fields.get(name)) for name in names})
        for each in schema.values():
            yield from _least_objects(each)


def _short_value(schema: Any) -> Any:
    chosen = schema.get("enum") if isinstance(schema, dict) else None
    return chosen[0] if isinstance(chosen, list) and chosen else ""


@dataclass(frozen=True)
class ClosingTime:
    """When a call must be closed: a quarter of its tokens before the end, and earlier if much is open.

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
    """The tokens that end a string; and outside of one, those that close, go on, and open nothing. bool [V]"""
    pieces = [tokenizer.token_bytes(token) for token in range(vocab_size)]

    def mask(is_meant: Any) -> Tensor:
        return torch.tensor([bool(is_meant(piece)) for piece in pieces])

    return [mask(QUOTE.match), mask(BRACKETS.fullmatch), mask(COMMA.match), mask(NO_OPENING.fullmatch)]


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
