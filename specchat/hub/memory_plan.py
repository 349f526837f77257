"""How much memory a pair takes before anything of it is loaded: weights, drafter, keys and values, workspace.

Bytes follow from an `Anatomy` and from how its linear maps are held. In 8 bits every output has a scale in float32;
experts are in fp8 where they were published so, and have one for every block. What bitsandbytes adds in 4 bits is
counted: a scale in float32 for every 64 numbers, which double quantisation makes one byte and one more float32 for
every 256 scales (QLoRA, arXiv 2305.14314, section 3). It leaves embeddings, output matrices, norms and the stacked
weights of experts as they are. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from specchat.hub.architecture import EMBEDDING, EXPERT, LINEAR, Anatomy, Matrix

GIB = 2**30
HALF_BYTES = 2  # of a number in bfloat16
STATE_BYTES = 2 * 4  # recurrent states are float32, and the one from before the guesses is kept beside the newest
BLOCK, SCALES = 64, 256  # numbers that share a scale, and scales that share one
FP8_BLOCK = 128  # rows and columns of an expert that share a scale
MXFP4_BYTES = 0.5 + 1 / 32  # of a number: 32 of them share a scale of one byte
CONTEXT_BYTES = int(0.6 * GIB)  # what a CUDA context and its kernels take before the first number
PYTHON_BYTES = int(0.5 * GIB)  # what a process with torch takes on a CPU
LOGIT_ROWS, LOGIT_COPIES = 128, 4  # rows of the widest pass, in float32, and how often sampling holds them
CHUNK = 512  # tokens of a prompt that are read at once
DESKTOP_BYTES = int(0.7 * GIB)  # what a screen and the driver hold of a card
SCRATCH = 256  # rows past a text that a pass may write; as engine.cache has it
SMALLEST_BUCKET = 1024  # rows of text; as engine.cache has it


def _half(matrix: Matrix) -> float:
    return HALF_BYTES * matrix.numbers


def _single(matrix: Matrix) -> float:
    return 4 * matrix.numbers


def _fp8(matrix: Matrix) -> float:
    if matrix.kind != EXPERT:
        return _int8(matrix)
    return matrix.numbers + 4 * ceil(matrix.rows / FP8_BLOCK) * ceil(matrix.columns / FP8_BLOCK) * matrix.count


def _int8(matrix: Matrix) -> float:
    return matrix.numbers + 4 * matrix.rows * matrix.count


def _nf4(matrix: Matrix) -> float:
    blocks = ceil(matrix.rows * matrix.columns / BLOCK) * matrix.count
    return matrix.numbers / 2 + 4 * blocks


def _nf4_double(matrix: Matrix) -> float:
    blocks = ceil(matrix.rows * matrix.columns / BLOCK)
    return matrix.numbers / 2 + (blocks + 4 * ceil(blocks / SCALES)) * matrix.count


@dataclass(frozen=True)
class Way:
    """How linear maps are held, and whether experts are as well."""

    bytes: Callable[[Matrix], float]
    has_experts: bool = False


WAYS: Mapping[str, Way] = {
    "float32": Way(_single),
    "bf16": Way(_half),
    "fp8": Way(_fp8, has_experts=True),
    "int8": Way(_int8),
    "nf4": Way(_nf4),
    "nf4-double": Way(_nf4_double),
    "mxfp4": Way(_half),
}
DENSE = ("llama", "mistral", "qwen2", "qwen3")  # families of our own passes, which can hold weights in 8 and 4 bits
SMALLER = ("int8", "fp8", "nf4", "nf4-double")
SHOWN = ("bf16", "fp8", "int8", "nf4", "nf4-double")


def weight_bytes(anatomy: Anatomy, way: str, *, embeddings_on_cpu: bool = False) -> int:
    """What the weights take, on the device that computes.

    Embeddings that are the output matrix as well are multiplied with in every pass, so they stay.
    """
    return round(
        sum(
            _bytes_of(matrix, way)
            for matrix in anatomy.matrices
            if not (embeddings_on_cpu and matrix.kind == EMBEDDING and not anatomy.is_tied)
        )
    )


def _bytes_of(matrix: Matrix, way: str) -> float:
    held = WAYS[way]
    if way == "mxfp4" and matrix.kind == EXPERT:
        return MXFP4_BYTES * matrix.numbers
    if matrix.kind == LINEAR or (matrix.kind == EXPERT and held.has_experts):
        return held.bytes(matrix)
    return _single(matrix) if way == "float32" else _half(matrix)


def scoring_bytes(anatomy: Anatomy, way: str, *, on_card: bool = True) -> int:
    """What our own passes hold beside embeddings that are the output matrix as well: another copy to multiply with.

    Rows are looked up in the one, and the other is packed or smaller. On a card, floats are neither, and shared.
    """
    if not anatomy.is_tied or anatomy.family not in DENSE or (on_card and way not in SMALLER):
        return 0
    tied = (matrix for matrix in anatomy.matrices if matrix.kind == EMBEDDING)
    return round(sum(WAYS[way].bytes(matrix) for matrix in tied))


def text_bytes(anatomy: Anatomy, tokens: int, *, keeps_windows: bool = True, number_bytes: int = HALF_BYTES) -> int:
    """What keys, values and states of a text take.

    `keeps_windows` counts only the rows that layers with a window look at; an engine that keeps all rows, so that
    guesses can be taken back, needs the other figure.
    """
    rows = sum(
        kept.layers * kept.numbers * (min(tokens, kept.window) if kept.window and keeps_windows else tokens)
        for kept in anatomy.kept
    )
    return rows * number_bytes + anatomy.state * STATE_BYTES


def row_bytes(anatomy: Anatomy) -> int:
    """What one more token takes in layers that look back without end."""
    return sum(kept.layers * kept.numbers for kept in anatomy.kept if not kept.window) * HALF_BYTES


def workspace_bytes(anatomy: Anatomy, *, on_card: bool = True) -> int:
    """What a pass needs beside all that: the context of the device, logits of the widest tree, a chunk of a prompt."""
    logits = LOGIT_ROWS * LOGIT_COPIES * 4 * anatomy.vocabulary
    stream = CHUNK * 16 * anatomy.width * HALF_BYTES
    return (CONTEXT_BYTES if on_card else PYTHON_BYTES) + logits + stream


def rows_of(context: int) -> int:
    """The rows that the engine sets aside for a full context: the next power of two, and scratch rows behind it."""
    return max(SMALLEST_BUCKET, 1 << (context - 1).bit_length()) + SCRATCH


@dataclass(frozen=True)
class Held:
    """A model and how its weights are held."""

    anatomy: Anatomy
    way: str
    embeddings_on_cpu: bool = False

    def weights(self, *, on_card: bool = True) -> int:
        """Bytes on the device that computes."""
        own = weight_bytes(self.anatomy, self.way, embeddings_on_cpu=self.embeddings_on_cpu)
        return own + scoring_bytes(self.anatomy, self.way, on_card=on_card)


@dataclass(frozen=True)
class Need:
    """Bytes that a pair takes, by what they are for."""

    weights: int
    drafter: int  # its weights
    text: int  # keys, values and states of both
    workspace: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.drafter + self.text + self.workspace


def need(target: Held, drafter: Held | None, tokens: int, *, on_card: bool = True, keeps_windows: bool = True) -> Need:
    """What a target and who drafts for it take with a text of so many tokens."""
    text = text_bytes(
        target.anatomy, tokens, keeps_windows=keeps_windows, number_bytes=4 if target.way == "float32" else HALF_BYTES
    )
    if drafter is not None:
        text += text_bytes(drafter.anatomy, tokens, keeps_windows=keeps_windows)
    weights = drafter.weights(on_card=on_card) if drafter else 0
    return Need(target.weights(on_card=on_card), weights, text, workspace_bytes(target.anatomy, on_card=on_card))


def usable(card_gib: float) -> int:
    """What of a card of this size is free when a screen hangs on it."""
    return int(card_gib * GIB) - DESKTOP_BYTES
