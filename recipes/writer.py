"""Greedy answers of a trained target, decoded by the engine with suffix decoding.

An edit repeats most of its input, so suffix decoding makes the evaluation several times faster. It does not change the
text (recipes/tests/test_writer.py compares it with transformers).
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
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_train.write_answer import DRAFT_BUDGET, GeneratedAnswer, generate_answer


class TargetGenerator:
    """One target in float32, and its tokenizer."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.tokenizer: Tokenizer = load_tokenizer(folder)
        self.encoder = Encoder(self.tokenizer)
        self.target = load_model(folder, LoadOptions(dtype="float32", device=device))
        self.end_id = token_of(self.tokenizer, END)

    def prompt(self, question: str) -> list[int]:
        """The prompt of a question, up to the start of the answer."""
        row = self.encoder.dialogue(Dialogue((Turn(question, ""),)))
        return row.tokens[: row.tokens.index(token_of(self.tokenizer, ASSISTANT)) + 1]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer, with control tokens."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=False)

    def generate(self, prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        """Greedy answers of at most `max_tokens` tokens, without the stop token."""
        return [self.generate_with_drafter(SuffixDecoding(), prompt, max_tokens).tokens for prompt in prompts]

    def generate_with_drafter(
        self, drafter: Drafter, prompt: list[int], max_tokens: int, sampler: Sampler | None = None
    ) -> GeneratedAnswer:
        """One answer without its stop token, with a new drafter."""
        plan = GenerationConfig(drafter, sampler or Sampler(), DRAFT_BUDGET, max_tokens, frozenset((self.end_id,)))
        answer = generate_answer(self.target, plan, prompt)
        return GeneratedAnswer(answer.tokens[:-1], answer.steps) if answer.tokens[-1:] == [self.end_id] else answer
