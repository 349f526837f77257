"""How each family of models is asked to fill a gap, told by the control tokens that its tokenizer has.

Sources: the model cards, bigcode/starcoder2#10, QwenLM/Qwen3-Coder#343, facebookresearch/codellama, and what Continue's
AutocompleteTemplate does. Knows tokenizers and no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specchat.chat.fim_request import FimRequest
from specchat.models.tokenizer import Tokenizer

PREFIX_TOKEN_SHARE = 0.75  # of the context; the rest is for what comes after the gap
CONTROL_TOKEN_MARGIN = 8  # control tokens around the pieces


@dataclass(frozen=True)
class FimFamily:
    """The spelling of one family. A model that says one of `ends` leaves the gap."""

    name: str
    prefix_token: str
    suffix_token: str
    middle_token: str  # "" when the suffix comes first and the text just goes on
    end_tokens: tuple[str, ...]
    bos_token: str = ""  # what a text of this family begins with
    is_suffix_first: bool = False
    fills_whole_lines: bool = (
        False  # it was taught whole lines: a line that has begun is given as the beginning of the filling
    )
    marker_tokens: tuple[str, ...] = ()  # other tokens that tell it from a family with the same spelling


PIPED = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
DOTTED = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
HYPHENED = ("<fim-prefix>", "<fim-suffix>", "<fim-middle>")
FIM_FAMILIES = (
    FimFamily(
        "CodeGemma", *PIPED, (*PIPED, "<|file_separator|>", "<eos>"), bos_token="<bos>", marker_tokens=("<|file_separator|>",)
    ),
    # without <|file_sep|> a Qwen goes on with the next file, zed-industries/zed#62249
    FimFamily(
        "Qwen", *PIPED, (*PIPED, "<|fim_pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|file_sep|>",
                         "<|repo_name|>"), marker_tokens=("<|fim_pad|>",),
    ),
    FimFamily(
        "specchat", *PIPED, (*PIPED, "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|file|>", "<|pad|>"),
        fills_whole_lines=True,
    ),
    FimFamily("StarCoder", *DOTTED, (*DOTTED, "<fim_pad>", "<file_sep>", "<repo_name>", "<|endoftext|>")),
    FimFamily("SantaCoder", *HYPHENED, (*HYPHENED, "<fim-pad>", "<|endoftext|>")),
    FimFamily(
        "DeepSeek-Coder", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>",
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<｜end▁of▁sentence｜>", "<|EOT|>"),
        bos_token="<｜begin▁of▁sentence｜>",
    ),
    FimFamily("CodeLlama", "▁<PRE>", "▁<SUF>", "▁<MID>", ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>", "</s>"), bos_token="<s>"),
    FimFamily(
        "Codestral", "[PREFIX]", "[SUFFIX]", "", ("[PREFIX]", "[SUFFIX]", "[MIDDLE]", "</s>"), bos_token="<s>",
        is_suffix_first=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class FimTokens:
    """A family in the tokens of one tokenizer."""

    tokenizer: Tokenizer
    family: FimFamily

    @property
    def end_token_ids(self) -> frozenset[int]:
        """The tokens that end a filling: no control token is ever a part of one."""
        known = self.tokenizer.vocabulary
        named = {known[end] for end in self.family.end_tokens if end in known}
        return self.tokenizer.stop_token_ids | self.tokenizer.special_token_ids | named

    def build_prompt(self, request: FimRequest, max_tokens: int) -> list[int]:
        """The tokens up to the gap, at most `room`: the nearest of what is before and after it."""
        before, begun, after = request.prefix, "", request.suffix
        if self.family.fills_whole_lines:
            before, begun = _split_last_line(request.prefix)
            after = after.partition("\n")[2]  # a filling ends its line itself
        begun_ids = self.tokenizer.encode(begun)
        most = max(1, min(request.max_context_tokens, max_tokens) - CONTROL_TOKEN_MARGIN - len(begun_ids))
        prefix, suffix = self.tokenizer.encode(before), self._encode_suffix(after)
        kept = max(round(PREFIX_TOKEN_SHARE * most), most - len(suffix))
        prefix = prefix[max(0, len(prefix) - kept) :]
        return [*self._arrange(prefix, suffix[: most - len(prefix)]), *begun_ids]

    def _arrange(self, prefix: Sequence[int], suffix: Sequence[int]) -> Iterator[int]:
        family, token = self.family, self.tokenizer.vocabulary
        if family.bos_token in token:
            yield token[family.bos_token]
        before, after = [token[family.prefix_token], *prefix], [token[family.suffix_token], *suffix]
        yield from [*after, *before] if family.is_suffix_first else [*before, *after]
        if family.middle_token:
            yield token[family.middle_token]

    def _encode_suffix(self, suffix: str) -> list[int]:
        """What goes on after the gap has no first space that a tokenizer would put before a text."""
        if not self.tokenizer.strips_first_space:
            return self.tokenizer.encode(suffix)
        return self.tokenizer.encode_continuation(self.tokenizer.escape_control_tokens(suffix))


def find_fim_tokens(tokenizer: Tokenizer) -> FimTokens | None:
    """How this tokenizer's model fills gaps; None when nothing says that it was taught to."""
    for family in FIM_FAMILIES:
        needed = {
            family.prefix_token,
            family.suffix_token,
            *family.marker_tokens,
            *([family.middle_token] if family.middle_token else []),
        }
        if needed <= tokenizer.vocabulary.keys():
            return FimTokens(tokenizer, family)
    return None


def _split_last_line(prefix: str) -> tuple[str, str]:
    """The whole lines, and the one that has begun."""
    end = prefix.rfind("\n") + 1
    return prefix[:end], prefix[end:]
