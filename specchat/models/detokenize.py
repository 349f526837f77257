"""Tokens become text, as soon as the text is sure.

Works on one token after the other, whatever blocks they come in, so that no block boundary can change the text:
bytes wait until their character is whole, characters wait while they could begin a stop string. Invalid bytes become
U+FFFD at once and never hold anything up.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.errors import UsageError

Utf8 = getincrementaldecoder("utf-8")


@dataclass(frozen=True)
class Piece:
    """What a block of tokens brought: text that is sure, how many of its tokens count, and whether a stop was met."""

    text: str
    kept: int
    stopped: bool


class TextStream:
    """One answer. After a stop string was met, or after `flush`, nothing more comes out."""

    def __init__(
        self, bytes_of: Callable[[int], bytes], stops: tuple[str, ...] = (), strip_first_space: bool = False
    ) -> None:
        if "" in stops:
            raise UsageError("a stop string must not be empty")
        self._bytes_of = bytes_of
        self._stops = stops
        self._utf8 = Utf8("replace")
        self._held = ""
        self._strip_first_space = strip_first_space
        self._ended = False

    def push(self, ids: Sequence[int]) -> Piece:
        """Take a block. The token that completes a stop string is the last that counts; its text ends before the stop.

        With the stop string "END", the tokens "an", "sw", "E", "ND!" and "more" give Piece("answ", 4, True).
        """
        said: list[str] = []
        for index, token in enumerate(ids):
            if self._ended:
                return Piece("".join(said), index, True)
            said.append(self._take(self._utf8.decode(self._bytes_of(token))))
        return Piece("".join(said), len(ids), self._ended)

    def flush(self) -> str:
        """What was held back; no more tokens come. Half a character becomes U+FFFD."""
        if self._ended:
            return ""
        text = self._take(self._utf8.decode(b"", final=True)) + self._held
        self._held, self._ended = "", True
        return text

    def _take(self, text: str) -> str:
        """Add a text, and return what is sure now."""
        if not text:
            return ""
        if self._strip_first_space:
            text, self._strip_first_space = text.removeprefix(" "), False
        text = self._held + text
        found = [start for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            self._held, self._ended = "", True
            return text[: min(found)]
        waiting = max((_beginning(stop, text) for stop in self._stops), default=0)
        self._held = text[len(text) - waiting :]
        return text[: len(text) - waiting]


def _beginning(stop: str, text: str) -> int:
    """How many characters at the end of the text could begin the stop string: 2 for "END" after "...EN"."""
    longest = min(len(stop) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)
