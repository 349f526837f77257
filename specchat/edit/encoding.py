"""Which characters the bytes of a file are. Whatever is chosen here gives back the same bytes."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from specchat.chat.attachments import MEBIBYTE
from specchat.chat.request import MAX_ATTACHED_BYTES
from specchat.errors import InputError

CODING_DECLARATION = re.compile(rb"coding[:=]\s*([-\w.]+)")  # PEP 263, and what Vim and Emacs read
UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
CONTROL_CHARACTERS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")  # what no text in Latin-1 holds


@dataclass(frozen=True)
class DecodedText:
    """A text, and the codec that writes it back."""

    text: str
    codec: str


def decode_bytes(raw: bytes, name: str) -> DecodedText:
    """UTF-8, with its mark or without; else what the file says of itself; else Latin-1, if it looks like a text."""
    if len(raw) > MAX_ATTACHED_BYTES:
        raise InputError(f"{name}: more than {MAX_ATTACHED_BYTES // MEBIBYTE} MiB; edit the part that matters")
    if b"\0" in raw or raw.startswith(UTF16_BOMS):
        raise InputError(f"{name}: a binary file, or UTF-16; only text in one-byte encodings or UTF-8 can be edited")
    codec = "utf-8-sig" if raw.startswith(codecs.BOM_UTF8) else "utf-8"
    try:
        return DecodedText(raw.decode(codec), codec)
    except UnicodeDecodeError as error:
        place = error.start
    declared = _declared_codec(raw)
    if declared and (text := _decode_lossless(raw, declared)) is not None:
        return DecodedText(text, declared)
    if CONTROL_CHARACTERS.search(raw):
        raise InputError(f"{name}: not a text in UTF-8 (byte {place} is none) and in no other encoding that we know")
    return DecodedText(raw.decode("latin-1"), "latin-1")


def _declared_codec(raw: bytes) -> str:
    found = next((each for each in map(CODING_DECLARATION.search, raw.split(b"\n", 2)[:2]) if each), None)
    return found[1].decode("ascii", "replace") if found else ""


def _decode_lossless(raw: bytes, codec: str) -> str | None:
    """The text, if this codec knows it and writes the same bytes again."""
    try:
        text = raw.decode(codec)
        return text if text.encode(codec) == raw else None
    except (LookupError, ValueError):
        return None
