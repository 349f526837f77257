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

from specchat.engine.cache import SCRATCH
from specchat.engine.drafter import Context, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Rows, Sampler
from specchat.engine.tree import DraftTree
from specchat.errors import CacheError

OVERLAP = 16  # last tokens of the draft that are spelled again when the text grows: more text may join them
LONGEST_CHARACTER = 4  # bytes in UTF-8
CONTINUATIONS = frozenset(bytes([byte]) for byte in range(0x80, 0xC0))  # bytes that begin no character
GREEDY = Sampler()


class Speller(Protocol):
    """What is asked of a tokenizer."""

    def encode_inside(self, text: str) -> list[int]:
        """Tokens of a text that stands behind another; control tokens are plain text."""
        ...

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for; nothing for one that has no text."""
        ...


class Spelling:
    """A growing text in the tokens of one tokenizer, and how far each of them reaches."""

    def __init__(self, speller: Speller) -> None:
        self.speller = speller
        self.tokens: list[int] = []
        self._ends: list[int] = []  # of each token, in bytes of the text

    def follow(self, text: bytes) -> None:
        """The text has grown to `text`; its last tokens are spelled anew. Half a character at its end is left out."""
        kept = max(len(self._ends) - OVERLAP, 0)
        while kept and text[self._ends[kept - 1] :][:1] in CONTINUATIONS:
            kept -= 1
        del self.tokens[kept:], self._ends[kept:]
        end = self._ends[-1] if kept else 0
        for token in self.speller.encode_inside(text[end:].decode("utf-8", errors="ignore")):
            end += len(self.speller.bytes_of(token))
            self.tokens.append(token)
            self._ends.append(end)

    def cut(self, size: int) -> None:
        """The text was cut back to its first `size` bytes."""
        while self._ends and self._ends[-1] > size:
            self._ends.pop()
        del self.tokens[len(self._ends) :]


class RetokenizedDraft(Drafter):
    """A draft model that is read and written through two tokenizers. Its guesses are a chain."""

    name = "draft"

    def __init__(
        self, model: Model, draft: Speller, target: Speller, guesses: int = 6, stop: frozenset[int] = frozenset()
    ) -> None:
        self.model, self.target, self.guesses = model, target, guesses
        self.stop = stop  # the draft's tokens that end an answer: it writes nothing behind them
        self.cache = model.pool.open()
        self.spelling = Spelling(draft)
        self._text = b""
        self._ends: list[int] = []  # of each of the target's tokens, in bytes of the text
        self._read: list[int] = []  # the draft's tokens that its cache was made of

    def propose(self, context: Context) -> DraftTree:
        """The target's spelling of what the draft writes in `guesses` tokens, without its last token."""
        self._follow(context.tokens)
        tree, ids = DraftTree(context.tokens[-1]), self.spelling.tokens
        links = min(self.guesses, self.model.window - len(ids))
        if context.budget <= 0 or links <= 0 or not ids or _ends_inside_character(self._text):
            return tree
        try:
            with self.model.pool.seated(self.cache, len(ids) + SCRATCH):
                written = self._write(ids, links)
        except CacheError:  # no room for the draft's keys and values: the answer goes on without guesses
            return tree
        guessed = self.target.encode_inside(written.decode("utf-8", errors="ignore"))
        tree.add_chain(guessed[:-1][: context.budget], source=self.name)
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        del self._ends[length:]
        self._text = self._text[: self._ends[-1] if self._ends else 0]
        self.spelling.cut(len(self._text))

    def _follow(self, tokens: list[int]) -> None:
        fresh = [self.target.bytes_of(token) for token in tokens[len(self._ends) :]]
        self._ends += list(accumulate(map(len, fresh), initial=len(self._text)))[1:]
        self._text += b"".join(fresh)
        self.spelling.follow(self._text)

    def _write(self, ids: list[int], links: int) -> bytes:
        """What the draft writes after its tokens `ids`. Its cache keeps what they begin with and it has read."""
        self.cache.rollback(min(_shared(self._read, ids), len(ids) - 1))
        self._read = ids[:]
        unread, written = ids[self.cache.length :], b""
        while len(unread) > self.model.chunk:
            self.model.read(unread[: self.model.chunk], self.cache)
            unread = unread[self.model.chunk :]
        for _link in range(links):
            logits = self.model.read(unread, self.cache).logits
            unread = GREEDY.pick(logits, Rows([self.cache.length - 1]))
            if unread[0] in self.stop:
                break
            written += self.spelling.speller.bytes_of(unread[0])
        self.cache.rollback(len(ids))
        return written


def _shared(old: list[int], new: list[int]) -> int:
    """How many tokens are equal from the beginning on."""
    pairs = zip(old, new, strict=False)
    return next((place for place, (before, now) in enumerate(pairs) if before != now), min(len(old), len(new)))


def _ends_inside_character(text: bytes) -> bool:
    decoder = getincrementaldecoder("utf-8")("ignore")
    decoder.decode(text[-LONGEST_CHARACTER:])
    return bool(decoder.getstate()[0])
