"""A draft model with another tokenizer: the text is retokenized for it, and its output is retokenized back.

This is speculative decoding across vocabularies (arXiv 2502.05202, string-level exact match). The draft model reads the
committed text in its own tokens. The target's tokenizer encodes the text that it writes, starting at the last committed
token. The last token of the result is dropped, because more text could make it longer. A different tokenization costs
draft tokens only. The noise belongs to the target's tokens, so the draft model decodes greedily.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from itertools import accumulate
from typing import TYPE_CHECKING

from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows, Sampler
from specchat.engine.tree import DraftTree
from specchat.errors import CacheError

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources
    from specchat.text.tokenizer import Tokenizer

OVERLAP_TOKENS = 16  # last tokens that are encoded again when the text grows, because more text may join them
MAX_CHARACTER_BYTES = 4  # in UTF-8
CONTINUATION_BYTES = frozenset(bytes([byte]) for byte in range(0x80, 0xC0))  # of UTF-8 characters
GREEDY = Sampler()


class IncrementalTokenizer:
    """The tokens of a growing text, with the position in bytes where each ends."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self._end_bytes: list[int] = []  # of each token, in bytes of the text

    def update(self, text: bytes) -> None:
        """Follow the text, and encode its last tokens again. An incomplete character at the end is left out."""
        count = max(len(self._end_bytes) - OVERLAP_TOKENS, 0)
        while count and text[self._end_bytes[count - 1] :][:1] in CONTINUATION_BYTES:
            count -= 1
        del self.tokens[count:], self._end_bytes[count:]
        end = self._end_bytes[-1] if count else 0
        for token in self.tokenizer.encode_continuation(text[end:].decode("utf-8", errors="ignore")):
            end += len(self.tokenizer.token_bytes(token))
            self.tokens.append(token)
            self._end_bytes.append(end)

    def truncate(self, length_bytes: int) -> None:
        while self._end_bytes and self._end_bytes[-1] > length_bytes:
            self._end_bytes.pop()
        del self.tokens[len(self._end_bytes) :]


class RetokenizedDraftModel(Drafter):
    name = "retokenized"
    drafts_with_models = True

    def __init__(
        self,
        model: Model,
        draft_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        chain_length: int = 6,
        stop_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.model, self.target_tokenizer, self.chain_length = model, target_tokenizer, chain_length
        self.stop_token_ids = stop_token_ids  # the draft model's own; it generates nothing behind them
        self.cache = model.pool.open()
        self.draft_text = IncrementalTokenizer(draft_tokenizer)
        self._text_bytes = b""
        self._end_bytes: list[int] = []  # where each of the target's tokens ends in the text
        self._cached_tokens: list[int] = []  # the draft model's tokens in its cache

    def propose(self, context: DraftContext) -> DraftTree:
        """The target's tokens of the text that the draft model generates, without the last one."""
        self._update_text(context.tokens)
        tree, draft_tokens = DraftTree(context.tokens[-1]), self.draft_text.tokens
        chain_length = min(self.chain_length, self.model.context_window - len(draft_tokens))
        if context.max_draft_tokens <= 0 or chain_length <= 0 or not draft_tokens:
            return tree
        if _ends_inside_character(self._text_bytes):
            return tree
        try:
            with self.model.pool.acquire_slot(self.cache, len(draft_tokens) + SCRATCH_ROWS):
                output = self._generate(draft_tokens, chain_length)
        except CacheError:  # no memory for the draft model's KV cache: continue without draft tokens
            return tree
        tokens = self.target_tokenizer.encode_continuation(output.decode("utf-8", errors="ignore"))
        tree.add_chain(tokens[:-1][: context.max_draft_tokens], source=self.name)
        return tree

    def forget(self, length: int) -> None:
        del self._end_bytes[length:]
        self._text_bytes = self._text_bytes[: self._end_bytes[-1] if self._end_bytes else 0]
        self.draft_text.truncate(len(self._text_bytes))

    def _update_text(self, tokens: list[int]) -> None:
        new = [self.target_tokenizer.token_bytes(token) for token in tokens[len(self._end_bytes) :]]
        self._end_bytes += list(accumulate(map(len, new), initial=len(self._text_bytes)))[1:]
        self._text_bytes += b"".join(new)
        self.draft_text.update(self._text_bytes)

    def _generate(self, draft_tokens: list[int], chain_length: int) -> bytes:
        """The draft model's output after its tokens. Its cache keeps the common prefix with the last call."""
        self.cache.rollback(min(_common_prefix_length(self._cached_tokens, draft_tokens), len(draft_tokens) - 1))
        self._cached_tokens = draft_tokens[:]
        unread, output = draft_tokens[self.cache.length :], b""
        while len(unread) > self.model.prefill_chunk:
            self.model.prefill(unread[: self.model.prefill_chunk], self.cache)
            unread = unread[self.model.prefill_chunk :]
        for _index in range(chain_length):
            logits = self.model.prefill(unread, self.cache).logits
            unread = GREEDY.sample(logits, LogitRows([self.cache.length - 1]))
            if unread[0] in self.stop_token_ids:
                break
            output += self.draft_text.tokenizer.token_bytes(unread[0])
        self.cache.rollback(len(draft_tokens))
        return output


def _common_prefix_length(old: list[int], new: list[int]) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (first, second) in pairs if first != second), min(len(old), len(new)))


def _ends_inside_character(text: bytes) -> bool:
    decoder = getincrementaldecoder("utf-8")("ignore")
    decoder.decode(text[-MAX_CHARACTER_BYTES:])
    return bool(decoder.getstate()[0])


def build(resources: DraftingResources) -> Drafter | None:
    model, draft, target = resources.draft_model, resources.draft_tokenizer, resources.tokenizer
    if model is None or draft is None or target is None:
        return None
    return RetokenizedDraftModel(model, draft, target, stop_token_ids=draft.stop_token_ids)
