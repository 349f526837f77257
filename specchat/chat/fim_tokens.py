"""How each family of models is asked to fill a gap, told by the control tokens that its tokenizer has.

Sources: the model cards, bigcode/starcoder2#10, QwenLM/Qwen3-Coder#343, facebookresearch/codellama, and what Continue's
AutocompleteTemplate does. Knows tokenizers and no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specchat.chat.fim_request import Gap
from specchat.models.tokenizer import Tokenizer

PREFIX_SHARE = 0.75  # of the context; the rest is for what comes after the gap
MARGIN = 8  # control tokens around the pieces


@dataclass(frozen=True)
class Family:
    """The spelling of one family. A model that says one of `ends` leaves the gap."""

    name: str
    prefix: str
    suffix: str
    middle: str  # "" when the suffix comes first and the text just goes on
    ends: tuple[str, ...]
    first: str = ""  # what a text of this family begins with
    has_suffix_first: bool = False
    fills_lines: bool = (
        False  # it was taught whole lines: a line that has begun is given as the beginning of the filling
    )
    marks: tuple[str, ...] = ()  # other tokens that tell it from a family with the same spelling


PIPED = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
DOTTED = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
HYPHENED = ("<fim-prefix>", "<fim-suffix>", "<fim-middle>")
FAMILIES = (
    Family(
        "CodeGemma", *PIPED, (*PIPED, "<|file_separator|>", "<eos>"), first="<bos>", marks=("<|file_separator|>",)
    ),
    # without <|file_sep|> a Qwen goes on with the next file, zed-industries/zed#62249
    Family(
        "Qwen", *PIPED, (*PIPED, "<|fim_pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|file_sep|>",
                         "<|repo_name|>"), marks=("<|fim_pad|>",),
    ),
    Family(
        "specchat", *PIPED, (*PIPED, "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|file|>", "<|pad|>"),
        fills_lines=True,
    ),
    Family("StarCoder", *DOTTED, (*DOTTED, "<fim_pad>", "<file_sep>", "<repo_name>", "<|endoftext|>")),
    Family("SantaCoder", *HYPHENED, (*HYPHENED, "<fim-pad>", "<|endoftext|>")),
    Family(
        "DeepSeek-Coder", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>",
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<｜end▁of▁sentence｜>", "<|EOT|>"),
        first="<｜begin▁of▁sentence｜>",
    ),
    Family("CodeLlama", "▁<PRE>", "▁<SUF>", "▁<MID>", ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>", "</s>"), first="<s>"),
    Family(
        "Codestral", "[PREFIX]", "[SUFFIX]", "", ("[PREFIX]", "[SUFFIX]", "[MIDDLE]", "</s>"), first="<s>",
        has_suffix_first=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Infill:
    """A family in the tokens of one tokenizer."""

    tokenizer: Tokenizer
    family: Family

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end a filling: no control token is ever a part of one."""
        known = self.tokenizer.vocabulary
        named = {known[end] for end in self.family.ends if end in known}
        return self.tokenizer.stop | self.tokenizer.special | named

    def prompt(self, gap: Gap, room: int) -> list[int]:
        """The tokens up to the gap, at most `room`: the nearest of what is before and after it."""
        before, begun, after = gap.prefix, "", gap.suffix
        if self.family.fills_lines:
            before, begun = _divided(gap.prefix)
            after = after.partition("\n")[2]  # a filling ends its line itself
        begun_ids = self.tokenizer.encode(begun)
        most = max(1, min(gap.context, room) - MARGIN - len(begun_ids))
        prefix, suffix = self.tokenizer.encode(before), self._after(after)
        kept = max(round(PREFIX_SHARE * most), most - len(suffix))
        prefix = prefix[max(0, len(prefix) - kept) :]
        return [*self._laid_out(prefix, suffix[: most - len(prefix)]), *begun_ids]

    def _laid_out(self, prefix: Sequence[int], suffix: Sequence[int]) -> Iterator[int]:
        family, token = self.family, self.tokenizer.vocabulary
        if family.first in token:
            yield token[family.first]
        before, after = [token[family.prefix], *prefix], [token[family.suffix], *suffix]
        yield from [*after, *before] if family.has_suffix_first else [*before, *after]
        if family.middle:
            yield token[family.middle]

    def _after(self, suffix: str) -> list[int]:
        """What goes on after the gap has no first space that a tokenizer would put before a text."""
        if not self.tokenizer.strips_first_space:
            return self.tokenizer.encode(suffix)
        return self.tokenizer.encode_inside(self.tokenizer.guard(suffix))


def infill_of(tokenizer: Tokenizer) -> Infill | None:
    """How this tokenizer's model fills gaps; None when nothing says that it was taught to."""
    for family in FAMILIES:
        needed = {family.prefix, family.suffix, *family.marks, *([family.middle] if family.middle else [])}
        if needed <= tokenizer.vocabulary.keys():
            return Infill(tokenizer, family)
    return None


def _divided(prefix: str) -> tuple[str, str]:
    """The whole lines, and the one that has begun."""
    end = prefix.rfind("\n") + 1
    return prefix[:end], prefix[end:]
