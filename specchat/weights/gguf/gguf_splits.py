"""How byte-level BPE splits a text into words, by the names in a GGUF file: the values of `gguf_splits.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Splits:
    """The rules of a tokenizer before BPE."""

    patterns: tuple[str, ...]
    ignores_merges: bool = False  # a word that is in the vocabulary is one token, whatever the merges say
    adds_bos: bool = False  # unless the file says otherwise
    normalizes: bool = False  # to NFC


@cache
def known_splits() -> Mapping[str, Splits]:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["splits"]
    return {
        name: Splits(tuple(table["patterns"]), **dict.fromkeys(table.get("flags", ()), True))
        for table in tables
        for name in table["names"]
    }
