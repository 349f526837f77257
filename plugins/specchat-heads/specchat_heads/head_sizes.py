"""The sizes of the heads from their configs. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from specchat.hub.architecture import IDLE, LINEAR, OTHER, OUTPUT, Architecture, KVLayers, Matrix
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


def block_architecture(config: Config) -> Architecture | None:
    """A DFlash head, with what DSpark or DFlash-2 add to it."""
    own = {**config, **(config.get("transformer_layer_config") or {})}
    if not _corrects_slots(own):
        return None
    common = feature_head_architecture(config, "dflash", hidden_state_count(config, 5))
    width, vocabulary = common.hidden_size, int(own.get("draft_vocab_size") or common.vocab_size)
    parts = (*_block_correction(own, width, vocabulary), *_dflash2_parts(own, width, common.layers))
    return replace(common, matrices=(*common.matrices, *parts))


def _corrects_slots(config: Config) -> bool:
    settings: Config = {**config, **(config.get("dflash_config") or {})}
    return bool(settings.get("markov_rank") or settings.get("enable_confidence_head") or settings.get("selector_rank"))


def _block_correction(config: Config, width: int, draft_vocabulary: int) -> Iterator[Matrix]:
    """The Markov head of DSpark, a row of each token before and a bias for each after, and its confidence head."""
    rank = int(config.get("markov_rank") or 0)
    if rank:
        yield Matrix(OTHER, int(config["vocab_size"]), rank)
        yield Matrix(LINEAR, draft_vocabulary, rank)
    markov_heads = {"gated": (1, width + rank), "rnn": (3, width + 2 * rank)}
    gates, inputs = markov_heads.get(str(config.get("markov_head_type")), (0, 0))
    if rank and gates:
        yield Matrix(LINEAR, gates * rank, inputs)
        yield Matrix(OTHER, gates * rank)
    if config.get("enable_confidence_head"):
        yield Matrix(LINEAR, 1, width + (rank if config.get("confidence_head_with_markov") else 0))
        yield Matrix(OTHER, 1)


def _dflash2_parts(config: Config, width: int, layers: int) -> Iterator[Matrix]:
    """The convolutions of DFlash-2 around each module, and its candidate selector with two rows for each token."""
    settings: Config = {**config, **(config.get("dflash_config") or {})}
    if rank := int(settings.get("selector_rank") or 0):
        taps, groups = int(settings["conv_kernel_size"]), width // int(settings["conv_group_size"])
        yield Matrix(LINEAR, 2 * taps * groups, width, 2 * layers)
        yield Matrix(OTHER, 2 * taps, width, 2 * layers)
        yield Matrix(IDLE, int(config["vocab_size"]), rank, 2)
        yield Matrix(LINEAR, rank, width)
