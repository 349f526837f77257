"""What was guessed in every step of an answer, packed: one line of JSON a step, all of them in one zlib stream.

    line   [draft_seconds, verify_seconds, guesses, parents, words, sources, [[id, word, source], ...]]

The first byte says which form of the record it is. The stream grows with the answer and can be closed at any step, so
that what a killed writer left is read as far as it goes. Words are bytes, written as latin-1. Knows no file.
"""

from __future__ import annotations

import json
import zlib

from specchat.chat.events import Committed, StepDone

FORM = 1
LEVEL = 3  # of compression: two thirds of the time of the usual 6, for a tenth more room
DIGITS = 6  # of a second


class Recording:
    """Steps as they come; each costs a few microseconds, whatever came before it."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(LEVEL)
        self._packed = bytearray()
        self._is_empty = True

    def add(self, step: StepDone) -> None:
        """One step more."""
        self._is_empty = False
        self._packed += self._stream.compress(_line(step))

    def packed(self) -> bytes:
        """All of them so far, for `unpack_steps`; nothing when there were none."""
        return b"" if self._is_empty else bytes([FORM]) + self._packed + self._stream.copy().flush()


def unpack_steps(packed: bytes) -> list[StepDone]:
    """The steps of a record; none of one that another specchat packed in a form that we do not know."""
    if not packed or packed[0] != FORM:
        return []
    lines = zlib.decompressobj().decompress(packed[1:]).split(b"\n")
    return [_step(line) for line in lines[:-1]]


def _line(step: StepDone) -> bytes:
    said = [[token.id, token.bytes.decode("latin-1"), token.source] for token in step.committed]
    words = [word.decode("latin-1") for word in step.words]
    seconds = round(step.draft_seconds, DIGITS), round(step.verify_seconds, DIGITS)
    body = [*seconds, step.drafted, step.parents, words, step.sources, said]
    return json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n"


def _step(line: bytes) -> StepDone:
    draft_seconds, verify_seconds, drafted, parents, words, sources, said = json.loads(line)
    return StepDone(
        tuple(drafted), tuple(parents),
        tuple(Committed(id, word.encode("latin-1"), source) for id, word, source in said),
        draft_seconds, verify_seconds,
        words=tuple(word.encode("latin-1") for word in words), sources=tuple(sources),
    )  # fmt: skip
