"""What was said in other conversations, as texts: the newest answers, and the files that went with their questions.

Whoever guesses by copying may copy from there. Only reads the history, and only what nobody has deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specchat.chat.history import HistoryReader, StoredTurn
from specchat.errors import HostError

MAX_CHARACTERS = 200_000


def past_texts(path: Path, max_characters: int = MAX_CHARACTERS) -> list[str]:
    """The newest texts of this history, about so many letters, the newest last; none where it cannot be read."""
    try:
        reader = HistoryReader(path)
    except HostError:
        return []
    try:
        found = dict[str, None]()
        for text in _newest_first(reader):
            found.setdefault(text[:max_characters])
            max_characters -= len(text)
            if max_characters <= 0:
                break
        return list(found)[::-1]
    except HostError:
        return []
    finally:
        reader.close()


def _newest_first(reader: HistoryReader) -> Iterator[str]:
    for thread in reader.threads():
        for turn in reversed(reader.turns(thread.tip)):
            yield from filter(None, (turn.answer.text, *_file_texts(turn)))


def _file_texts(turn: StoredTurn) -> Iterator[str]:
    for file in turn.request.get("files") or ():
        yield str(file["text"])
