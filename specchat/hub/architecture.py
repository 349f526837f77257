"""What a model is made of: matrices by what they are for, and what layers keep of every token that they read.

Values alone. `arithmetic.py` makes them of a config.json, `headers.py` of files; `vram.py` turns them into bytes. Knows
no device and no way to store a number.
"""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDING, OUTPUT, LINEAR, EXPERT, OTHER = "embedding", "output", "linear", "expert", "small"
MATRIX_KINDS = (EMBEDDING, OUTPUT, LINEAR, EXPERT, OTHER)
FLOAT_FORMATS = ("bf16", "float32")


@dataclass(frozen=True)
class Matrix:
    """So many tensors of one shape; a vector has one column."""

    kind: str
    rows: int
    columns: int = 1
    count: int = 1

    @property
    def parameters(self) -> int:
        """How many numbers all of them hold."""
        return self.rows * self.columns * self.count


@dataclass(frozen=True)
class KVLayers:
    """Layers that keep the same of every token that they read."""

    layers: int
    elements_per_token: int  # of a token, in each layer
    sliding_window: int | None = None  # tokens that they look back; None: all


@dataclass(frozen=True)
class Architecture:
    """A model as matrices, and what it keeps while it reads a text."""

    family: str
    matrices: tuple[Matrix, ...]
    kv_layers: tuple[KVLayers, ...]
    recurrent_elements: int = 0  # numbers that recurrent layers keep, however long the text is
    vocab_size: int = 0
    hidden_size: int = 0  # D, of a hidden state
    layers: int = 0
    max_position_embeddings: int = 0  # tokens that it was made for
    stored_bytes: int | None = None  # of its tensors on disk; None where only its config is known
    stored_format: str = "bf16"  # what its numbers are on disk: bf16, float32, or the name of a quantisation
    notes: tuple[str, ...] = ()

    def parameters_of_kind(self, kind: str) -> int:
        """How many parameters are of a kind."""
        return sum(matrix.parameters for matrix in self.matrices if matrix.kind == kind)

    @property
    def parameters(self) -> int:
        """All of them."""
        return sum(matrix.parameters for matrix in self.matrices)

    @property
    def is_tied(self) -> bool:
        """Whether the embeddings are the output matrix as well."""
        return not self.parameters_of_kind(OUTPUT)
