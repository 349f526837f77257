"""GGUF files whose network transformers computes: their tensors (`gguf_networks.toml`) → those of the published model.

Such a file is converted when it is loaded (`gguf_conversion`). A published tensor may be made of several of the file.
transformers refuses a network that lacks a whole group of tensors. Knows names and shapes; reads no weights.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from specchat.weights.gguf.gguf_conversion import Check, Tables
from specchat.weights.gguf.gguf_file import GgufTensor
from specchat.weights.gguf.gguf_heads import DRAFTING_LAYERS
from specchat.weights.gguf.gguf_keys import GgufKeys
from specchat.weights.gguf.gguf_manifest import PART, MappedTensor, WeightChange
from specchat.weights.gguf.gguf_preparation import Report
from specchat_hybrids.gguf_conversion import safetensors_folder

NETWORKS_FILE = Path(__file__).with_suffix(".toml")
CHANGES = {  # by the name of a tensor in its layer
    "ssm_a": WeightChange.MINUS_EXP,
    "attn_k_b.weight": WeightChange.TRANSPOSED,
    "exp_probs_b.bias": WeightChange.IN_FLOAT32,
}
CONVOLUTIONS = ("ssm_conv1d.weight", "shortconv.conv.weight")  # published with a dimension of 1 in the middle
VECTORS = ("ssm_a", "ssm_d", "ssm_norm.weight")
EXPERTS = "_exps.weight"
Names = Mapping[str, str | Sequence[str]]


class GgufNetworks:
    """The networks of `gguf_networks.toml`, and conversions of all files (`gguf_conversion.NetworkReader`)."""

    @staticmethod
    def families() -> Tables:
        own = ("layer", "norm")  # the rest is read as that of any family
        return {
            name: {key: value for key, value in table.items() if key not in own} | {"is_network": True}
            for name, table in _tables().items()
        }

    @staticmethod
    def tensors(keys: GgufKeys, config: Mapping[str, Any]) -> Iterator[MappedTensor]:
        table = _tables()[keys.architecture]
        names = {key: table[key] for key in ("layer", "norm") if key in table}
        return NetworkNames(**names, pairs_rows="pairs_rows" in table.get("flags", ())).tensors(keys, config)

    @staticmethod
    def convert(folder: Path, report: Report, check: Check | None) -> Path:
        return safetensors_folder(folder, report, check)


@cache
def _tables() -> Tables:
    return tomllib.loads(NETWORKS_FILE.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class NetworkNames:
    """The tensors of an architecture: in the model = in the file."""

    layer: Mapping[str, Names]  # groups of those of a layer, which has all of a group or none
    norm: Mapping[str, str] = field(default_factory=lambda: {"model.norm.weight": "output_norm.weight"})  # the last one
    pairs_rows: bool = False  # of queries and keys

    def tensors(self, keys: GgufKeys, config: Mapping[str, Any]) -> Iterator[MappedTensor]:
        """Every tensor of a file. ModelError for a group that is there in part, and for an unknown tensor."""
        layers, used = config["num_hidden_layers"], {"token_embd.weight", "output.weight", *self.norm.values()}
        output = {} if config["tie_word_embeddings"] else {"lm_head.weight": "output.weight"}
        for name, stored in {"model.embed_tokens.weight": "token_embd.weight", **self.norm, **output}.items():
            yield MappedTensor(keys.required(stored), name)
        for layer, group in product(range(layers), self.layer.values()):
            stored = {f"blk.{layer}.{each}" for parts in group.values() for each in _listed(parts)}
            if not stored.isdisjoint(keys.file.tensors):
                used |= stored
                for name, parts in group.items():
                    yield from self._published(keys, config, layer, name, _listed(parts))
        drafting = tuple(f"blk.{layer}." for layer in range(layers, layers + keys.count(DRAFTING_LAYERS)))
        keys.check_unused(used, ("rope_freqs.", *drafting))

    def _published(
        self, keys: GgufKeys, config: Mapping[str, Any], layer: int, name: str, parts: Sequence[str]
    ) -> Iterator[MappedTensor]:
        """A tensor of a layer, or those of its experts, from one of the file or from several."""
        name, tensors = f"model.layers.{layer}.{name}", [keys.required(f"blk.{layer}.{part}") for part in parts]
        changes = [CHANGES.get(part, WeightChange.NONE) for part in parts]
        if "{}" in name:
            matrices = keys.matrices(tensors[0], keys.size("expert_count"))
            if {*matrices[0].shape} != {config["hidden_size"], (width := config["moe_intermediate_size"])}:
                shape = list(tensors[0].shape)
                raise keys.error(f"{tensors[0].name} has the shape {shape}, and the file says experts of {width}")
            for index, each in enumerate(matrices):
                yield MappedTensor(each, name.format(index))
        elif len(parts) > 1:
            stack = keys.size("expert_count") if parts[0].endswith(EXPERTS) else 0
            count = stack or (tensors[0].shape[0] if len(tensors[0].shape) == 3 else 0)
            rows = zip(*(keys.matrices(each, count) if count else [each] for each in tensors), strict=True)
            in_order = ((each, change) for matrix in rows for each, change in zip(matrix, changes, strict=True))
            for index, (each, change) in enumerate(in_order):
                yield MappedTensor(each, f"{name}{PART}{index}", change, stack=stack)
        elif self.pairs_rows and parts[0] in ("attn_q.weight", "attn_k.weight"):
            heads = config["num_attention_heads" if parts[0] == "attn_q.weight" else "num_key_value_heads"]
            yield MappedTensor(tensors[0], name, WeightChange.PAIRED_ROWS, heads)
        else:
            yield MappedTensor(_reshaped(tensors[0], parts[0]), name, changes[0])


def _listed(parts: str | Sequence[str]) -> Sequence[str]:
    return (parts,) if isinstance(parts, str) else parts


def _reshaped(tensor: GgufTensor, part: str) -> GgufTensor:
    """A tensor with its published shape: the order of its numbers is the same."""
    if part in CONVOLUTIONS:
        return replace(tensor, shape=(tensor.shape[0], 1, tensor.shape[-1]))
    return replace(tensor, shape=(prod(tensor.shape),)) if part in VECTORS else tensor
