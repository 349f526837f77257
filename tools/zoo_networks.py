"""Tiny random networks of the causal families of transformers, for `tools/model_zoo.py`.

A config is the default one of its family, with small sizes for every key that it has and windows that a short text
leaves. Knows no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VOCABULARY, LAYERS, SEED = 300, 4, 3
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS, "ffn_dim": 48,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
    "initializer_range": 0.3, "init_std": 0.3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "sliding_window": 8, "attention_chunk_size": 8, "tie_word_embeddings": False,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8,
    "mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1, "chunk_size": 8,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_head_dim": 8, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8,
    "laurel_rank": 8, "index_head_dim": 8, "index_n_heads": 2, "zero_expert_num": 2, "attention_window_size": 8,
}  # fmt: skip
HYBRID = ["linear_attention", "full_attention"] * (LAYERS // 2)
SLIDING = ["sliding_attention", "full_attention"] * (LAYERS // 2)
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
INKLING = {"swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8, "rel_extent": 16}
FAMILY_SIZES: dict[str, dict[str, Any]] = {  # keys that depend on each other
    "bailing_hybrid": {"layer_types": HYBRID},
    "bamba": {"attn_layer_indices": [1, 3]},
    "codegen": {"rotary_dim": 4},
    "cohere_compass_text": {"rope_parameters": dict.fromkeys(SLIDING[:2], DEFAULT_ROPE)},
    "ctrl": {"dff": 48},
    "dots3_note_text": {"shared_experts_intermediate_size": 16},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma3n_text": {"num_kv_shared_layers": 2, "layer_types": SLIDING, "activation_sparsity_pattern": [0.0] * LAYERS},
    "gpt_neo": {"attention_types": [[["global", "local"], LAYERS // 2]], "window_size": 8},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * (LAYERS // 2)},
    "inkling2_loop_text": INKLING
    | {
        "unpadded_vocab_size": VOCABULARY,
        "loop_layer_index_start": 1,
        "loop_layer_index_end": 3,
        "loop_gate_rank": 8,
        "n_layers_per_attn_res_block": 1,
    },
    "inkling2_text": INKLING | {"unpadded_vocab_size": VOCABULARY},
    "inkling_text": INKLING,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"layer_types": HYBRID},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)},
    "lfm2": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8},
    "minimax_m3_vl_text": {"rotary_dim": 4, "dense_intermediate_size": 48, "shared_intermediate_size": 16},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "mamba", "moe"]},
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "lru_width": 32},
    "zamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "layers_block_type": ["mamba", "hybrid"] * 2},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"] * 2, "layer_types": ["mamba", "hybrid"] * 2},
    "zaya": {"num_experts_per_tok": 1},
}
# The mapping of transformers also has encoders with a causal mask, decoders that attend to an encoder, decoders of
# sound, and drafters: no language models of their own.
NOT_FOR_TEXT = {
    "bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "blenderbot", "blenderbot-small", "camembert",
    "data2vec-text", "electra", "ernie", "gemma4_assistant", "gemma4_unified_assistant", "git", "marian", "mbart",
    "megatron-bert", "moshi", "musicgen", "musicgen_melody", "mvp", "pegasus", "plbart", "prophetnet", "reformer",
    "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "trocr", "whisper", "xlm", "xlm-roberta",
    "xlm-roberta-xl", "xlnet", "xmod", "cpmant", "blt", "moss_transcribe_diarize", "got_ocr2", "phi4_multimodal",
}  # fmt: skip


def families() -> list[str]:
    """The text families, each once: a config that wraps images and text is left out beside that of its text."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL_FAMILIES

    return [
        name
        for name in CAUSAL_FAMILIES
        if name not in NOT_FOR_TEXT and name in CONFIG_MAPPING and _text_config_class(name).model_type == name
    ]


def tiny_config(family: str, **changes: Any) -> Any:
    config_class = _text_config_class(family)
    keys = {*config_class().to_dict(), *config_class.attribute_map}
    sizes = {key: value for key, value in SIZES.items() if key in keys}
    if "kv_lora_rank" in keys:  # every head has its own keys, made from a latent
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    return config_class(**(sizes | FAMILY_SIZES.get(family, {}) | changes))


def tiny_network(family: str, **changes: Any) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(SEED)
    return AutoModelForCausalLM.from_config(tiny_config(family, **changes), dtype=torch.float32).eval()


def _text_config_class(family: str) -> Any:
    from transformers import CONFIG_MAPPING

    return type(CONFIG_MAPPING[family]().get_text_config(decoder=True))
