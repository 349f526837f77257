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
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.models.load import load_model
from specchat.models.load_options import LoadOptions
from specchat.train.write_answer import DRAFT_BUDGET, GeneratedAnswer, generate_answer


class TargetGenerator:
    """One target in float32, and its tokenizer."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.tokenizer: Tokenizer = load_tokenizer(folder)
        self.encoder = Encoder(self.tokenizer)
        self.target = load_model(folder, LoadOptions(dtype="float32", device=device))
        self.end_id = token_of(self.tokenizer, END)

    def prompt(self, question: str) -> list[int]:
        """The tokens that an answer to this question follows."""
        row = self.encoder.dialogue(Dialogue((Turn(question, ""),)))
        return row.tokens[: row.tokens.index(token_of(self.tokenizer, ASSISTANT)) + 1]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of an answer, control tokens included."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=False)

    def generate(self, prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        """Greedy answers without their end mark; an answer that never ends has `limit` tokens."""
        return [self.generate_with_drafter(SuffixDecoding(), prompt, max_tokens).tokens for prompt in prompts]

    def generate_with_drafter(
        self, drafter: Drafter, prompt: list[int], max_tokens: int, sampler: Sampler | None = None
    ) -> GeneratedAnswer:
        """One answer without its end mark, while this drafter guesses; it must be new to the text."""
        plan = GenerationConfig(drafter, sampler or Sampler(), DRAFT_BUDGET, max_tokens, frozenset((self.end_id,)))
        written = generate_answer(self.target, plan, prompt)
        return GeneratedAnswer(written.tokens[:-1], written.steps) if written.tokens[-1:] == [self.end_id] else written
