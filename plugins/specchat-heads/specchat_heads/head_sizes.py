"""The sizes of the heads from their configs. Imports no torch."""

from __future__ import annotations

from dataclasses import replace

from specchat.hub.architecture import LINEAR, OTHER, OUTPUT, Architecture, KVLayers, Matrix
from specchat.hub.config_architecture import (
    Config,
    feature_head_architecture,
    hidden_state_count,
    kv_layers_from_config,
    layer_matrices,
    required_int,
)


def hydra_architecture(config: Config) -> Architecture | None:
    """Hydra's heads. A published config leaves their sizes to the target, and the keys of its config must be added."""
    if "hydra_num_heads" not in config:
        return None
    width, vocabulary = required_int(config, "hidden_size"), required_int(config, "vocab_size")
    heads, later_blocks = int(config["hydra_num_heads"]), int(config.get("hydra_num_layers", 1)) - 1
    reads_tokens = bool(config.get("grounded_heads"))
    matrices = [Matrix(OUTPUT, vocabulary, width, heads), Matrix(OTHER, vocabulary, 1, heads)]
    matrices += [Matrix(LINEAR, width, width, heads * later_blocks), Matrix(OTHER, width, 1, heads * later_blocks)]
    for inputs in (2 + head if reads_tokens else 1 for head in range(heads)):
        first = 2 if reads_tokens else 1  # a block, and the shortcut past it
        matrices += [Matrix(LINEAR, width, inputs * width, first), Matrix(OTHER, width, 1, first)]
    kv_layers: tuple[KVLayers, ...] = ()
    if config.get("hydra_head_arch") == "prefix-mlp":
        matrices += [*layer_matrices(config, "llama", ["full_attention"]), Matrix(OTHER, width, 1, 3)]
        kv_layers = kv_layers_from_config(config, ["full_attention"])
    return Architecture("hydra", tuple(matrices), kv_layers, 0, vocabulary, width, len(kv_layers))


def peagle_architecture(config: Config) -> Architecture | None:
    """An EAGLE-3 head with embeddings of its own and the state of its masks."""
    names = f"{config.get('architectures')} {config.get('speculators_model_type')}".lower()
    if "peagle" not in names and "ptd_token_id" not in config:
        return None
    states = hidden_state_count(config, 3)
    common = feature_head_architecture({**config, "speculators_model_type": "eagle3"}, "eagle3", states)
    width = int(config.get("target_hidden_size") or common.hidden_size)
    mask = Matrix(OTHER, states * width)  # the state of its masks
    return replace(common, family="peagle", matrices=(*common.matrices, mask))
