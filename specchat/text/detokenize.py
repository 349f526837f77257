"""Turns streamed tokens into text as early as possible.

The size of the blocks in which tokens arrive cannot change the text. Bytes are held back until their character is
complete, and characters while they could begin a stop string. Invalid bytes become U+FFFD at once.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence

Utf8Decoder = getincrementaldecoder("utf-8")


class StopStrings:
    """Ends a text before the first stop string. After a stop string or `flush`, it returns no more text."""

    def __init__(self, stop_strings: tuple[str, ...] = ()) -> None:
        self._stop_strings = stop_strings
        self._pending_text = ""
        self.is_found = False

    def push(self, text: str) -> str:
        """The text that cannot belong to a stop string: of "an", "sw", "E" with the stop string "END" all but "E"."""
        if not text or self.is_found:
            return ""
        text = self._pending_text + text
        starts = [start for stop in self._stop_strings if (start := text.find(stop)) >= 0]
        if starts:
            self._pending_text, self.is_found = "", True
            return text[: min(starts)]
        pending = max((_partial_stop_length(stop, text) for stop in self._stop_strings), default=0)
        self._pending_text = text[len(text) - pending :]
        return text[: len(text) - pending]

    def flush(self) -> str:
        """The text that was held back, at the end of the answer."""
        text, self._pending_text, self.is_found = self._pending_text, "", True
        return text


class Detokenizer:
    """Decodes one text."""

    def __init__(self, token_bytes: Callable[[int], bytes], strip_first_space: bool = False) -> None:
        self._token_bytes = token_bytes
        self._utf8 = Utf8Decoder("replace")
        self._strips_first_space = strip_first_space

    def push(self, ids: Sequence[int]) -> str:
        """The text that a block of tokens completes."""
        return self._shown(self._utf8.decode(b"".join(map(self._token_bytes, ids))))

    def flush(self) -> str:
        """The text that was held back, at the end: an incomplete character becomes U+FFFD."""
        return self._shown(self._utf8.decode(b"", final=True))

    def _shown(self, text: str) -> str:
        if text and self._strips_first_space:
            text, self._strips_first_space = text.removeprefix(" "), False
        return text


def _partial_stop_length(stop: str, text: str) -> int:
    """The number of characters at the end of the text that could begin the stop string: 2 for "END" after "...EN"."""
    longest = min(len(stop) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)
