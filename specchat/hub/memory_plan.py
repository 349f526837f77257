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

from specchat.hub.architecture import EMBEDDING, EXPERT, LINEAR, Architecture, Matrix

GIB = 2**30
BF16_BYTES = 2  # of a number in bfloat16
STATE_BYTES = 2 * 4  # recurrent states are float32, and the one from before the guesses is kept beside the newest
NF4_BLOCK, SCALES_PER_GROUP = 64, 256  # numbers that share a scale, and scales that share one
FP8_BLOCK = 128  # rows and columns of an expert that share a scale
MXFP4_BYTES = 0.5 + 1 / 32  # of a number: 32 of them share a scale of one byte
CUDA_CONTEXT_BYTES = int(0.6 * GIB)  # what a CUDA context and its kernels take before the first number
PYTHON_BYTES = int(0.5 * GIB)  # what a process with torch takes on a CPU
LOGIT_ROWS, LOGIT_COPIES = 128, 4  # rows of the widest pass, in float32, and how often sampling holds them
PREFILL_CHUNK_TOKENS = 512  # tokens of a prompt that are read at once
DISPLAY_BYTES = int(0.7 * GIB)  # what a screen and the driver hold of a card
SCRATCH_ROWS = 256  # rows past a text that a pass may write; as engine.cache has it
MIN_BUCKET_ROWS = 1024  # rows of text; as engine.cache has it


def _bf16_bytes(matrix: Matrix) -> float:
    return BF16_BYTES * matrix.parameters


def _float32_bytes(matrix: Matrix) -> float:
    return 4 * matrix.parameters


def _fp8_bytes(matrix: Matrix) -> float:
    if matrix.kind != EXPERT:
        return _int8_bytes(matrix)
    return matrix.parameters + 4 * ceil(matrix.rows / FP8_BLOCK) * ceil(matrix.columns / FP8_BLOCK) * matrix.count


def _int8_bytes(matrix: Matrix) -> float:
    return matrix.parameters + 4 * matrix.rows * matrix.count


def _nf4_bytes(matrix: Matrix) -> float:
    blocks = ceil(matrix.rows * matrix.columns / NF4_BLOCK) * matrix.count
    return matrix.parameters / 2 + 4 * blocks


def _nf4_double_bytes(matrix: Matrix) -> float:
    blocks = ceil(matrix.rows * matrix.columns / NF4_BLOCK)
    return matrix.parameters / 2 + (blocks + 4 * ceil(blocks / SCALES_PER_GROUP)) * matrix.count


@dataclass(frozen=True)
class StorageFormat:
    """How linear maps are held, and whether experts are as well."""

    matrix_bytes: Callable[[Matrix], float]
    quantizes_experts: bool = False


STORAGE_FORMATS: Mapping[str, StorageFormat] = {
    "float32": StorageFormat(_float32_bytes),
    "bf16": StorageFormat(_bf16_bytes),
    "fp8": StorageFormat(_fp8_bytes, quantizes_experts=True),
    "int8": StorageFormat(_int8_bytes),
    "nf4": StorageFormat(_nf4_bytes),
    "nf4-double": StorageFormat(_nf4_double_bytes),
    "mxfp4": StorageFormat(_bf16_bytes),
}
LLAMA_LIKE_FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
)  # families of our own passes, which can hold weights in 8 and 4 bits
QUANTIZED_FORMATS = ("int8", "fp8", "nf4", "nf4-double")
LISTED_FORMATS = ("bf16", "fp8", "int8", "nf4", "nf4-double")


def weight_bytes(architecture: Architecture, quant_format: str, *, embeddings_on_cpu: bool = False) -> int:
    """What the weights take, on the device that computes.

    Embeddings that are the output matrix as well are multiplied with in every pass, so they stay.
    """
    return round(
        sum(
            _matrix_bytes(matrix, quant_format)
            for matrix in architecture.matrices
            if not (embeddings_on_cpu and matrix.kind == EMBEDDING and not architecture.is_tied)
        )
    )


def _matrix_bytes(matrix: Matrix, quant_format: str) -> float:
    held = STORAGE_FORMATS[quant_format]
    if quant_format == "mxfp4" and matrix.kind == EXPERT:
        return MXFP4_BYTES * matrix.parameters
    if matrix.kind == LINEAR or (matrix.kind == EXPERT and held.quantizes_experts):
        return held.matrix_bytes(matrix)
    return _float32_bytes(matrix) if quant_format == "float32" else _bf16_bytes(matrix)


def lm_head_copy_bytes(architecture: Architecture, quant_format: str, *, on_gpu: bool = True) -> int:
    """What our own passes hold beside embeddings that are the output matrix as well: another copy to multiply with.

    Rows are looked up in the one, and the other is packed or smaller. On a card, floats are neither, and shared.
    """
    if (
        not architecture.is_tied
        or architecture.family not in LLAMA_LIKE_FAMILIES
        or (on_gpu and quant_format not in QUANTIZED_FORMATS)
    ):
        return 0
    tied = (matrix for matrix in architecture.matrices if matrix.kind == EMBEDDING)
    return round(sum(STORAGE_FORMATS[quant_format].matrix_bytes(matrix) for matrix in tied))


def kv_cache_bytes(
    architecture: Architecture, tokens: int, *, uses_sliding_windows: bool = True, element_bytes: int = BF16_BYTES
) -> int:
    """What keys, values and states of a text take.

    `keeps_windows` counts only the rows that layers with a window look at; an engine that keeps all rows, so that
    guesses can be taken back, needs the other figure.
    """
    rows = sum(
        kept.layers
        * kept.elements_per_token
        * (min(tokens, kept.sliding_window) if kept.sliding_window and uses_sliding_windows else tokens)
        for kept in architecture.kv_layers
    )
    return rows * element_bytes + architecture.recurrent_elements * STATE_BYTES


def kv_bytes_per_token(architecture: Architecture) -> int:
    """What one more token takes in layers that look back without end."""
    return (
        sum(kept.layers * kept.elements_per_token for kept in architecture.kv_layers if not kept.sliding_window)
        * BF16_BYTES
    )


def workspace_bytes(architecture: Architecture, *, on_gpu: bool = True) -> int:
    """What a pass needs beside all that: the context of the device, logits of the widest tree, a chunk of a prompt."""
    logits = LOGIT_ROWS * LOGIT_COPIES * 4 * architecture.vocab_size
    stream = PREFILL_CHUNK_TOKENS * 16 * architecture.hidden_size * BF16_BYTES
    return (CUDA_CONTEXT_BYTES if on_gpu else PYTHON_BYTES) + logits + stream


def cache_rows(context_tokens: int) -> int:
    """The rows that the engine sets aside for a full context: the next power of two, and scratch rows behind it."""
    return max(MIN_BUCKET_ROWS, 1 << (context_tokens - 1).bit_length()) + SCRATCH_ROWS


@dataclass(frozen=True)
class QuantizedModel:
    """A model and how its weights are held."""

    architecture: Architecture
    quant_format: str
    embeddings_on_cpu: bool = False

    def weight_bytes(self, *, on_gpu: bool = True) -> int:
        """Bytes on the device that computes."""
        own = weight_bytes(self.architecture, self.quant_format, embeddings_on_cpu=self.embeddings_on_cpu)
        return own + lm_head_copy_bytes(self.architecture, self.quant_format, on_gpu=on_gpu)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that a pair takes, by what they are for."""

    weight_bytes: int
    drafter_bytes: int  # its weights
    kv_cache_bytes: int  # keys, values and states of both
    workspace_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weight_bytes + self.drafter_bytes + self.kv_cache_bytes + self.workspace_bytes


def plan_memory(
    target: QuantizedModel,
    drafter: QuantizedModel | None,
    tokens: int,
    *,
    on_gpu: bool = True,
    uses_sliding_windows: bool = True,
) -> MemoryPlan:
    """What a target and who drafts for it take with a text of so many tokens."""
    text = kv_cache_bytes(
        target.architecture,
        tokens,
        uses_sliding_windows=uses_sliding_windows,
        element_bytes=4 if target.quant_format == "float32" else BF16_BYTES,
    )
    if drafter is not None:
        text += kv_cache_bytes(drafter.architecture, tokens, uses_sliding_windows=uses_sliding_windows)
    weights = drafter.weight_bytes(on_gpu=on_gpu) if drafter else 0
    return MemoryPlan(
        target.weight_bytes(on_gpu=on_gpu), weights, text, workspace_bytes(target.architecture, on_gpu=on_gpu)
    )


def usable_gpu_bytes(gpu_gib: float) -> int:
    """What of a card of this size is free when a screen hangs on it."""
    return int(gpu_gib * GIB) - DISPLAY_BYTES
