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

Utf8Decoder = getincrementaldecoder("utf-8")


@dataclass(frozen=True)
class DecodedText:
    """What a block of tokens brought: text that is sure, how many of its tokens count, and whether a stop was met."""

    text: str
    token_count: int
    is_stopped: bool


class Detokenizer:
    """One answer. After a stop string was met, or after `flush`, nothing more comes out."""

    def __init__(
        self, token_bytes: Callable[[int], bytes], stop_strings: tuple[str, ...] = (), strip_first_space: bool = False
    ) -> None:
        if "" in stop_strings:
            raise UsageError("a stop string must not be empty")
        self._token_bytes = token_bytes
        self._stop_strings = stop_strings
        self._utf8 = Utf8Decoder("replace")
        self._pending_text = ""
        self._strips_first_space = strip_first_space
        self._is_ended = False

    def push(self, ids: Sequence[int]) -> DecodedText:
        """Take a block. The token that completes a stop string is the last that counts; its text ends before the stop.

        With the stop string "END", the tokens "an", "sw", "E", "ND!" and "more" give Piece("answ", 4, True).
        """
        said: list[str] = []
        for index, token in enumerate(ids):
            if self._is_ended:
                return DecodedText("".join(said), index, True)
            said.append(self._append(self._utf8.decode(self._token_bytes(token))))
        return DecodedText("".join(said), len(ids), self._is_ended)

    def flush(self) -> str:
        """What was held back; no more tokens come. Half a character becomes U+FFFD."""
        if self._is_ended:
            return ""
        text = self._append(self._utf8.decode(b"", final=True)) + self._pending_text
        self._pending_text, self._is_ended = "", True
        return text

    def _append(self, text: str) -> str:
        """Add a text, and return what is sure now."""
        if not text:
            return ""
        if self._strips_first_space:
            text, self._strips_first_space = text.removeprefix(" "), False
        text = self._pending_text + text
        found = [start for stop in self._stop_strings if (start := text.find(stop)) >= 0]
        if found:
            self._pending_text, self._is_ended = "", True
            return text[: min(found)]
        waiting = max((_partial_stop_length(stop, text) for stop in self._stop_strings), default=0)
        self._pending_text = text[len(text) - waiting :]
        return text[: len(text) - waiting]


def _partial_stop_length(stop: str, text: str) -> int:
    """How many characters at the end of the text could begin the stop string: 2 for "END" after "...EN"."""
    longest = min(len(stop) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)
