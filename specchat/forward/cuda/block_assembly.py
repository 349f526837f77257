"""The codes of GGUF blocks as numbers of 16 bits, in NVIDIA's PTX: those of two neighbouring words at once.

Bits of a code become those of a mantissa, and what its exponent adds is subtracted: exact, and no conversion. Knows
bits; knows no tensor and no kernel.
"""

from __future__ import annotations

import struct

from specchat.forward.linear.block_linear import BLOCK_TYPES, LOW_BITS, NF4_CODES, BlockType, CodeForm

LOW_HALVES, HIGH_HALVES = "0x5410", "0x7632"  # of two words, for `prmt`
BFLOAT16, FLOAT16 = ("bf16x2", 7, 127), ("f16x2", 10, 15)  # name, bits of a mantissa, bias of an exponent
AND_OR = "0xea"  # of `lop3`: a & b | c
CHOOSE = "0xe4"  # c ? a : b, bit by bit
NOTHING = "0x80008000"  # twice -0, which keeps the sign of a zero


def code_assembly(number_format: tuple[str, int, int]) -> tuple[str, ...]:
    """For each type of blocks, and each place of a number in its word. $1, $2: words; $3, $4: their other bits."""
    return tuple(_assembly(kind, place, *number_format) for kind in BLOCK_TYPES.values() for place in range(8))


def _assembly(kind: BlockType, place: int, name: str, mantissa_bits: int, bias: int) -> str:
    shift, halves = LOW_BITS * (place % 4), LOW_HALVES if place < 4 else HIGH_HALVES

    def number(value: float) -> str:
        """A whole number or a power of two, twice in a word."""
        exponent = len(f"{int(abs(value)):b}") - 1
        mantissa = int(abs(value) * 2.0 ** (mantissa_bits - exponent)) - (1 << mantissa_bits)
        bits = (value < 0) << 15 | (exponent + bias) << mantissa_bits | mantissa
        return f"0x{bits << 16 | bits:08x}"

    def masked(register: str, mask: int, others: str) -> str:
        return f"lop3.b32 {register}, {register}, 0x{mask << 16 | mask:08x}, {others}, {AND_OR};"

    def moved(register: str, by: int) -> list[str]:
        return [f"{'shr' if by > 0 else 'shl'}.b32 {register}, {register}, {abs(by)};"] if by else []

    def less(register: str, subtracted: int) -> list[str]:
        return [f"mov.b32 c, {number(-subtracted)};", f"fma.rn.{name} {register}, {register}, one, c;"]

    lines = [f"mov.b32 one, {number(1)};", f"prmt.b32 t, $1, $2, {halves};", *moved("t", shift)]
    if kind.form is CodeForm.E2M1:  # its three bits where exponent and mantissa meet, and its sign
        lines += ["and.b32 u, t, 0x00080008;", "shl.b32 u, u, 12;", *moved("t", 1 - mantissa_bits)]
        lines += [masked("t", 7 << (mantissa_bits - 1), "u"), f"mov.b32 u, {NOTHING};"]
        return _block([*lines, f"mov.b32 c, {number(2.0**bias)};", f"fma.rn.{name} $0, t, c, u;"])
    implied = 1 << mantissa_bits
    lines.append(masked("t", 15, number(implied)))
    if kind.high_bits:
        is_word = kind.high_bits == LOW_BITS
        position = shift if is_word else kind.high_bits * place
        lines.append(f"prmt.b32 u, $3, $4, {halves if is_word else LOW_HALVES};")
        if kind.high_bits + LOW_BITS > mantissa_bits:
            lines += [*moved("u", position), masked("u", 15, number(implied)), *less("t", implied)]
            lines += [*less("u", implied + (kind.offset >> LOW_BITS)), f"mov.b32 c, {number(1 << LOW_BITS)};"]
            return _block([*lines, f"fma.rn.{name} $0, u, c, t;"])
        mask = ((1 << kind.high_bits) - 1) << LOW_BITS
        lines += [*moved("u", position - LOW_BITS), masked("u", mask, "t"), "mov.b32 t, u;"]
    return _block([*lines, *less("t", implied + kind.offset), "mov.b32 $0, t;"])


def table_assembly(number_format: tuple[str, int, int]) -> tuple[str, ...]:
    """For each of four places: NF4's numbers at this place and at the one four behind it. $2, $3: words.

    Bytes of the table are permuted by the codes: those of its lower and its upper half, one of which is right.
    """
    words = [_table_word(number_format, byte, first) for byte in (0, 1) for first in (0, 4, 8, 12)]
    return tuple(_table_lookup(words, LOW_BITS * place) for place in range(4))


def _table_word(number_format: tuple[str, int, int], byte: int, first: int) -> str:
    """One byte of four numbers, each rounded to 16 bits."""
    numbers = [_rounded(code, number_format) for code in NF4_CODES[first : first + 4]]
    return f"0x{sum((bits >> 8 * byte & 255) << 8 * index for index, bits in enumerate(numbers)):08x}"


def _rounded(code: float, number_format: tuple[str, int, int]) -> int:
    if number_format == FLOAT16:
        return int.from_bytes(struct.pack("<e", code), "little")
    bits = int.from_bytes(struct.pack("<f", code), "little")
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _table_lookup(words: list[str], shift: int) -> str:
    low, high = words[:4], words[4:]
    lines = [f"shr.b32 t, $2, {shift};", f"shr.b32 u, $3, {shift};", "shl.b32 u, u, 4;"]
    lines += [f"lop3.b32 t, t, u, 0x000f000f, {CHOOSE};", "prmt.b32 t, t, t, 0x0020;", "and.b32 u, t, 0x7777;"]
    lines += ["shr.b32 t, t, 3;", "and.b32 t, t, 0x1111;", "mov.b32 c, 0x0000ff00;", "prmt.b32 c, c, c, t;"]
    for register, (first, second, third, fourth) in (("l", low), ("h", high)):
        lines += [f"mov.b32 x, {first};", f"mov.b32 y, {second};", f"prmt.b32 {register}, x, y, u;"]
        lines += [f"mov.b32 x, {third};", f"mov.b32 y, {fourth};", "prmt.b32 x, x, y, u;"]
        lines.append(f"lop3.b32 {register}, x, {register}, c, {CHOOSE};")
    return _block([*lines, "prmt.b32 $0, l, h, 0x5140;", "prmt.b32 $1, l, h, 0x7362;"])


def _block(lines: list[str]) -> str:
    return "\n".join(("{", ".reg .b32 t, u, c, l, h, x, y, one;", *lines, "}"))
