"""The metadata of the architecture of a GGUF file, with checked values. Reads no weights; knows no family."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_file import GgufFile, GgufTensor, one_line
from specchat.weights.gguf.gguf_heads import DRAFTING_LAYERS

MAX_LAYERS = 1024
MAX_SIZE = 2**24  # of any dimension


class GgufKeys:
    """The metadata of an architecture, with checked values."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture

    def error(self, problem: str) -> ModelError:
        return ModelError(f"{self.file.path}: {one_line(problem)}")

    def damaged(self, problem: str) -> ModelError:
        """A value that no file of a known architecture has."""
        return self.error(f"{problem}; download the file again")

    def value(self, key: str, default: float | None = None) -> Any:
        value = self.file.metadata.get(f"{self.architecture}.{key}")
        return default if value is None else value

    def size(self, key: str, default: int | None = None, layer: int | None = None) -> int:
        """A number that is the same in all layers, or that of one layer."""
        value = self.value(key, default)
        if isinstance(value, list):  # one number for each layer
            if layer is None and len(set(value)) != 1:
                raise self.error(f"{self.architecture} with another {key} in each layer is not supported")
            value = value[layer or 0] if -len(value) <= (layer or 0) < len(value) else None
        if not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
            raise self.damaged(f"{self.architecture}.{key} is {value if value is not None else 'missing'}")
        return value

    def count(self, key: str) -> int:
        return self.size(key) if self.value(key) else 0

    def number(self, key: str, default: float | None = None) -> float:
        value = self.value(key, default)
        if not isinstance(value, int | float) or not 0 < value < 1e12:
            raise self.damaged(f"{self.architecture}.{key} is {value if value is not None else 'missing'}")
        return float(numpy.format_float_positional(numpy.float32(value)))  # 1e-05, not 9.999999747378752e-06

    def tensor(self, name: str) -> GgufTensor | None:
        return self.file.tensors.get(name)

    def computed(self, key: str) -> int:
        """A size; "a/b" and "a-b" are those of two, and "a?" may be 0."""
        if key.endswith("?"):
            return self.count(key[:-1])
        whole, operator, part = re.fullmatch(r"([\w.]+)([-/]?)(.*)", key).groups()  # pyright: ignore[reportOptionalMemberAccess]
        size, other = self.size(whole), self.size(part) if operator else 1
        return max(size // other if operator != "-" else size - other, 1)

    def listed(self, key: str, layers: int) -> list[Any]:
        """A value of each layer. ModelError for one of fewer layers."""
        value = self.value(key)
        if isinstance(value, list) and len(value) < layers:
            raise self.damaged(f"{self.architecture}.{key} has {len(value)} of {layers} layers")
        return value[:layers] if isinstance(value, list) else [value] * layers

    def has(self, part: str, layer: int) -> bool:
        """Whether a setting is true, or a layer has a tensor."""
        return bool(self.value(part)) or self.tensor(f"blk.{layer}.{part}") is not None

    @property
    def layers(self) -> int:
        """How many layers compute."""
        if not 1 <= (layers := self.size("block_count") - self.count(DRAFTING_LAYERS)) <= MAX_LAYERS:
            raise self.damaged(f"{self.architecture}.block_count is {layers}")
        return layers

    @property
    def embedding(self) -> GgufTensor:
        """The input embeddings. [V, D]"""
        embedding = self.tensor("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise self.error("token_embd.weight is missing; is this a whole language model?")
        return embedding

    def required(self, name: str) -> GgufTensor:
        """A tensor; ModelError where it is missing."""
        if (tensor := self.tensor(name)) is None:
            raise self.damaged(f"the tensor {name} is missing")
        return tensor

    def matrices(self, tensor: GgufTensor, count: int) -> list[GgufTensor]:
        """Each expert or head of a tensor that holds all of them, one after the other."""
        if tensor.shape[0] != count or len(tensor.shape) < 2:
            raise self.damaged(f"{tensor.name} has the shape {list(tensor.shape)}, and the file says {count} experts")
        size = tensor.bytes // count
        return [
            replace(tensor, shape=tensor.shape[1:], offset=tensor.offset + index * size, bytes=size)
            for index in range(count)
        ]

    def check_unused(self, used: Collection[str], unread: tuple[str, ...]) -> None:
        """ModelError for a tensor that is not used, unless its name begins like one that no model has."""
        unknown = [name for name in self.file.tensors if name not in used and not name.startswith(unread)]
        if unknown:
            raise self.error(f"{self.architecture} with the tensor {min(unknown)} is not supported")

    def first(self, choices: Sequence[str]) -> str:
        """The first of these keys that the file has; the last one where it has none."""
        return next((key for key in choices if self.value(key) is not None), choices[-1])
