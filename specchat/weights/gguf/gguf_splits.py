"""How byte-level BPE splits a text into words, by the names in a GGUF file: the values of `gguf_splits.toml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from specchat.own_tables import own_tables


@dataclass(frozen=True)
class Splits:
    """The rules of a tokenizer before BPE."""

    patterns: tuple[str, ...]
    ignores_merges: bool = False  # a word that is in the vocabulary is one token, whatever the merges say
    adds_bos: bool = False  # unless the file says otherwise
    normalizes: bool = False  # to NFC


@cache
def known_splits() -> Mapping[str, Splits]:
    tables = own_tables(__file__)["splits"]
    return {
        name: Splits(tuple(table["patterns"]), **dict.fromkeys(table.get("flags", ()), True))
        for table in tables
        for name in table["names"]
    }
