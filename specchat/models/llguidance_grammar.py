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
SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class TokenGrammar:
    """An automaton over the tokens of a model that has read nothing yet."""

    def __init__(self, matcher: Any, vocabulary: int, stop: frozenset[int]) -> None:
        self._matcher, self._vocabulary, self._stop = matcher, vocabulary, stop
        self._past_end = 0  # end tokens behind a text that cannot go on; the library takes them uncounted

    def allowed(self) -> Tensor:
        """Which tokens may come next; of a whole answer, those that end it. bool [V]"""
        packed = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(packed, count=self._vocabulary, bitorder="little").view(np.bool_)
        if not mask.any():
            raise ModelError(f"the form of the answer cannot be followed any further: {self._trouble()}")
        return torch.from_numpy(mask)

    def advance(self, token: int) -> bool:
        """Read a token; False, and nothing is read, when it may not come here."""
        if self._matcher.is_stopped():
            self._past_end += token in self._stop
            return token in self._stop
        return self._matcher.try_consume_tokens([token]) == 1

    def retreat(self, count: int) -> None:
        """Forget the last `count` tokens."""
        behind = min(count, self._past_end)
        self._past_end -= behind
        if count > behind:
            self._matcher.rollback(count - behind)

    def forced(self) -> list[int]:
        """Tokens of the text that must come next."""
        return self._matcher.compute_ff_tokens()

    def _trouble(self) -> str:
        return self._matcher.get_error().splitlines()[0] if self._matcher.is_error() else self._matcher.stop_reason()


def grammar_of_schema(schema: str, tokenizer: Path, vocabulary: int, stop: frozenset[int]) -> TokenGrammar:
    """JSON that a schema describes; UsageError when there is none, or when it asks for what is not known."""
    matcher = _library().LLMatcher
    try:
        grammar = matcher.grammar_from_json_schema(schema, overrides=SPACING)
    except ValueError as error:
        raise UsageError(f"the schema cannot be used: {_told(str(error))}") from error
    return _made(grammar, "schema", tokenizer, vocabulary, stop)


def grammar_of_pattern(pattern: str, tokenizer: Path, vocabulary: int, stop: frozenset[int]) -> TokenGrammar:
    """Texts that a regular expression matches as a whole."""
    return _made(_library().LLMatcher.grammar_from_regex(pattern), "expression", tokenizer, vocabulary, stop)


def _made(grammar: str, what: str, tokenizer: Path, vocabulary: int, stop: frozenset[int]) -> TokenGrammar:
    known = _tokens(tokenizer, vocabulary, tuple(sorted(stop)))
    matcher = _library().LLMatcher
    if trouble := matcher.validate_grammar(grammar, known):
        raise UsageError(f"the {what} cannot be used: {_told(trouble)}")
    return TokenGrammar(matcher(known, grammar, log_level=0), vocabulary, stop)


@lru_cache(maxsize=2)
def _tokens(tokenizer: Path, vocabulary: int, stop: tuple[int, ...]) -> Any:
    text = (tokenizer / "tokenizer.json").read_text(encoding="utf-8")
    return _library().LLTokenizer(text, n_vocab=vocabulary, eos_token=list(stop))


def _library() -> Any:
    if importlib.util.find_spec("llguidance") is None:
        raise UsageError("answers of a given form need the package llguidance: pip install 'specchat[structured]'")
    import llguidance

    return llguidance


def _told(trouble: str) -> str:
    """The library draws a picture of where a fault is; its first line, or the one that names the fault."""
    lines = trouble.strip().splitlines()
    named = next((line for line in lines if line.startswith("error: ")), lines[0])
    return named.removeprefix("error: ")[:300]
