"""What was guessed in every step of an answer, packed: one line of JSON a step, all of them in one zlib stream.

    line   [draft_seconds, verify_seconds, guesses, parents, words, sources, [[id, word, source], ...]]

The first byte says which form of the record it is. The stream grows with the answer and can be closed at any step, so
that what a killed writer left is read as far as it goes. Words are bytes, written as latin-1. Knows no file.
"""

from __future__ import annotations

import json
import zlib

from specchat.chat.events import CommittedToken, StepDone

FORMAT_VERSION = 1
COMPRESSION_LEVEL = 3  # of compression: two thirds of the time of the usual 6, for a tenth more room
SECONDS_DIGITS = 6  # of a second


class StepPacker:
    """Steps as they come; each costs a few microseconds, whatever came before it."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(COMPRESSION_LEVEL)
        self._packed = bytearray()
        self._is_empty = True

    def add(self, step: StepDone) -> None:
        """One step more."""
        self._is_empty = False
        self._packed += self._stream.compress(_step_to_line(step))

    def packed(self) -> bytes:
        """All of them so far, for `unpack_steps`; nothing when there were none."""
        return b"" if self._is_empty else bytes([FORMAT_VERSION]) + self._packed + self._stream.copy().flush()


def unpack_steps(packed: bytes) -> list[StepDone]:
    """The steps of a record; none of one that another specchat packed in a form that we do not know."""
    if not packed or packed[0] != FORMAT_VERSION:
        return []
    lines = zlib.decompressobj().decompress(packed[1:]).split(b"\n")
    return [_step_from_line(line) for line in lines[:-1]]


def _step_to_line(step: StepDone) -> bytes:
    said = [[token.token_id, token.token_bytes.decode("latin-1"), token.source] for token in step.committed_tokens]
    words = [word.decode("latin-1") for word in step.draft_token_bytes]
    seconds = round(step.draft_seconds, SECONDS_DIGITS), round(step.verify_seconds, SECONDS_DIGITS)
    body = [*seconds, step.draft_tokens, step.parents, words, step.draft_sources, said]
    return json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n"


def _step_from_line(line: bytes) -> StepDone:
    draft_seconds, verify_seconds, drafted, parents, words, sources, said = json.loads(line)
    return StepDone(
        tuple(drafted), tuple(parents),
        tuple(CommittedToken(id, word.encode("latin-1"), source) for id, word, source in said),
        draft_seconds, verify_seconds,
        draft_token_bytes=tuple(word.encode("latin-1") for word in words), draft_sources=tuple(sources),
    )  # fmt: skip
