"""Forms of answers for the tokens of a model, by llguidance (https://github.com/guidance-ai/llguidance).

The library knows JSON schema and regular expressions; masks take it microseconds, and it can take tokens back, which
is all that a tree of guesses needs. Knows no engine but the shape of an automaton, and no text.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specchat.errors import ModelError, UsageError

# One way to write a document: spaces as json.dumps puts them. Keys and brackets then follow from each other, so that
# they are guessed for nothing; and small models that could go on with spaces for ever cannot.
JSON_WHITESPACE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class TokenGrammar:
    """An automaton over the tokens of a model that has read nothing yet."""

    def __init__(self, matcher: Any, vocab_size: int, stop_token_ids: frozenset[int]) -> None:
        self._matcher, self._vocab_size, self._stop_token_ids = matcher, vocab_size, stop_token_ids
        self._stop_tokens_past_end = 0  # end tokens behind a text that cannot go on; the library takes them uncounted

    def allowed_mask(self) -> Tensor:
        """Which tokens may come next; of a whole answer, those that end it. bool [V]"""
        packed = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(packed, count=self._vocab_size, bitorder="little").view(np.bool_)
        if not mask.any():
            raise ModelError(f"the form of the answer cannot be followed any further: {self._error_message()}")
        return torch.from_numpy(mask)

    def advance(self, token: int) -> bool:
        """Read a token; False, and nothing is read, when it may not come here."""
        if self._matcher.is_stopped():
            self._stop_tokens_past_end += token in self._stop_token_ids
            return token in self._stop_token_ids
        return self._matcher.try_consume_tokens([token]) == 1

    def rollback(self, count: int) -> None:
        """Forget the last `count` tokens."""
        behind = min(count, self._stop_tokens_past_end)
        self._stop_tokens_past_end -= behind
        if count > behind:
            self._matcher.rollback(count - behind)

    def forced_tokens(self) -> list[int]:
        """Tokens of the text that must come next."""
        return self._matcher.compute_ff_tokens()

    def _error_message(self) -> str:
        return self._matcher.get_error().splitlines()[0] if self._matcher.is_error() else self._matcher.stop_reason()


def json_schema_grammar(schema: str, tokenizer: Path, vocab_size: int, stop_token_ids: frozenset[int]) -> TokenGrammar:
    """JSON that a schema describes; UsageError when there is none, or when it asks for what is not known."""
    matcher = _llguidance().LLMatcher
    try:
        grammar = matcher.grammar_from_json_schema(schema, overrides=JSON_WHITESPACE)
    except ValueError as error:
        raise UsageError(f"the schema cannot be used: {_first_error_line(str(error))}") from error
    return _compile_grammar(grammar, "schema", tokenizer, vocab_size, stop_token_ids)


def regex_grammar(pattern: str, tokenizer: Path, vocab_size: int, stop_token_ids: frozenset[int]) -> TokenGrammar:
    """Texts that a regular expression matches as a whole."""
    return _compile_grammar(
        _llguidance().LLMatcher.grammar_from_regex(pattern), "expression", tokenizer, vocab_size, stop_token_ids
    )


def _compile_grammar(
    grammar: str, source_name: str, tokenizer: Path, vocab_size: int, stop_token_ids: frozenset[int]
) -> TokenGrammar:
    known = _llguidance_tokenizer(tokenizer, vocab_size, tuple(sorted(stop_token_ids)))
    matcher = _llguidance().LLMatcher
    if trouble := matcher.validate_grammar(grammar, known):
        raise UsageError(f"the {source_name} cannot be used: {_first_error_line(trouble)}")
    return TokenGrammar(matcher(known, grammar, log_level=0), vocab_size, stop_token_ids)


@lru_cache(maxsize=2)
def _llguidance_tokenizer(tokenizer: Path, vocab_size: int, stop_token_ids: tuple[int, ...]) -> Any:
    text = (tokenizer / "tokenizer.json").read_text(encoding="utf-8")
    return _llguidance().LLTokenizer(text, n_vocab=vocab_size, eos_token=list(stop_token_ids))


def _llguidance() -> Any:
    if importlib.util.find_spec("llguidance") is None:
        raise UsageError("answers of a given form need the package llguidance: pip install 'specchat[structured]'")
    import llguidance

    return llguidance


def _first_error_line(message: str) -> str:
    """The library draws a picture of where a fault is; its first line, or the one that names the fault."""
    lines = message.strip().splitlines()
    named = next((line for line in lines if line.startswith("error: ")), lines[0])
    return named.removeprefix("error: ")[:300]
