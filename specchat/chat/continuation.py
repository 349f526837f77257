"""Completions by models without fill-in-the-middle tokens: the prompt is the text before the gap, which they continue.

Such a model does not see what follows the gap, so a gap inside a line has no completion. Knows tokenizers and no model.
"""

from dataclasses import dataclass

from specchat.chat.fim_request import FimRequest
from specchat.chat.request import MAX_CHARACTERS_PER_TOKEN
from specchat.text.tokenizer import Tokenizer

CLOSING_CHARACTERS = " \t\r)]}>\"'`;:,"  # what editors put behind the cursor; it may stand after a gap at a line end
PROBE_CHARACTERS = 200


@dataclass(frozen=True)
class ContinuationPrompt:
    """`repeated_text` ends the prefix, but not the prompt: the model writes it again, and then what follows it."""

    token_ids: list[int]
    repeated_text: str


@dataclass(frozen=True)
class Continuation:
    """Continues the text before a gap, from left to right."""

    tokenizer: Tokenizer

    @property
    def end_token_ids(self) -> frozenset[int]:
        return self.tokenizer.stop_token_ids | self.tokenizer.special_token_ids

    def build_prompt(self, request: FimRequest, max_tokens: int) -> ContinuationPrompt:
        """The prompt of at most `max_tokens` tokens: those before the gap. Without a text before it there is none."""
        budget = min(request.max_context_tokens, max_tokens)
        start = self.tokenizer.start_token_ids
        prefix = request.prefix[-budget * MAX_CHARACTERS_PER_TOKEN :]
        repeated = " " if prefix.endswith(" ") and self._joins_last_space(prefix) else ""
        ids = self.tokenizer.encode(prefix.removesuffix(repeated))[-max(1, budget - len(start)) :]
        return ContinuationPrompt([*start, *ids] if ids else [], repeated)

    def _joins_last_space(self, prefix: str) -> bool:
        """Whether the last space belongs to the token of the next word.

        Most tokenizers have tokens such as " return": after "    " the model has never seen "return", but after
        "   " it has seen " return".
        """
        end = prefix[-PROBE_CHARACTERS:]
        ids = self.tokenizer.encode(end)
        return self.tokenizer.encode(f"{end}x")[: len(ids)] != ids


def is_at_line_end(request: FimRequest) -> bool:
    return not request.suffix.partition("\n")[0].strip(CLOSING_CHARACTERS)


def is_block_over(prefix: str, text: str) -> bool:
    """Whether a complete line of the text has less indentation than the line of the cursor.

    The first line that is not blank counts when the cursor stands on a blank line.
    """
    first, *lines = (prefix.rpartition("\n")[2] + text).split("\n")
    if not first.strip():
        return False
    depth = _indentation(first)
    return any(line.strip() and _indentation(line) < depth for line in lines[:-1])


def _indentation(line: str) -> int:
    return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
