"""Safetensors of strangers, damaged by seed: a model and heads are refused in one line, or they compute.

Of a file are changed: shapes, dtypes, offsets and the size of the header, numbers, and its length.
"""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.selftest import load_selected_head
from specchat.errors import SpecchatError
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.tiny import speaking, target
from tests.tiny_heads import saved_head

ABSURD = (0, -1, 1, 2**31, 2**40, 2**63, 10**30, 1.5, "3", None, [3])
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E4M3", "F4", "", None)
WORDS = (math.nan, math.inf, 3e38)
KINDS = ("model", "eagle3", "mtp")


@dataclass
class Loads:
    """What came of hostile files: refusals in a line, and faults."""

    tries: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, others: Loads) -> None:
        self.tries += others.tries
        self.refused += others.refused
        self.faults += others.faults


def load_hostile(kind: str, folder: Path, count: int, seed: int) -> Loads:
    """Load so many damaged copies of a model or of a head; anything but a line or a pass is a fault."""
    dice, found, whole = random.Random(f"{seed} {kind}"), Loads(), speaking() if kind == "model" else saved_head(kind)
    _load(kind, whole)  # what is refused below is refused for its damage
    for number in range(count):
        copy = folder / str(number)
        shutil.copytree(whole, copy)
        found.tries += 1
        done = damage(copy / "model.safetensors", dice)
        try:
            _load(kind, copy)
        except SpecchatError as error:
            found.refused += 1
            if "\n" in str(error):
                found.faults.append(f"{kind} {number} ({done}): several lines: {error}")
        except Exception as error:  # noqa: BLE001 (what is looked for)
            found.faults.append(f"{kind} {number} ({done}): {type(error).__name__}: {error}")
        shutil.rmtree(copy)
    return found


def _load(kind: str, folder: Path) -> None:
    if kind == "model":
        load_model(folder, LoadOptions(dtype="float32"))
    else:
        load_selected_head(
            inspect_head(folder), target("dense-llama"), torch.float32, torch.device("cpu"), folder / "cache"
        )


def damage(file: Path, dice: random.Random) -> str:
    """Damage a file of tensors in one way; what was done."""
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = dice.choice([each for each in header if each != "__metadata__"])
    way = dice.choice(list(WAYS))
    done, changed = WAYS[way](header[name], data, dice)
    if way == "name":
        header[dice.choice(["x" * 100_000, "\x1b[2J", "../../etc/passwd", ""])] = header.pop(name)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    whole = len(text).to_bytes(8, "little") + text + changed
    if way == "header size":
        whole = dice.choice([0, 7, 2**31, 2**63, 2**64 - 1]).to_bytes(8, "little") + whole[8:]
    if way == "cut":
        whole = whole[: dice.randrange(len(whole))]
    if way == "bytes":
        at = dice.randrange(8, 8 + size)
        whole = whole[:at] + dice.randbytes(1) + whole[at + 1 :]
    file.write_bytes(whole)
    return f"{way} of {name}: {done}"


Tensor = dict[str, Any]


def _shape(tensor: Tensor, data: bytes, dice: random.Random) -> tuple[str, bytes]:
    shape = list(tensor["shape"])
    shape[dice.randrange(len(shape))] = dice.choice(ABSURD)
    tensor["shape"] = dice.choice([shape, shape[::-1], [*shape, 1], [], None])
    return str(tensor["shape"]), data


def _dtype(tensor: Tensor, data: bytes, dice: random.Random) -> tuple[str, bytes]:
    tensor["dtype"] = dice.choice(DTYPES)
    return str(tensor["dtype"]), data


def _offsets(tensor: Tensor, data: bytes, dice: random.Random) -> tuple[str, bytes]:
    begin, end = tensor["data_offsets"]
    tensor["data_offsets"] = dice.choice([[end, begin], [begin, 2**63], [begin + 1, end + 1], [-8, end], [0, 0], None])
    return str(tensor["data_offsets"]), data


def _smaller(tensor: Tensor, data: bytes, dice: random.Random) -> tuple[str, bytes]:
    """A tensor of fewer rows that is valid by itself: its end is now without a tensor."""
    begin, end = tensor["data_offsets"]
    rows = tensor["shape"][0]
    tensor["shape"][0] = fewer = dice.randrange(rows)
    kept = begin + (end - begin) // rows * fewer
    tensor["data_offsets"] = [begin, kept]
    return str(tensor["shape"]), data[:kept] + bytes(end - kept) + data[end:]


def _numbers(tensor: Tensor, data: bytes, dice: random.Random) -> tuple[str, bytes]:
    begin, end = tensor["data_offsets"]
    word, count = dice.choice(WORDS), (end - begin) // 4
    numbers = torch.full((count,), word, dtype=torch.float32).numpy().tobytes()
    return str(word), data[:begin] + numbers + data[begin + len(numbers) :]


def _nothing(_tensor: Tensor, data: bytes, _dice: random.Random) -> tuple[str, bytes]:
    return "", data


WAYS: dict[str, Callable[[Tensor, bytes, random.Random], tuple[str, bytes]]] = {
    "shape": _shape, "dtype": _dtype, "offsets": _offsets, "rows": _smaller, "numbers": _numbers,
    "name": _nothing, "header size": _nothing, "cut": _nothing, "bytes": _nothing,
}  # fmt: skip
