"""Converts vocabulary pieces to the bytes that they stand for.

Two families cover the causal language models: byte-level BPE, which writes every byte as a printable character, and
SentencePiece, which writes a space as "▁" and rare bytes as "<0xE4>". The `decoder` in tokenizer.json tells which.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specchat.errors import ModelError

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SUPPORTED_DECODERS = ("ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip")


@dataclass(frozen=True)
class TokenDecoder:
    is_byte_level: bool = False
    has_byte_fallback: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    strips_first_space: bool = False

    def piece_bytes(self, piece: str) -> bytes:
        """The bytes of a piece: "Ġthe" and "▁the" are both " the"."""
        if self.is_byte_level:
            codes = [BYTE_OF_CHARACTER.get(character) for character in piece]
            return piece.encode() if None in codes else bytes(code for code in codes if code is not None)
        if self.has_byte_fallback and (byte := BYTE_TOKEN.fullmatch(piece)):
            return bytes([int(byte[1], 16)])
        for old, new in self.replacements:
            piece = piece.replace(old, new)
        return piece.encode()


def read_token_decoder(decoder: dict[str, Any] | None) -> TokenDecoder:
    steps = list(_decoder_steps(decoder)) if decoder else []
    kinds = {step["type"] for step in steps}
    unknown = sorted(kinds.difference(SUPPORTED_DECODERS))
    if unknown or not steps:
        raise ModelError(
            f"its tokenizer has an unsupported decoder ({', '.join(unknown) or 'no decoder'}); "
            "supported are byte-level BPE and SentencePiece"
        )
    return TokenDecoder(
        is_byte_level="ByteLevel" in kinds,
        has_byte_fallback="ByteFallback" in kinds,
        replacements=tuple(_replacement(step) for step in steps if step["type"] in ("Replace", "Metaspace")),
        strips_first_space=any(_strips_first_space(step) for step in steps),
    )


def _decoder_steps(decoder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if decoder["type"] == "Sequence":
        for part in decoder["decoders"]:
            yield from _decoder_steps(part)
    else:
        yield decoder


def _replacement(step: dict[str, Any]) -> tuple[str, str]:
    if step["type"] == "Metaspace":
        return (step["replacement"], " ")
    pattern = step["pattern"]
    if "String" not in pattern:
        raise ModelError("its tokenizer decodes with a regular expression, which is not supported")
    return (pattern["String"], step["content"])


def _strips_first_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space", True)
    return step["type"] == "Strip" and step["content"] == " " and step["start"] > 0


def _byte_characters() -> dict[str, int]:
    """The byte of each printable character in byte-level BPE: itself, or for others a character from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [code for code in range(256) if code not in printable]
    return {chr(code): code for code in printable} | {chr(256 + index): code for index, code in enumerate(others)}


BYTE_OF_CHARACTER = _byte_characters()
