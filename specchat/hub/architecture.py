"""A model as matrices by purpose, and what its layers store per token in the KV cache.

Plain values: `safetensors_headers.py`, `config_architecture.py` and `catalog.py` build them, `memory_plan.py` computes
bytes. Knows no device and no storage format.
"""

from dataclasses import dataclass

EMBEDDING, OUTPUT, LINEAR, EXPERT, OTHER = "embedding", "output", "linear", "expert", "other"
IDLE = "idle"  # loaded, and no token multiplies them: vectors looked up for every layer, encoders of images and sound
FLOAT_FORMATS = ("bf16", "float32")
HEAD = "head"  # the family of every head


@dataclass(frozen=True)
class Matrix:
    """`count` tensors of one shape; a vector has one column."""

    kind: str
    rows: int
    columns: int = 1
    count: int = 1

    @property
    def parameters(self) -> int:
        return self.rows * self.columns * self.count


@dataclass(frozen=True)
class KVLayers:
    """Layers with the same size of KV cache per token."""

    layers: int
    elements_per_token: int  # in each layer
    sliding_window: int | None = None  # in tokens; None: full attention


@dataclass(frozen=True)
class Architecture:
    family: str
    matrices: tuple[Matrix, ...]
    kv_layers: tuple[KVLayers, ...]
    recurrent_elements: int = 0  # of all recurrent states, for a text of any length
    vocab_size: int = 0
    hidden_size: int = 0  # D
    layers: int = 0
    max_position_embeddings: int = 0
    stored_bytes: int | None = None  # of its tensors on disk; None when only its config is known
    stored_format: str = "bf16"  # on disk: bf16, float32, or the name of a quantization
    notes: tuple[str, ...] = ()
    heads: int = 0  # of the queries; 0 where attention is not plain
    head_size: int = 0
    recurrent_row_elements: int = 0  # what our own passes on a GPU record of a row, beside the states
    block_bytes: int = 0  # of its weights on a GPU that multiplies the blocks of its GGUF file; 0: it is no such file
    expert_share: float = 1.0  # of the experts of a layer, that compute a token
    widest_head: int = 0  # of all layers, where some have wider ones

    def parameters_of_kind(self, kind: str) -> int:
        return sum(matrix.parameters for matrix in self.matrices if matrix.kind == kind)

    @property
    def parameters(self) -> int:
        return sum(matrix.parameters for matrix in self.matrices)

    @property
    def is_tied(self) -> bool:
        """Whether the input embeddings are also the output matrix."""
        return not self.parameters_of_kind(OUTPUT)
