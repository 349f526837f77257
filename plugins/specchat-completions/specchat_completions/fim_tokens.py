"""The prompt of a completion: fill-in-the-middle (FIM), or the text before the gap for models without such tokens.

The family of a model is detected by the control tokens of its tokenizer.

Sources: the model cards, bigcode/starcoder2#10, QwenLM/Qwen3-Coder#343, facebookresearch/codellama, and Continue's
AutocompleteTemplate. Knows tokenizers and no model.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specchat.chat.fim_request import FimRequest
from specchat.chat.request import MAX_CHARACTERS_PER_TOKEN, check_token_ids
from specchat.errors import ContextError
from specchat.text.tokenizer import Tokenizer

PREFIX_TOKEN_SHARE = 0.75  # of the context; the rest is for the suffix
CONTROL_TOKEN_MARGIN = 8
CLOSING_CHARACTERS = " \t\r)]}>\"'`;:,"  # what editors put behind the cursor; it may stand after a gap at a line end
PROBE_CHARACTERS = 200
FAMILIES_FILE = Path(__file__).with_name("fim_families.toml")


@dataclass(frozen=True)
class GapPrompt:
    """`repeated_text` ends the prefix, but not the prompt: the model writes it again, and then what follows it."""

    token_ids: list[int]
    repeated_text: str = ""


@dataclass(frozen=True)
class FimFamily:
    """The control tokens of one family. One of `end_tokens` ends the completion."""

    name: str
    prefix_token: str
    suffix_token: str
    middle_token: str  # "" when the suffix comes first and the prefix last
    end_tokens: tuple[str, ...]
    bos_token: str = ""
    is_suffix_first: bool = False
    fills_whole_lines: bool = False  # trained on whole lines: the start of the current line is given after the prompt
    marker_tokens: tuple[str, ...] = ()  # they distinguish it from a family with the same control tokens


@cache
def fim_families() -> tuple[FimFamily, ...]:
    """The families of `fim_families.toml`, in its order."""
    tables: dict[str, dict[str, Any]] = tomllib.loads(FAMILIES_FILE.read_text(encoding="utf-8"))
    for table in tables.values():
        table |= {key: tuple(table.get(key, ())) for key in ("end_tokens", "marker_tokens")}
    return tuple(FimFamily(name, **table) for name, table in tables.items())


@dataclass(frozen=True)
class FimTokens:
    tokenizer: Tokenizer
    family: FimFamily

    @property
    def end_token_ids(self) -> frozenset[int]:
        """The tokens that end a completion; all control tokens do."""
        vocabulary = self.tokenizer.vocabulary
        ends = {vocabulary[token] for token in self.family.end_tokens if token in vocabulary}
        return self.tokenizer.stop_token_ids | self.tokenizer.special_token_ids | ends

    def build_prompt(self, request: FimRequest, max_tokens: int) -> GapPrompt:
        """The prompt of at most `max_tokens` tokens: those nearest to the gap."""
        before, line_start, after = request.prefix, "", request.suffix
        if self.family.fills_whole_lines:
            last_line = request.prefix.rfind("\n") + 1
            before, line_start = request.prefix[:last_line], request.prefix[last_line:]
            after = after.partition("\n")[2]  # the completion contains the rest of its line
        budget = min(request.max_context_tokens, max_tokens)
        # What is further away from the gap cannot be in the prompt, and a text of megabytes takes seconds to encode.
        longest = budget * MAX_CHARACTERS_PER_TOKEN
        line_ids = self.tokenizer.encode(line_start[-longest:])[-budget // 2 :]
        limit = max(1, budget - CONTROL_TOKEN_MARGIN - len(line_ids))
        prefix, suffix = self.tokenizer.encode(before[-longest:]), self._encode_suffix(after[:longest])
        prefix_limit = max(round(PREFIX_TOKEN_SHARE * limit), limit - len(suffix))
        prefix = prefix[max(0, len(prefix) - prefix_limit) :]
        return GapPrompt([*self._arrange(prefix, suffix[: limit - len(prefix)]), *line_ids])

    def _arrange(self, prefix: Sequence[int], suffix: Sequence[int]) -> Iterator[int]:
        family, token = self.family, self.tokenizer.vocabulary
        if family.bos_token in token:
            yield token[family.bos_token]
        before, after = [token[family.prefix_token], *prefix], [token[family.suffix_token], *suffix]
        yield from [*after, *before] if family.is_suffix_first else [*before, *after]
        if family.middle_token:
            yield token[family.middle_token]

    def _encode_suffix(self, suffix: str) -> list[int]:
        """Encode the suffix without the space that some tokenizers put before a text."""
        if not self.tokenizer.strips_first_space:
            return self.tokenizer.encode(suffix)
        return self.tokenizer.encode_continuation(self.tokenizer.control_tokens.escape(suffix))


def find_fim_tokens(tokenizer: Tokenizer) -> FimTokens | None:
    for family in fim_families():
        needed = {family.prefix_token, family.suffix_token, family.middle_token, *family.marker_tokens} - {""}
        if needed <= tokenizer.vocabulary.keys():
            return FimTokens(tokenizer, family)
    return None


@dataclass(frozen=True)
class Continuation:
    """Continues the text before a gap, for models without these tokens.

    Such a model does not see what follows the gap, so a gap inside a line has no completion.
    """

    tokenizer: Tokenizer

    @property
    def end_token_ids(self) -> frozenset[int]:
        return self.tokenizer.stop_token_ids | self.tokenizer.special_token_ids

    def build_prompt(self, request: FimRequest, max_tokens: int) -> GapPrompt:
        """The prompt of at most `max_tokens` tokens: those before the gap. Without a text before it there is none."""
        budget = min(request.max_context_tokens, max_tokens)
        start = self.tokenizer.start_token_ids
        prefix = request.prefix[-budget * MAX_CHARACTERS_PER_TOKEN :]
        repeated = " " if prefix.endswith(" ") and self._joins_last_space(prefix) else ""
        ids = self.tokenizer.encode(prefix.removesuffix(repeated))[-max(1, budget - len(start)) :]
        return GapPrompt([*start, *ids] if ids else [], repeated)

    def _joins_last_space(self, prefix: str) -> bool:
        """Whether the last space belongs to the token of the next word.

        Most tokenizers have tokens such as " return": after "    " the model has never seen "return", but after
        "   " it has seen " return".
        """
        end = prefix[-PROBE_CHARACTERS:]
        ids = self.tokenizer.encode(end)
        return self.tokenizer.encode(f"{end}x")[: len(ids)] != ids


def raw_prompt(tokenizer: Tokenizer, request: FimRequest, max_tokens: int) -> GapPrompt:
    """A prompt with its own control tokens, after those that begin every text; its end where it is too long."""
    given, start = list(request.prompt_ids), list[int]()
    check_token_ids(given, tokenizer.vocab_size)
    if not given:
        text = request.prefix[-max_tokens * MAX_CHARACTERS_PER_TOKEN :]
        given = tokenizer.encode(text, parse_special=request.parses_special)
        if request.adds_start and given[:1] != tokenizer.start_token_ids[:1]:
            start = tokenizer.start_token_ids
    if request.echoes and len(start) + len(given) > max_tokens:
        raise ContextError(f"the prompt has {len(given)} tokens, and there is room for {max_tokens}; send less")
    return GapPrompt([*start, *given[len(start) - max_tokens :]])


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
