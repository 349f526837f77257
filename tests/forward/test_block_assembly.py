"""The assembly that makes numbers of codes, run here instruction by instruction: no interpreter of Triton knows it."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.forward.cuda.block_assembly import BFLOAT16, FLOAT16, code_assembly, table_assembly
from specchat.forward.linear.block_linear import BLOCK_TYPES, NF4, NF4_CODES, BlockType, CodeForm

DTYPES = {BFLOAT16: torch.bfloat16, FLOAT16: torch.float16}
WORD = 0xFFFFFFFF


def run(assembly: str, registers: dict[str, int], dtype: torch.dtype) -> dict[str, int]:  # noqa: C901
    """The registers after a block of PTX."""

    def value(operand: str) -> int:
        return registers[operand] if operand in registers else int(operand, 0)

    def numbers(operand: str) -> torch.Tensor:
        bits = value(operand)
        return torch.tensor([bits & 0xFFFF, bits >> 16]).to(torch.int32).to(torch.int16).view(dtype).double()

    def packed(result: torch.Tensor) -> int:
        low, high = (result.to(dtype).view(torch.int16).long() & 0xFFFF).tolist()
        return low | high << 16

    for line in assembly.splitlines()[2:-1]:
        operation, operands = line.rstrip(";").split(" ", 1)
        target, *others = operands.split(", ")
        match operation.split(".")[0], others:
            case "mov", [source]:
                result = value(source)
            case "shr", [source, count]:
                result = value(source) >> value(count)
            case "shl", [source, count]:
                result = value(source) << value(count) & WORD
            case "and", [left, right]:
                result = value(left) & value(right)
            case "lop3", [*three, table]:
                masks = [WORD if value(table) >> case & 1 else 0 for case in range(8)]
                terms = [
                    masks[case] & (left if case & 4 else ~left) & (middle if case & 2 else ~middle)
                    & (right if case & 1 else ~right)
                    for case in range(8)
                    for left, middle, right in [[value(each) for each in three]]
                ]  # fmt: skip
                result = sum(terms) & WORD
            case "prmt", [low, high, selector]:
                table = value(low).to_bytes(4, "little") + value(high).to_bytes(4, "little")
                chosen = [value(selector) >> 4 * place & 15 for place in range(4)]
                assert max(chosen) < 8, "a byte of eight"
                result = int.from_bytes(bytes(table[each] for each in chosen), "little")
            case "fma", [left, right, added]:
                result = packed(numbers(left) * numbers(right) + numbers(added))
            case _:
                raise NotImplementedError(line)
        registers[target] = result
    return {name: value for name, value in registers.items() if name.startswith("$")}


def as_numbers(bits: int, dtype: torch.dtype) -> list[float]:
    return torch.tensor([bits & 0xFFFF, bits >> 16]).to(torch.int32).to(torch.int16).view(dtype).tolist()


def extended(word: int, bits: int) -> int:
    """As an integer of so many bits becomes one of 32."""
    return word | (WORD << bits & WORD) if bits and word >> (bits - 1) else word


def expected(kind: BlockType, low: int, high: int, place: int) -> float:
    code = low >> 4 * place & 15
    if kind.form is CodeForm.E2M1:
        return (0, 1, 2, 3, 4, 6, 8, 12)[code & 7] * (-1 if code & 8 else 1)
    return (code | (high >> kind.high_bits * place & (1 << kind.high_bits) - 1) << 4) - kind.offset


@pytest.mark.parametrize("number_format", [BFLOAT16, FLOAT16])
@pytest.mark.parametrize("name", [each for each in BLOCK_TYPES if each != NF4])
def test_two_words_become_their_whole_numbers(name, number_format):
    draw, kind, dtype = random.Random(name), BLOCK_TYPES[name], DTYPES[number_format]
    programs = code_assembly(number_format)[list(BLOCK_TYPES).index(name) * 8 :]

    for place in range(8):
        for _ in range(16):
            words, bits = [draw.getrandbits(32), draw.getrandbits(32)], 8 * kind.high_bits
            others = [draw.getrandbits(bits) if bits else 0 for _ in range(2)]
            inputs = dict(
                zip(("$1", "$2", "$3", "$4"), [*words, *(extended(each, bits) for each in others)], strict=True)
            )

            result = run(programs[place], inputs, dtype)

            assert as_numbers(result["$0"], dtype) == [
                expected(kind, *pair, place) for pair in zip(words, others, strict=True)
            ]


@pytest.mark.parametrize("number_format", [BFLOAT16, FLOAT16])
def test_codes_of_nf4_are_looked_up(number_format):
    draw, dtype = random.Random(1), DTYPES[number_format]
    numbers = torch.tensor(NF4_CODES).to(dtype).tolist()

    for place, program in enumerate(table_assembly(number_format)):
        for _ in range(64):
            words = [draw.getrandbits(32), draw.getrandbits(32)]

            result = run(program, {"$2": words[0], "$3": words[1]}, dtype)

            for name, at in (("$0", place), ("$1", place + 4)):
                assert as_numbers(result[name], dtype) == [numbers[word >> 4 * at & 15] for word in words]
