"""Grammars over the tokens of a model, by llguidance (https://github.com/guidance-ai/llguidance).

llguidance supports JSON schema and regular expressions, computes a token mask in microseconds, and can roll back, as a
draft tree needs. Knows the interface `engine.grammar`, and nothing else of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specchat.errors import ModelError, UsageError
from specchat.text.tokenizer import Tokenizer

# As json.dumps writes: keys and brackets become forced tokens, and a small model cannot generate spaces forever.
FIXED_SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
SCHEMA, REGEX, LARK = "schema", "regex", "lark"  # the kinds of sources
SOURCE_NAMES = {REGEX: "expression", LARK: "grammar"}


class TokenGrammar:
    def __init__(self, matcher: Any, vocab_size: int, stop_token_ids: frozenset[int]) -> None:
        self._matcher, self._vocab_size, self._stop_token_ids = matcher, vocab_size, stop_token_ids
        self._stop_tokens_past_end = 0  # stop tokens after the end; llguidance does not count them

    def allowed_mask(self) -> Tensor:
        """The tokens that may come next; after a complete answer, the stop tokens. bool [V]"""
        packed = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(packed, count=self._vocab_size, bitorder="little").view(np.bool_)
        if not mask.any():
            raise ModelError(f"the grammar allows no further token: {self._error_message()}")
        return torch.from_numpy(mask)

    def advance(self, token: int) -> bool:
        if self._matcher.is_stopped():
            self._stop_tokens_past_end += token in self._stop_token_ids
            return token in self._stop_token_ids
        return self._matcher.try_consume_tokens([token]) == 1

    def rollback(self, count: int) -> None:
        stops = min(count, self._stop_tokens_past_end)
        self._stop_tokens_past_end -= stops
        if count > stops:
            self._matcher.rollback(count - stops)

    def forced_tokens(self) -> list[int]:
        return self._matcher.compute_ff_tokens()

    def is_free(self, draft_tokens: Sequence[int]) -> bool:
        """Never known: a mask takes microseconds."""
        return False

    @property
    def is_over(self) -> bool:
        """Whether only the end of the answer may follow."""
        return set(self.allowed_mask().nonzero().flatten().tolist()) <= self._stop_token_ids

    def copy(self) -> TokenGrammar:
        """The grammar in its state, which goes on by itself."""
        return TokenGrammar(self._matcher.deep_copy(), self._vocab_size, self._stop_token_ids)

    def _error_message(self) -> str:
        return self._matcher.get_error().splitlines()[0] if self._matcher.is_error() else self._matcher.stop_reason()


def compile_grammar(kind: str, source: str, tokenizer: Tokenizer, vocab_size: int) -> TokenGrammar:
    """A grammar of a JSON schema, of what a regular expression matches as a whole, or in llguidance's variant of Lark.

    UsageError for one that is invalid, unsatisfiable or unsupported.
    """
    matcher = _library().LLMatcher
    readers = {
        SCHEMA: partial(matcher.grammar_from_json_schema, overrides=FIXED_SPACES),
        REGEX: matcher.grammar_from_regex,
        LARK: matcher.grammar_from_lark,
    }
    tokens = _llguidance_tokenizer(tokenizer.folder, vocab_size, tuple(sorted(tokenizer.stop_token_ids)))
    try:
        grammar = readers[kind](source)
        error = matcher.validate_grammar(grammar, tokens)
    except ValueError as fault:
        grammar, error = "", str(fault)
    if error:
        raise UsageError(f"the {SOURCE_NAMES.get(kind, kind)} cannot be used: {_first_error_line(error)}")
    return TokenGrammar(matcher(tokens, grammar, log_level=0), vocab_size, tokenizer.stop_token_ids)


def check_schema(schema: dict[str, Any]) -> tuple[bool, list[str]]:
    """Whether no grammar follows this schema at all, and what is wrong or, with the option "lenient", left out."""
    matcher = _library().LLMatcher
    try:
        is_wrong, messages = matcher.validate_grammar_with_warnings(matcher.grammar_from_json_schema(schema), None)
    except ValueError as fault:
        is_wrong, messages = True, [str(fault)]
    return is_wrong, list(map(_first_error_line, messages))


@lru_cache(maxsize=2)
def _llguidance_tokenizer(tokenizer: Path, vocab_size: int, stop_token_ids: tuple[int, ...]) -> Any:
    text = (tokenizer / "tokenizer.json").read_text(encoding="utf-8")
    return _library().LLTokenizer(text, n_vocab=vocab_size, eos_token=list(stop_token_ids))


def _library() -> Any:
    """llguidance, which only requests with a grammar import."""
    import llguidance

    return llguidance


def _first_error_line(message: str) -> str:
    """The line that starts with "error: ", else the first line; llguidance also prints the position of the error."""
    lines = message.strip().splitlines()
    line = next((line for line in lines if line.startswith("error: ")), lines[0])
    return line.removeprefix("error: ")[:300]
