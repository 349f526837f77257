"""A checkpoint whose format is not known yet, and what all formats read from it: shapes, sizes, missing tensors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from specchat.drafters.heads.spec import DEFAULT_TRAINED_LENGTH, HeadDimensions, HeadSpec
from specchat.errors import ModelError
from specchat.forward.llama.rope import Rope
from specchat.weights.tensor_files import TensorFiles

ATTENTION_PROJECTIONS = tuple(f"{part}_proj" for part in "qkvo")


@dataclass(frozen=True)
class HeadCheckpoint:
    tensors: TensorFiles
    config: Mapping[str, Any]

    @cached_property
    def text_config(self) -> Mapping[str, Any]:
        """The part of the config about the decoder layers: multimodal models and speculators nest it."""
        for key in ("transformer_layer_config", "text_config"):
            if isinstance(self.config.get(key), Mapping):
                return self.config[key]
        return self.config

    @property
    def architecture(self) -> str:
        return str((self.config.get("architectures") or ["?"])[0])

    @property
    def speculators_type(self) -> str | None:
        """The head type of vLLM's speculators library, if the config has one."""
        nested = self.config.get("speculators_config") or {}
        return self.config.get("speculators_model_type") or nested.get("algorithm")

    @property
    def type_names(self) -> tuple[str, str]:
        """What the config calls it: in speculators, and as an architecture of transformers."""
        return str(self.speculators_type), self.architecture

    def first_match(self, pattern: str) -> re.Match[str] | None:
        return next((match for name in self.tensors.locations if (match := re.match(pattern, name))), None)

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of a matrix; ModelError for another number of dimensions."""
        match self.tensors.shape(name):
            case (rows, columns):
                return rows, columns
            case other:
                raise ModelError(f"{self.tensors.source}: {name} {list(other)} is not a matrix")

    def describe_shape(self, name: str) -> str:
        return f"{name} {list(self.tensors.shape(name))}"

    def with_canonical_names(self, prefixes: Mapping[str, str]) -> TensorFiles:
        """The tensors whose names start with one of the prefixes, with the canonical prefix instead."""
        names: dict[str, str] = {}
        for name in self.tensors.locations:
            for old, new in prefixes.items():
                if name.startswith(old):
                    names.setdefault(new + name.removeprefix(old), name)
                    break
        return self.tensors.renamed(names)


def dimensions_from_tensors(
    tensors: TensorFiles, config: Mapping[str, Any], hidden_size: int
) -> tuple[HeadDimensions, list[str]]:
    """The sizes of the layers, from the shapes of their tensors, and a warning for every difference to the config."""
    prefix = "layers.0.self_attn"
    rows = {part: tensors.shape(f"{prefix}.{part}_proj.weight")[0] for part in "qkv"}
    attention_size = tensors.shape(f"{prefix}.o_proj.weight")[1]  # heads * head_size, without gates
    head_size = _head_size(tensors, attention_size, rows["k"], config)
    if not head_size or attention_size % head_size or rows["k"] % head_size or rows["k"] != rows["v"]:
        shapes = f"q {rows['q']}, k {rows['k']}, v {rows['v']}, o {attention_size}"
        raise ModelError(f"{tensors.source}: no head size fits the projections ({shapes} rows)")
    layers = len({name.split(".")[1] for name in tensors.locations if name.startswith("layers.")})
    dimensions = HeadDimensions(
        hidden_size,
        heads=attention_size // head_size,
        kv_heads=rows["k"] // head_size,
        head_size=head_size,
        layers=layers,
        epsilon=float(config.get("rms_norm_eps", 1e-6)),
        has_output_gate=rows["q"] == 2 * attention_size,
        sliding_windows=_sliding_windows(config, layers),
    )
    measured = {
        "head_dim": head_size, "num_attention_heads": dimensions.heads,
        "num_key_value_heads": dimensions.kv_heads, "hidden_size": hidden_size,
    }  # fmt: skip
    return dimensions, config_mismatches(config, measured)


def with_layers(checkpoint: HeadCheckpoint, spec: HeadSpec, hidden_size: int, rope: Rope, *tables: str) -> HeadSpec:
    """`spec` with what its layers and its config say. `tables`: more tensors with a row for each token."""
    tensors, config = spec.tensors, checkpoint.text_config
    dimensions, warnings = dimensions_from_tensors(tensors, config, hidden_size)
    require_tensors(tensors, layer_tensor_names(dimensions.layers))
    vocab_size = target_vocab_size(checkpoint, tensors, tables)
    return replace(
        spec,
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        dimensions=dimensions,
        rope=rope,
        target_vocab_size=vocab_size,
        draft_vocab_size=tensors.shape("d2t")[0] if "d2t" in tensors else vocab_size,
        context_window=int(config.get("max_position_embeddings") or DEFAULT_TRAINED_LENGTH),
        target_layers=checkpoint.config.get("num_target_layers"),
    )


def inputs_and_outputs(
    checkpoint: HeadCheckpoint, ids: Sequence[int] | None, count: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The hidden states of these layers, if inputs of layers are counted, and if outputs are.

    ModelError unless they are as many as `fc` reads.
    """
    source = checkpoint.tensors.source
    if ids is None:
        raise ModelError(f"{source}: fc reads {count} hidden states, but the config has no layers")
    if len(ids) != count:
        raise ModelError(f"{source}: the config has {len(ids)} layers ({ids}), but fc reads {count}")
    return tuple(int(index) for index in ids), tuple(int(index) + 1 for index in ids)


def config_mismatches(config: Mapping[str, Any], tensors: Mapping[str, int | None]) -> list[str]:
    """A warning for every number in which the config differs from the shapes of the tensors."""
    return [
        f"config.json has {key} = {config[key]}, the tensors have {value}; the tensors are used"
        for key, value in tensors.items()
        if config.get(key) not in (None, value)
    ]


def target_vocab_size(checkpoint: HeadCheckpoint, tensors: TensorFiles, tables: Iterable[str] = ()) -> int:
    """Tokens of the target: from tables with one row per token, else from the config."""
    for name in ("t2d", "embed_tokens.weight", *tables, *(() if "d2t" in tensors else ("lm_head.weight",))):
        if name in tensors:
            return tensors.shape(name)[0]
    return int(checkpoint.text_config.get("vocab_size") or 0)


def unsupported_layer_reason(config: Mapping[str, Any], rope: Rope) -> str | None:
    activation = config.get("hidden_act") or config.get("hidden_activation") or "silu"
    if activation not in ("silu", "swish"):
        return f"layers with the activation {activation}"
    return None if rope.is_supported else f"rotary embeddings of type {rope.rope_type}"


def require_tensors(tensors: TensorFiles, names: Iterable[str]) -> None:
    """ModelError when a tensor of the head is missing, for example because a shard is."""
    missing = [name for name in names if name not in tensors]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"{tensors.source}: a part of the head is missing: {missing[0]}{more}")


def layer_tensor_names(
    layers: int, has_experts: bool = False, attention: Iterable[str] = ATTENTION_PROJECTIONS
) -> list[str]:
    """The tensors that every layer must have, except those of experts."""
    mlp = [] if has_experts else [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
    parts = [*(f"self_attn.{part}" for part in attention), *mlp]
    return [f"layers.{index}.{part}.weight" for index in range(layers) for part in [*parts, "post_attention_layernorm"]]


def _head_size(tensors: TensorFiles, attention_size: int, key_rows: int, config: Mapping[str, Any]) -> int | None:
    if "layers.0.self_attn.q_norm.weight" in tensors:
        return tensors.shape("layers.0.self_attn.q_norm.weight")[0]
    heads, kv_heads = (int(config.get(f"num_{name}_heads") or 0) for name in ("attention", "key_value"))
    if not heads or attention_size % heads:
        return config.get("head_dim")
    size = attention_size // heads
    is_consistent = key_rows == size * kv_heads or (not kv_heads and key_rows % size == 0)
    return size if is_consistent else config.get("head_dim")


def _sliding_windows(config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    layer_types, window = config.get("layer_types") or (), config.get("sliding_window")
    if not window or "sliding_attention" not in layer_types:
        return ()
    return tuple(int(window) if layer_type == "sliding_attention" else None for layer_type in layer_types[:layers])
