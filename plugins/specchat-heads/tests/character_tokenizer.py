"""Tokenizers for networks that have none: one character for each token."""

from __future__ import annotations

from tests.tiny import VOCABULARY


class Letters:
    """Token t is the character `shift` places behind ASCII's t-th printable one, in a circle."""

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift

    def encode_continuation(self, text: str) -> list[int]:
        return [(ord(letter) - 32 - self.shift) % VOCABULARY for letter in text]

    def token_bytes(self, token: int) -> bytes:
        return bytes([32 + (token + self.shift) % VOCABULARY])
