"""How much memory a target and a drafter take, before loading: weights, drafter, KV cache, workspace.

Bytes follow from an Architecture and the format of its linear layers. In 8 bits every output has a float32 scale;
published FP8 experts have one scale per block. AWQ and GPTQ have a float16 scale and a zero point of one byte for each
group of inputs, mostly 128, and leave the output matrix as it is. NF4 of bitsandbytes has a float32 scale per 64
elements; double quantization makes it one byte, plus one float32 per 256 scales (QLoRA, arXiv 2305.14314, section 3).
Embeddings and norms are not quantized, and of families that transformers computes only checkpoints in floats are, by a
plugin. The embeddings stay in the file where blocks of a GGUF file are multiplied. Imports no torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil

from specchat.devices import CPU, CUDA, GGUF_FORMAT, DeviceKind, missing_triton
from specchat.engine.cache_sizes import (
    CHECKPOINT_TOKENS,
    GRAPH_WIDTHS,
    MAX_CHECKPOINT_BYTES,
    SCALE_BYTES,
    SPARE_ROWS,
    SPLIT_KEYS,
    arena_rows,
)
from specchat.hub.architecture import EMBEDDING, EXPERT, FLOAT_FORMATS, LINEAR, OUTPUT, Architecture, Matrix
from specchat.plugins.discovery import find_extensions
from specchat.weights.llama_families import FAMILIES, LLAMA_LIKE_FAMILIES, own_families
from specchat.weights.load_options import KEPT_FORMATS

GIB = 2**30
BF16_BYTES = 2
STATE_BYTES = 2 * 4  # recurrent states are float32; those before a pass are stored, too
NF4_BLOCK = 64  # elements that share a scale
INT4_GROUP = 128  # inputs of an output that share a scale and a zero point
FP8_BLOCK = 128  # rows and columns of an expert that share a scale
MXFP4_BYTES = 0.5 + 1 / 32  # per element: 32 elements share a scale of one byte
CUDA_CONTEXT_BYTES = int(0.6 * GIB)  # a CUDA context and its kernels
PYTHON_BYTES = int(0.5 * GIB)  # a process with torch on a CPU
GRAPH_BYTES = 16 * 2**20  # vLLM reports 0.3 to 0.6 GiB for 35 CUDA graphs of a model of 8B
GRAPH_ROWS, GRAPH_LOGIT_COPIES = 64, 5  # of the widest graph: logits, and what adds the noise to them
CUBLAS_WORKSPACE_BYTES, STREAMS = 32 * 2**20, 2  # cuBLAS has a workspace for each stream: computing and capturing
MASK_BYTES_PER_KEY = 2 * 8  # bf16, repeated for the queries that share a key
LOGIT_ROWS, LOGIT_COPIES = 128, 4  # float32 logits of the widest pass, and copies during sampling
PREFILL_CHUNK_TOKENS = 512
DISPLAY_BYTES = int(0.7 * GIB)  # GPU memory that a display and the driver use


def _fp8_bytes(matrix: Matrix) -> float:
    if matrix.kind != EXPERT:
        return matrix.parameters + 4 * matrix.rows * matrix.count
    return matrix.parameters + 4 * ceil(matrix.rows / FP8_BLOCK) * ceil(matrix.columns / FP8_BLOCK) * matrix.count


def _int4_bytes(matrix: Matrix) -> float:
    if matrix.kind == OUTPUT:
        return BF16_BYTES * matrix.parameters
    return matrix.parameters / 2 + 3 * ceil(matrix.columns / INT4_GROUP) * matrix.rows * matrix.count


def _nf4_bytes(matrix: Matrix, scale_bytes: int = 4) -> float:
    return matrix.parameters / 2 + scale_bytes * ceil(matrix.rows * matrix.columns / NF4_BLOCK) * matrix.count


INT8_BLOCKS = "int8 blocks"  # what int8 is on a CPU: a scale for each 32 inputs

# The bytes of a linear layer in each format.
STORAGE_FORMATS: Mapping[str, Callable[[Matrix], float]] = {
    "float32": lambda matrix: 4 * matrix.parameters,
    "bf16": lambda matrix: BF16_BYTES * matrix.parameters,
    "fp8": _fp8_bytes,
    "int8": lambda matrix: matrix.parameters + 4 * matrix.rows * matrix.count,
    INT8_BLOCKS: lambda matrix: matrix.parameters * 34 / 32,
    "nf4": _nf4_bytes,
    "nf4-double": partial(_nf4_bytes, scale_bytes=2),  # as our kernel for GPUs has them; bitsandbytes needs 3 % less
    "gguf4": lambda matrix: 0.72 * matrix.parameters,  # blocks of a file: 4.5 to 5 bits, of some layers 6.6 or 8.5
    "gguf5": lambda matrix: 0.78 * matrix.parameters,  # 5.5 to 5.6, of some layers 6.6
    "gguf6": lambda matrix: 0.86 * matrix.parameters,  # 6.6, of some layers 8.5
    "gguf8": lambda matrix: 1.08 * matrix.parameters,
    "int4": _int4_bytes,
    "mxfp4": lambda matrix: BF16_BYTES * matrix.parameters,  # published so: only its experts are quantized
}
QUANTIZED_FORMATS = ("gguf4", "gguf5", "gguf6", "gguf8", "int8", "fp8", "nf4", "nf4-double")
FITTING_FORMATS = ("bf16", *KEPT_FORMATS)
# Formats of checkpoints that a GPU multiplies as they are, and what they are there; elsewhere they are converted.
KEPT_CHECKPOINTS = {"awq": "int4", "gptq": "int4", "mxfp4": "mxfp4"}


def has_own_passes(architecture: Architecture, kind: DeviceKind) -> bool:
    """Whether `forward.llama` computes it on this kind of device: of Gemma 4 only what has no experts."""
    return architecture.family in own_families(kind) and (
        FAMILIES[architecture.family].experts is not None or not architecture.parameters_of_kind(EXPERT)
    )


def can_quantize(architecture: Architecture, kind: DeviceKind = CUDA) -> bool:
    """Whether models.weights has a choice: what is published quantized and transformers computes has its own format."""
    return has_own_passes(architecture, kind) or architecture.stored_format in FLOAT_FORMATS


def lacks_quantizer(architecture: Architecture, kind: DeviceKind = CUDA) -> bool:
    """Whether a plugin that is not installed would quantize it: networks that transformers computes there need one."""
    return not has_own_passes(architecture, kind) and not find_extensions("network_quantizers")


def keeps_blocks(architecture: Architecture, kind: DeviceKind) -> bool:
    """Whether a GPU multiplies the blocks of this GGUF file as they are, in the format `gguf`."""
    is_read = architecture.block_bytes > 0 and has_own_passes(architecture, kind)
    return is_read and kind.has_kernels and not missing_triton()


def weight_bytes(architecture: Architecture, quant_format: str, *, embeddings_on_cpu: bool = False) -> int:
    """The bytes of the weights on the device that computes.

    Tied embeddings are the output matrix of every pass, so they stay on the device.
    """
    leaves_embeddings = embeddings_on_cpu and not architecture.is_tied
    if quant_format == GGUF_FORMAT:
        left_out = architecture.parameters_of_kind(EMBEDDING) / architecture.parameters if leaves_embeddings else 0
        return round(architecture.block_bytes * (1 - left_out))
    matrices = [each for each in architecture.matrices if not (leaves_embeddings and each.kind == EMBEDDING)]
    return round(sum(_matrix_bytes(matrix, quant_format) for matrix in matrices))


def layer_bytes(architecture: Architecture, quant_format: str) -> float:
    """The bytes of the linear layers and experts of all decoder layers."""
    matrices = [each for each in architecture.matrices if each.kind in (LINEAR, EXPERT)]
    if quant_format == GGUF_FORMAT:
        return architecture.block_bytes * sum(each.parameters for each in matrices) / architecture.parameters
    return sum(_matrix_bytes(each, quant_format) for each in matrices)


def can_split(architecture: Architecture, kind: DeviceKind) -> bool:
    """Whether the first layers can be in main memory beside a GPU: later ones read nothing else that they store."""
    has_own_rows = sum(each.layers for each in architecture.kv_layers) == architecture.layers
    return kind.is_gpu and has_own_rows and not architecture.recurrent_elements and has_own_passes(architecture, kind)


def _matrix_bytes(matrix: Matrix, quant_format: str) -> float:
    if quant_format == "mxfp4" and matrix.kind == EXPERT:
        return MXFP4_BYTES * matrix.parameters
    if quant_format.startswith(GGUF_FORMAT) and matrix.kind == EMBEDDING:
        return 0  # they stay in the file; a pass reads the rows of its tokens
    if matrix.kind in (LINEAR, OUTPUT, EXPERT):
        return STORAGE_FORMATS[quant_format](matrix)
    return matrix.parameters * (4 if quant_format == "float32" else BF16_BYTES)


def lm_head_copy_bytes(architecture: Architecture, quant_format: str, *, kind: DeviceKind = CUDA) -> int:
    """The bytes of a second copy of tied embeddings, for the output matrix.

    Lookups use the first copy; the second is quantized, or packed by forward.llama.llama. On a GPU, floats are shared.
    """
    is_packed = not kind.is_gpu and architecture.family in LLAMA_LIKE_FAMILIES
    if not architecture.is_tied or (quant_format not in QUANTIZED_FORMATS and not is_packed):
        return 0
    tied = (matrix for matrix in architecture.matrices if matrix.kind == EMBEDDING)
    stored = _stored_format(quant_format, kind)
    return round(sum(STORAGE_FORMATS[stored](matrix) for matrix in tied))


def _stored_format(quant_format: str, kind: DeviceKind) -> str:
    return INT8_BLOCKS if quant_format == "int8" and not kind.is_gpu else quant_format


def kv_cache_bytes(architecture: Architecture, tokens: int, *, element_bytes: float = BF16_BYTES) -> int:
    """The bytes of the KV cache and recurrent states of a text.

    Layers with a sliding window store all rows, too, so that draft tokens can be rolled back.
    """
    elements = sum(group.layers * group.elements_per_token for group in architecture.kv_layers)
    return round(tokens * elements * element_bytes) + architecture.recurrent_elements * STATE_BYTES


def checkpoint_bytes(architecture: Architecture, tokens: int) -> int:
    """The bytes of the recurrent states of a text that are kept, in main memory, to go back to."""
    state_bytes = architecture.recurrent_elements * STATE_BYTES // 2
    return min(tokens // CHECKPOINT_TOKENS * state_bytes, MAX_CHECKPOINT_BYTES)


def int8_kv_element_bytes(architecture: Architecture) -> float:
    """The bytes of a number in a KV cache in 8 bits: the numbers of a head share a scale."""
    return 1 + SCALE_BYTES / architecture.head_size if architecture.head_size else BF16_BYTES


def has_kv_arena(architecture: Architecture, *, kind: DeviceKind) -> bool:
    """Whether all rows of KV cache are allocated when the model is loaded, for CUDA graphs."""
    return kind.has_graphs and has_own_passes(architecture, kind)


@dataclass(frozen=True)
class QuantizedModel:
    architecture: Architecture
    quant_format: str
    embeddings_on_cpu: bool = False
    has_int8_kv: bool = False
    are_weights_mapped: bool = False  # the linear layers stay in their files
    cpu_layers: int = 0  # the first layers, in main memory beside a GPU
    cpu_format: str = "bf16"  # of these
    gpu_layers: tuple[int, ...] = ()  # the next ones, on the second GPU, the third, ...

    def share(self, layers: int) -> float:
        """Of all layers, which are taken to be alike."""
        return layers / self.architecture.layers if layers else 0.0

    def part_bytes(self, layers: int, kind: DeviceKind) -> int:
        """The weights of so many layers on a device of this kind."""
        quant_format = self.quant_format if kind.is_gpu else self.cpu_format
        return round(self.share(layers) * layer_bytes(self.architecture, _stored_format(quant_format, kind)))

    @property
    def kv_element_bytes(self) -> float:
        """The bytes of a number of its KV cache."""
        if self.has_int8_kv:
            return int8_kv_element_bytes(self.architecture)
        return 4 if self.quant_format == "float32" else BF16_BYTES

    def weight_bytes(self, *, kind: DeviceKind = CUDA) -> int:
        if self.are_weights_mapped and self.quant_format.startswith((*KEPT_FORMATS, GGUF_FORMAT)):
            others = [each for each in self.architecture.matrices if each.kind not in (LINEAR, OUTPUT, EXPERT)]
            return round(sum(_matrix_bytes(matrix, self.quant_format) for matrix in others))
        stored = _stored_format(self.quant_format, kind)
        weights = weight_bytes(self.architecture, stored, embeddings_on_cpu=self.embeddings_on_cpu)
        weights -= sum(self.part_bytes(each, kind) for each in (self.cpu_layers, *self.gpu_layers))
        return weights + lm_head_copy_bytes(self.architecture, self.quant_format, kind=kind)


def workspace_bytes(model: QuantizedModel, tokens: int, *, kind: DeviceKind = CUDA, has_logits: bool = True) -> int:
    """The bytes that a pass needs besides: logits of the widest tree, hidden states of a chunk, and what a device has.

    That is the context of a GPU, CUDA graphs, workspaces of cuBLAS, the mask of a chunk, partial results of attention,
    and the largest layer, which bitsandbytes dequantizes for many rows. Of several GPUs one alone has logits.
    """
    architecture = model.architecture
    vocab_size = architecture.vocab_size if has_logits else 0
    logits = LOGIT_ROWS * LOGIT_COPIES * 4 * vocab_size
    rows = logits + PREFILL_CHUNK_TOKENS * 16 * architecture.hidden_size * BF16_BYTES
    if not kind.is_gpu:
        return PYTHON_BYTES + rows
    graphs = len(GRAPH_WIDTHS) * GRAPH_BYTES + GRAPH_ROWS * GRAPH_LOGIT_COPIES * 4 * vocab_size
    graphs = graphs if has_kv_arena(architecture, kind=kind) else 0
    libraries = STREAMS * CUBLAS_WORKSPACE_BYTES if kind.has_graphs else 0
    process = PYTHON_BYTES if kind.shares_main_memory else CUDA_CONTEXT_BYTES
    mask = PREFILL_CHUNK_TOKENS * tokens * MASK_BYTES_PER_KEY
    partial_attention = partial_attention_bytes(architecture, tokens, kind=kind)
    return process + rows + graphs + libraries + mask + partial_attention + _dequantized_bytes(model)


def partial_attention_bytes(architecture: Architecture, tokens: int, *, kind: DeviceKind = CUDA) -> int:
    """What the attention kernel of a GPU stores between its two steps in the widest CUDA graph; layers share it.

    That is for each row, head and split of the keys of the arena a float32 output, a maximum and a sum.
    """
    if not (kind.has_kernels and has_kv_arena(architecture, kind=kind)):
        return 0
    splits = ceil((arena_rows(tokens) + SPARE_ROWS) / SPLIT_KEYS)
    return 4 * GRAPH_ROWS * architecture.heads * splits * (architecture.widest_head + 2)


def _dequantized_bytes(model: QuantizedModel) -> int:
    """The bytes of the largest layer in bf16; gate and up are one layer."""
    if not model.quant_format.startswith("nf4"):
        return 0
    layers = [matrix for matrix in model.architecture.matrices if matrix.kind == LINEAR]
    return max((2 * BF16_BYTES * matrix.rows * matrix.columns for matrix in layers), default=0)


@dataclass(frozen=True)
class MemoryPlan:
    weight_bytes: int
    drafter_bytes: int  # weights
    kv_cache_bytes: int  # of both, with recurrent states
    workspace_bytes: int
    main_memory_bytes: int = 0  # beside a GPU: layers that the CPU computes, their keys and values, and the process
    other_gpu_bytes: tuple[int, ...] = ()  # on the second GPU, the third, ...: layers, rows and what passes need

    @property
    def total_bytes(self) -> int:
        """On the device."""
        return self.weight_bytes + self.drafter_bytes + self.kv_cache_bytes + self.workspace_bytes


def plan_memory(
    target: QuantizedModel, drafter: QuantizedModel | None, tokens: int, *, kind: DeviceKind = CUDA
) -> MemoryPlan:
    def kv_bytes(model: QuantizedModel, element_bytes: float) -> int:
        has_arena = has_kv_arena(model.architecture, kind=kind)
        checkpoints = checkpoint_bytes(model.architecture, tokens) if kind.shares_main_memory else 0
        rows = arena_rows(tokens) + SPARE_ROWS if has_arena else tokens
        recorded = GRAPH_ROWS * model.architecture.recurrent_row_elements * BF16_BYTES if kind.has_kernels else 0
        return checkpoints + recorded + kv_cache_bytes(model.architecture, rows, element_bytes=element_bytes)

    kv_cache = kv_bytes(target, target.kv_element_bytes)
    cpu_kv_bytes, *gpu_kv_bytes = (
        round(target.share(each) * kv_cache) for each in (target.cpu_layers, *target.gpu_layers)
    )
    beside = target.part_bytes(target.cpu_layers, CPU) + cpu_kv_bytes + PYTHON_BYTES if target.cpu_layers else 0
    part_workspace = workspace_bytes(target, tokens, kind=kind, has_logits=False)
    angles = 2 * tokens * target.architecture.widest_head * BF16_BYTES  # cosines and sines, which each GPU has
    others = tuple(
        target.part_bytes(layers, kind) + rows + angles + part_workspace if layers else 0
        for layers, rows in zip(target.gpu_layers, gpu_kv_bytes, strict=True)
    )
    kv_cache -= cpu_kv_bytes + sum(gpu_kv_bytes)
    if drafter is not None:
        kv_cache += kv_bytes(drafter, BF16_BYTES)
    drafter_bytes = drafter.weight_bytes(kind=kind) if drafter else 0
    workspace = workspace_bytes(target, tokens, kind=kind)
    if drafter is not None:  # its CUDA graphs have a memory pool of their own
        workspace += partial_attention_bytes(drafter.architecture, tokens, kind=kind)
    return MemoryPlan(target.weight_bytes(kind=kind), drafter_bytes, kv_cache, workspace, beside, others)


def fitting_format(architecture: Architecture, free_bytes: int, tokens: int, *, kind: DeviceKind) -> str | None:
    """The most precise weight format with which a model and `tokens` tokens fit this memory; None if it never does."""
    has_choice = can_quantize(architecture, kind) and not lacks_quantizer(architecture, kind)
    formats = FITTING_FORMATS if has_choice else FITTING_FORMATS[:1]
    formats = [each for each in formats if each == "bf16" or each in kind.weight_formats]
    models = {each: QuantizedModel(architecture, each) for each in formats}
    if keeps_blocks(architecture, kind):  # what it has without a choice
        models["bf16"] = QuantizedModel(architecture, GGUF_FORMAT)
    plans = {each: plan_memory(model, None, tokens, kind=kind) for each, model in models.items()}
    return next((name for name, plan in plans.items() if plan.total_bytes <= free_bytes), None)


def usable_gpu_bytes(gpu_gib: float) -> int:
    """The free memory of a GPU of this size with a display."""
    return int(gpu_gib * GIB) - DISPLAY_BYTES
