"""What was said in other conversations, as texts: the newest answers, and the files that went with their questions.

Whoever guesses by copying may copy from there. Only reads the history, and only what nobody has deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specchat.chat.history import HistoryReader, StoredTurn
from specchat.errors import HostError

MOST_LETTERS = 200_000


def said_before(path: Path, most: int = MOST_LETTERS) -> list[str]:
    """The newest texts of this history, about so many letters, the newest last; none where it cannot be read."""
    try:
        reader = HistoryReader(path)
    except HostError:
        return []
    try:
        found = dict[str, None]()
        for text in _newest_first(reader):
            found.setdefault(text[:most])
            most -= len(text)
            if most <= 0:
                break
        return list(found)[::-1]
    except HostError:
        return []
    finally:
        reader.close()


def _newest_first(reader: HistoryReader) -> Iterator[str]:
    for thread in reader.threads():
        for turn in reversed(reader.turns(thread.tip)):
            yield from filter(None, (turn.answered.text, *_files(turn)))


def _files(turn: StoredTurn) -> Iterator[str]:
    for file in turn.request.get("files") or ():
        yield str(file["text"])
