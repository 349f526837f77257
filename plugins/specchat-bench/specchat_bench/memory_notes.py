"""What is special about the memory of a model: its KV cache, its weights, and the settings that change them."""

from collections.abc import Iterator

from specchat.devices import CUDA, INT8_KV
from specchat.engine.cache_sizes import SCRATCH_ROWS, SPARE_ROWS, arena_rows, slot_rows
from specchat.hub.architecture import EMBEDDING, Architecture
from specchat.hub.local_models import LocatedModel
from specchat.hub.memory_plan import (
    BF16_BYTES,
    KEPT_CHECKPOINTS,
    can_quantize,
    has_kv_arena,
    int8_kv_element_bytes,
    kv_cache_bytes,
    lacks_quantizer,
)
from specchat.hub.recommend import format_gib
from specchat.plugins.own_plugins import install_line
from specchat.weights.llama_families import LLAMA_LIKE_FAMILIES

FP8_METHODS, MXFP4 = ("fp8", "fbgemm_fp8"), "mxfp4"  # the names in checkpoints


def evidence_of(located: LocatedModel) -> str:
    """Where the sizes of a model are from."""
    if located.folder is None:
        return "from the catalog"
    has_headers = located.architecture.stored_bytes is not None
    return "from the headers of its files" if has_headers else "from its config.json"


def memory_notes(architecture: Architecture, context: int) -> tuple[str, ...]:
    return (*_kv_cache_notes(architecture, context), *_weight_notes(architecture), *architecture.notes)


def _kv_cache_notes(architecture: Architecture, context: int) -> Iterator[str]:
    if row := kv_cache_bytes(architecture, 1) - kv_cache_bytes(architecture, 0):
        yield f"a token takes {row / 1024:.3g} KiB of KV cache{_int8_note(architecture, row)}"
    rows = slot_rows(context + SCRATCH_ROWS)
    if has_kv_arena(architecture, kind=CUDA):
        allocated = arena_rows(context) + SPARE_ROWS
        yield (
            f"on a GPU, {allocated} rows of KV cache are allocated at load: a full context of {context}, "
            "and a short text beside it"
        )
    elif rows > context + SCRATCH_ROWS:
        yield (
            f"KV cache rows are allocated in powers of two: a full context of {context} takes {rows}, "
            f"one of {(rows - SCRATCH_ROWS) // 2} takes {(rows + SCRATCH_ROWS) // 2}"
        )
    windowed = [(group, group.sliding_window) for group in architecture.kv_layers if group.sliding_window]
    if windowed:
        hidden = sum(group.layers * group.elements_per_token * max(context - rows, 0) for group, rows in windowed)
        extra = format_gib(BF16_BYTES * hidden)
        yield f"layers with a sliding window keep all rows for rollback: {extra} more than they attend to"
    if architecture.recurrent_elements:
        yield f"recurrent layers hold {format_gib(kv_cache_bytes(architecture, 0))}, whatever the length of the text"
    if architecture.max_position_embeddings and context > architecture.max_position_embeddings:
        yield f"its context window is {architecture.max_position_embeddings} tokens"


def _int8_note(architecture: Architecture, row_bytes: int) -> str:
    if architecture.family not in LLAMA_LIKE_FAMILIES or not architecture.head_size:
        return ""
    small = row_bytes / BF16_BYTES * int8_kv_element_bytes(architecture)
    return f', on a CPU {small / 1024:.3g} KiB with models.kv_cache = "{INT8_KV}"'


def _weight_notes(architecture: Architecture) -> Iterator[str]:
    if architecture.stored_format in FP8_METHODS and architecture.family in LLAMA_LIKE_FAMILIES:
        yield 'its weights are stored in 8 bits: models.weights = "float" converts them to bf16, "fp8" keeps them'
    elif architecture.stored_format in KEPT_CHECKPOINTS and architecture.family in LLAMA_LIKE_FAMILIES:
        part = "experts" if architecture.stored_format == MXFP4 else "weights"
        yield f'its {part} are stored in 4 bits: with models.weights = "float" a CUDA GPU keeps them, a CPU makes bf16'
    embeddings = format_gib(BF16_BYTES * architecture.parameters_of_kind(EMBEDDING))
    if can_quantize(architecture) and lacks_quantizer(architecture):
        yield f"transformers computes it: other formats of models.weights need a plugin; {install_line('hybrids')}"
    elif not can_quantize(architecture):
        yield f"its checkpoint is in {architecture.stored_format}: models.weights has no choice of another format"
    elif architecture.is_tied:
        yield f"its embeddings are also its output matrix: quantized, {embeddings} of embeddings stay beside it"
    elif architecture.family in LLAMA_LIKE_FAMILIES:
        yield f'models.embedding_device = "cpu" keeps {embeddings} of embeddings in main memory'
