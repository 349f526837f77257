"""A small model with another tokenizer guesses ahead: the sure text goes over to its tokens, its guesses come back.

As in speculative decoding across vocabularies (arXiv 2502.05202, the exact match of texts). Text is bytes on the way:
the draft reads the sure text in its own spelling, and what it writes is spelled by the target's tokenizer behind the
last sure token, which is where the target itself would go on. Only whole tokens are guessed: the last one is dropped,
as more text could still make it longer. Nothing here can change the answer; a text that the two spell differently
costs guesses and nothing else. Dice are per token of the target, so the draft simply writes what it thinks likeliest.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from itertools import accumulate
from typing import Protocol

from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows, Sampler
from specchat.engine.tree import DraftTree
from specchat.errors import CacheError

OVERLAP_TOKENS = 16  # last tokens of the draft that are spelled again when the text grows: more text may join them
MAX_CHARACTER_BYTES = 4  # bytes in UTF-8
CONTINUATION_BYTES = frozenset(bytes([byte]) for byte in range(0x80, 0xC0))  # bytes that begin no character
GREEDY = Sampler()


class TextTokenizer(Protocol):
    """What is asked of a tokenizer."""

    def encode_continuation(self, text: str) -> list[int]:
        """Tokens of a text that stands behind another; control tokens are plain text."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for; nothing for one that has no text."""
        ...


class IncrementalTokenizer:
    """A growing text in the tokens of one tokenizer, and how far each of them reaches."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self._end_bytes: list[int] = []  # of each token, in bytes of the text

    def update(self, text: bytes) -> None:
        """The text has grown to `text`; its last tokens are spelled anew. Half a character at its end is left out."""
        kept = max(len(self._end_bytes) - OVERLAP_TOKENS, 0)
        while kept and text[self._end_bytes[kept - 1] :][:1] in CONTINUATION_BYTES:
            kept -= 1
        del self.tokens[kept:], self._end_bytes[kept:]
        end = self._end_bytes[-1] if kept else 0
        for token in self.tokenizer.encode_continuation(text[end:].decode("utf-8", errors="ignore")):
            end += len(self.tokenizer.token_bytes(token))
            self.tokens.append(token)
            self._end_bytes.append(end)

    def truncate(self, length_bytes: int) -> None:
        """The text was cut back to its first `size` bytes."""
        while self._end_bytes and self._end_bytes[-1] > length_bytes:
            self._end_bytes.pop()
        del self.tokens[len(self._end_bytes) :]


class RetokenizedDraftModel(Drafter):
    """A draft model that is read and written through two tokenizers. Its guesses are a chain."""

    name = "draft"

    def __init__(
        self,
        model: Model,
        draft_tokenizer: TextTokenizer,
        target_tokenizer: TextTokenizer,
        chain_length: int = 6,
        stop_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.model, self.target_tokenizer, self.chain_length = model, target_tokenizer, chain_length
        self.stop_token_ids = stop_token_ids  # the draft's tokens that end an answer: it writes nothing behind them
        self.cache = model.pool.open()
        self.draft_text = IncrementalTokenizer(draft_tokenizer)
        self._text_bytes = b""
        self._end_bytes: list[int] = []  # of each of the target's tokens, in bytes of the text
        self._cached_tokens: list[int] = []  # the draft's tokens that its cache was made of

    def propose(self, context: DraftContext) -> DraftTree:
        """The target's spelling of what the draft writes in `guesses` tokens, without its last token."""
        self._update_text(context.tokens)
        tree, ids = DraftTree(context.tokens[-1]), self.draft_text.tokens
        links = min(self.chain_length, self.model.context_window - len(ids))
        if context.max_draft_tokens <= 0 or links <= 0 or not ids or _ends_inside_character(self._text_bytes):
            return tree
        try:
            with self.model.pool.acquire_slot(self.cache, len(ids) + SCRATCH_ROWS):
                written = self._generate(ids, links)
        except CacheError:  # no room for the draft's keys and values: the answer goes on without guesses
            return tree
        guessed = self.target_tokenizer.encode_continuation(written.decode("utf-8", errors="ignore"))
        tree.add_chain(guessed[:-1][: context.max_draft_tokens], source=self.name)
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        del self._end_bytes[length:]
        self._text_bytes = self._text_bytes[: self._end_bytes[-1] if self._end_bytes else 0]
        self.draft_text.truncate(len(self._text_bytes))

    def _update_text(self, tokens: list[int]) -> None:
        fresh = [self.target_tokenizer.token_bytes(token) for token in tokens[len(self._end_bytes) :]]
        self._end_bytes += list(accumulate(map(len, fresh), initial=len(self._text_bytes)))[1:]
        self._text_bytes += b"".join(fresh)
        self.draft_text.update(self._text_bytes)

    def _generate(self, draft_tokens: list[int], chain_length: int) -> bytes:
        """What the draft writes after its tokens `ids`. Its cache keeps what they begin with and it has read."""
        self.cache.rollback(min(_common_prefix_length(self._cached_tokens, draft_tokens), len(draft_tokens) - 1))
        self._cached_tokens = draft_tokens[:]
        unread, written = draft_tokens[self.cache.length :], b""
        while len(unread) > self.model.prefill_chunk:
            self.model.prefill(unread[: self.model.prefill_chunk], self.cache)
            unread = unread[self.model.prefill_chunk :]
        for _link in range(chain_length):
            logits = self.model.prefill(unread, self.cache).logits
            unread = GREEDY.sample(logits, LogitRows([self.cache.length - 1]))
            if unread[0] in self.stop_token_ids:
                break
            written += self.draft_text.tokenizer.token_bytes(unread[0])
        self.cache.rollback(len(draft_tokens))
        return written


def _common_prefix_length(old: list[int], new: list[int]) -> int:
    """How many tokens are equal from the beginning on."""
    pairs = zip(old, new, strict=False)
    return next((place for place, (before, now) in enumerate(pairs) if before != now), min(len(old), len(new)))


def _ends_inside_character(text: bytes) -> bool:
    decoder = getincrementaldecoder("utf-8")("ignore")
    decoder.decode(text[-MAX_CHARACTER_BYTES:])
    return bool(decoder.getstate()[0])
