"""Greedy answers of a trained target, written by our own engine: copies are guessed, the text stays the target's own.

An edit repeats most of what it is given, so guessing repeats makes an evaluation of hundreds of edits several times
shorter; and that it changes no token is what the engine promises (tests/recipes/test_writer.py compares it with transformers).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from recipes.dialogues import Dialogue, Turn
from recipes.train_tokenizer import ASSISTANT, END, load_tokenizer, token_of
from recipes.training_rows import Encoder
from specchat.drafters.suffix import Suffix
from specchat.engine.decode import Plan
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.models.load import Loading, load_model
from specchat.train.write_answer import BUDGET, Written, write_as


class Writer:
    """One target in float32, and its tokenizer."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.tokenizer: Tokenizer = load_tokenizer(folder)
        self.encoder = Encoder(self.tokenizer)
        self.target = load_model(folder, Loading(dtype="float32", device=device))
        self.end = token_of(self.tokenizer, END)

    def prompt(self, question: str) -> list[int]:
        """The tokens that an answer to this question follows."""
        row = self.encoder.dialogue(Dialogue((Turn(question, ""),)))
        return row.tokens[: row.tokens.index(token_of(self.tokenizer, ASSISTANT)) + 1]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of an answer, control tokens included."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=False)

    def write(self, prompts: Sequence[list[int]], limit: int) -> list[list[int]]:
        """Greedy answers without their end mark; an answer that never ends has `limit` tokens."""
        return [self.write_with(Suffix(), prompt, limit).tokens for prompt in prompts]

    def write_with(self, drafter: Drafter, prompt: list[int], limit: int, sampler: Sampler | None = None) -> Written:
        """One answer without its end mark, while this drafter guesses; it must be new to the text."""
        plan = Plan(drafter, sampler or Sampler(), BUDGET, limit, frozenset((self.end,)))
        written = write_as(self.target, plan, prompt)
        return Written(written.tokens[:-1], written.steps) if written.tokens[-1:] == [self.end] else written
