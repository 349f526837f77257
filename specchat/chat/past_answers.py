"""Texts of other conversations: the newest answers, and the files of their questions.

Copying drafters may propose tokens from them. Only reads the history, and no deleted conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specchat.chat.history import HistoryReader, StoredTurn
from specchat.errors import HostError

MAX_CHARACTERS = 200_000


def past_texts(path: Path, max_characters: int = MAX_CHARACTERS) -> list[str]:
    """The newest texts of a history, up to about `max_characters`, the newest last; none when it cannot be read."""
    try:
        reader = HistoryReader(path)
    except HostError:
        return []
    try:
        texts = dict[str, None]()
        for text in _newest_first(reader):
            texts.setdefault(text[:max_characters])
            max_characters -= len(text)
            if max_characters <= 0:
                break
        return list(texts)[::-1]
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
