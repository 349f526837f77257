"""Suffix decoding in one call of a native kernel: contexts, and the tree of what followed them.

Python takes some ten times as long for it, in every step. Knows token ids only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from specchat.drafters.suffix_contexts import (
    MAX_CONTEXT_TOKENS,
    MAX_MATCHES,
    MAX_NEIGHBOURS,
    MIN_PAST_TEXT_MATCH,
    MIN_PROBABILITY,
    TEXT_END,
    WEIGHT_PER_MATCHED_TOKEN,
    SuffixArray,
    TextIndex,
)
from specchat.forward.native.native_ops import Kernel, native_kernels

_POINTER, _INT64, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class Search(ctypes.Structure):
    """`Search` of `native_suffix.cpp`, which explains its fields."""

    _fields_ = (
        ("text", _POINTER), ("text_length", _INT64), ("past", _POINTER), ("past_length", _INT64),
        ("positions", _POINTER), ("position_count", _INT64),
        *((name, _INT64) for name in ("max_context", "max_matches", "max_neighbours", "min_past_match", "text_end")),
        ("max_draft_tokens", _INT64), ("weight_per_token", _DOUBLE), ("min_probability", _DOUBLE),
        *((name, _POINTER) for name in ("tokens", "parents", "is_own")), ("count", _INT64),
    )  # fmt: skip


class NativeSuffix:
    """One search of a drafter after the other: addresses change rarely, and each of them takes a microsecond to ask."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._drafted = kernel, np.empty((3, 0), np.int32)
        self._search = Search(
            max_context=MAX_CONTEXT_TOKENS, max_matches=MAX_MATCHES, max_neighbours=MAX_NEIGHBOURS,
            min_past_match=MIN_PAST_TEXT_MATCH, text_end=TEXT_END, weight_per_token=WEIGHT_PER_MATCHED_TOKEN,
            min_probability=MIN_PROBABILITY,
        )  # fmt: skip

    @classmethod
    def here(cls) -> NativeSuffix | None:
        """None without native kernels."""
        kernel = native_kernels().kernel("suffix_draft")
        return None if kernel is None else cls(kernel)

    def draft(self, text: TextIndex, past: SuffixArray, max_draft_tokens: int) -> Iterator[tuple[int, int, int]]:
        """Token and parent of each node behind the root, and whether the text itself has it."""
        search = self._search
        if max_draft_tokens > self._drafted.shape[1]:
            self._drafted = np.empty((3, max_draft_tokens), np.int32)
            search.tokens, search.parents, search.is_own = (each.ctypes.data for each in self._drafted)
        search.text, search.text_length, search.max_draft_tokens = text.address, text.length, max_draft_tokens
        search.past, search.past_length = past.tokens_address, len(past.tokens)
        search.positions, search.position_count = past.positions_address, len(past.positions)
        self._kernel(ctypes.addressof(search))
        return zip(*self._drafted[:, : search.count].tolist(), strict=True)
