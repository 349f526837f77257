"""The codes of GGUF blocks as numbers of 16 bits, in NVIDIA's PTX: two neighbouring words at once, without a conversion.

Bits of a code become those of a mantissa, and what its exponent adds is subtracted: every step is exact. Knows bits;
knows no tensor and no kernel.
"""

from __future__ import annotations

from specchat.forward.linear.block_linear import BLOCK_TYPES, LOW_BITS, BlockType

LOW_HALVES, HIGH_HALVES = "0x5410", "0x7632"  # of two words, for `prmt`
BFLOAT16, FLOAT16 = ("bf16x2", 7, 127), ("f16x2", 10, 15)  # name, bits of a mantissa, bias of an exponent
AND_OR = "0xea"  # of `lop3`: a & b | c
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
    if kind.is_e2m1:  # its three bits where exponent and mantissa meet, and its sign
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


def _block(lines: list[str]) -> str:
    return "\n".join(("{", ".reg .b32 t, u, c, one;", *lines, "}"))
