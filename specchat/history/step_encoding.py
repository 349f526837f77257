"""The binary encoding of the steps of an answer: one JSON line per step, in one zlib stream.

    line   [draft_seconds, verify_seconds, draft_tokens, parents, draft_token_bytes, draft_sources,
            [[token_id, token_bytes, source(, probability, [[token_bytes, probability], ...])], ...]]

The first byte is the version of the format. The stream grows with the answer and can be read after any step, so the
steps survive a killed writer. Token bytes are written as latin-1 text. Knows no file.
"""

import json
import zlib

from specchat.chat.events import CommittedToken, StepDone, of_first_tokens

FORMAT_VERSION = 1
COMPRESSION_LEVEL = 3  # a third faster than the default 6, for a tenth more bytes
SECONDS_DIGITS = 6


class StepPacker:
    """Packs steps one by one, in a few microseconds per step."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(COMPRESSION_LEVEL)
        self._packed = bytearray()
        self._is_empty = True

    def add(self, step: StepDone) -> None:
        self._is_empty = False
        self._packed += self._stream.compress(_step_to_line(step))

    def cut(self, tokens: int) -> None:
        """Keep the steps of the first tokens of the answer."""
        steps = unpack_steps(self.packed())
        self.__init__()
        for step in of_first_tokens(steps, tokens):
            self.add(step)

    def packed(self) -> bytes:
        """The bytes of all steps so far, for `unpack_steps`; empty without steps."""
        return b"" if self._is_empty else bytes([FORMAT_VERSION]) + self._packed + self._stream.copy().flush()


def unpack_steps(packed: bytes) -> list[StepDone]:
    """The steps of packed bytes; none for an unknown version of the format."""
    if not packed or packed[0] != FORMAT_VERSION:
        return []
    lines = zlib.decompressobj().decompress(packed[1:]).split(b"\n")
    return [_step_from_line(line) for line in lines[:-1]]


def _step_to_line(step: StepDone) -> bytes:
    committed = [token.to_list() for token in step.committed_tokens]
    texts = [each.decode("latin-1") for each in step.draft_token_bytes]
    seconds = round(step.draft_seconds, SECONDS_DIGITS), round(step.verify_seconds, SECONDS_DIGITS)
    body = [*seconds, step.draft_tokens, step.parents, texts, step.draft_sources, committed]
    return json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n"


def _step_from_line(line: bytes) -> StepDone:
    draft_seconds, verify_seconds, draft_tokens, parents, texts, sources, committed = json.loads(line)
    return StepDone(
        tuple(draft_tokens), tuple(parents),
        tuple(map(CommittedToken.from_list, committed)),
        draft_seconds, verify_seconds,
        draft_token_bytes=tuple(text.encode("latin-1") for text in texts), draft_sources=tuple(sources),
    )  # fmt: skip
