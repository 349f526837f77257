"""Finds the encoding of a file. Encoding the decoded text again always gives the same bytes."""

from __future__ import annotations

import codecs
import re

from specchat.chat.attachments import MEBIBYTE
from specchat.chat.request import MAX_ATTACHED_BYTES
from specchat.errors import InputError

CODING_DECLARATION = re.compile(rb"coding[:=]\s*([-\w.]+)")  # PEP 263, and what Vim and Emacs read
UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
CONTROL_CHARACTERS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")  # these do not occur in Latin-1 texts


def decode_bytes(raw: bytes, name: str) -> tuple[str, str]:
    """The text and its codec: UTF-8, else the declared encoding, else Latin-1 if it looks like text."""
    if len(raw) > MAX_ATTACHED_BYTES:
        raise InputError(f"{name}: more than {MAX_ATTACHED_BYTES // MEBIBYTE} MiB; edit the part that matters")
    if b"\0" in raw or raw.startswith(UTF16_BOMS):
        raise InputError(f"{name}: a binary file, or UTF-16; only text in one-byte encodings or UTF-8 can be edited")
    codec = "utf-8-sig" if raw.startswith(codecs.BOM_UTF8) else "utf-8"
    try:
        return raw.decode(codec), codec
    except UnicodeDecodeError as error:
        place = error.start
    declared = _declared_codec(raw)
    if declared and (text := _decode_lossless(raw, declared)) is not None:
        return text, declared
    if CONTROL_CHARACTERS.search(raw):
        raise InputError(f"{name}: not valid UTF-8 (at byte {place}), nor a text in another known encoding")
    return raw.decode("latin-1"), "latin-1"


def _declared_codec(raw: bytes) -> str:
    match = next((each for each in map(CODING_DECLARATION.search, raw.split(b"\n", 2)[:2]) if each), None)
    return match[1].decode("ascii", "replace") if match else ""


def _decode_lossless(raw: bytes, codec: str) -> str | None:
    """The text, if this codec decodes it and encodes it to the same bytes."""
    try:
        text = raw.decode(codec)
        return text if text.encode(codec) == raw else None
    except (LookupError, ValueError):
        return None
