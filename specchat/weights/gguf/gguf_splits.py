"""How byte-level BPE splits a text into words, by the names in `tokenizer.ggml.pre` of a GGUF file.

The regular expressions are those of the published tokenizers, as llama.cpp knows them; each is applied to the pieces
of the one before. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Splits:
    """The rules of a tokenizer before BPE."""

    patterns: tuple[str, ...]
    ignores_merges: bool = False  # a word that is in the vocabulary is one token, whatever the merges say
    adds_bos: bool = False  # unless the file says otherwise
    normalizes: bool = False  # to NFC


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")
_PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_DEFAULT = Splits((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_FALCON = Splits((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"))
_PLAIN = Splits((_GPT2,))
_SINGLE_DIGITS = Splits((r"\p{N}", _GPT2))
_LLAMA3_PATTERN = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_LLAMA3 = Splits((_LLAMA3_PATTERN,), ignores_merges=True, adds_bos=True)
_TRIPLE_DIGITS = Splits((_LLAMA3_PATTERN,))
_QWEN2_PATTERN = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN2 = Splits((_QWEN2_PATTERN,), normalizes=True)
_STABLELM2 = Splits((_QWEN2_PATTERN,))
_TEKKEN = Splits((rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_PATHS}|{_SPACES}",), ignores_merges=True, adds_bos=True)
_GPT4O = Splits((rf"{_CASED[0]}{_ENDINGS}?|{_CASED[1]}{_ENDINGS}?|\p{{N}}{{1,3}}|{_PATHS}|{_SPACES}",))
_SEED_CODER = Splits((rf"{_ENDINGS}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",))
_DEEPSEEK_CODER = Splits((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"))
_SIGN_WORDS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
_DEEPSEEK_V3 = Splits((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", rf"{_SIGN_WORDS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"))

SPLITS: Mapping[str, Splits] = {
    "default": _DEFAULT,
    "falcon": _FALCON,
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "exaone4", "gigachat", "a.x-4.0"), _PLAIN),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _SINGLE_DIGITS
    ),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "midm-2.0", "lfm2"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _TRIPLE_DIGITS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "megrez"), _QWEN2),
    "stablelm2": _STABLELM2,
    "tekken": _TEKKEN,
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _GPT4O),
    "seed-coder": _SEED_CODER,
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-v3": _DEEPSEEK_V3,
}
