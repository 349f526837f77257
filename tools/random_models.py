"""Untrained networks of a given shape: the cost of a pass depends on the shape, not on the weights.

The network counts: after token 7 comes token 8. Its output matrix is its embedding shifted by one row, and its layers
add almost nothing. So every engine generates the same tokens in every precision, without near ties, and a list of
numbers with some replaced is a file whose edit is mostly a copy. The text is meaningless. Knows files and tensors only.
"""

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat.errors import InputError
from specchat.paths import cache_folder
from specchat.weights.llama_families import FAMILIES, LAYER_SCALAR, PER_LAYER, network_config
from specchat.weights.llama_manifest import read_dimensions, required_tensors
from specchat.weights.llama_weights import is_llama_like
from specchat.weights.tensor_files import TensorFiles

MODEL_CONFIGS: Mapping[str, dict[str, Any]] = {
    "0.5b": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
    },
    "gemma-270m": {
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 640,
        "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "vocab_size": 262144, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 256, "sliding_window": 512, "hidden_activation": "gelu_pytorch_tanh",
    },
    "gemma4-360m": {
        "model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], "hidden_size": 768,
        "intermediate_size": 3072, "num_hidden_layers": 15, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "global_head_dim": 512, "vocab_size": 65536, "max_position_embeddings": 32768,
        "sliding_window": 512, "num_kv_shared_layers": 6, "use_double_wide_mlp": True, "rms_norm_eps": 1e-6,
        "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 3, "hidden_size_per_layer_input": 128,
        "vocab_size_per_layer_input": 65536, "hidden_activation": "gelu_pytorch_tanh",
    },
    "moe-0.7b-a0.1b": {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 768,
        "intermediate_size": 2048, "moe_intermediate_size": 256, "num_experts": 64, "num_experts_per_tok": 8,
        "norm_topk_prob": True, "num_hidden_layers": 16, "num_attention_heads": 12, "num_key_value_heads": 4,
        "head_dim": 64, "vocab_size": 32768, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "hidden_act": "silu",
    },
    "8b": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
    },
}  # fmt: skip
QK_NORM_TYPES = ("qwen3", "qwen3_moe", "gemma3_text", "gemma4_text")
QKV, DOWN = ("self_attn.q", "self_attn.k", "self_attn.v"), "down_proj"
SHAPE_TYPES = ("llama", "mistral", "qwen2", "gemma2", *QK_NORM_TYPES)  # whose tensors are written here
RANDOM_WEIGHTS_WARNING = "the weights are random: the text is meaningless, the times are not"
RESIDUAL_SCALE = 0.02  # of the output of each layer
WEIGHT_STD = 0.02
LAYER_SCALE = 0.98  # of the hidden states of a layer that has such a number
CONTROL_TOKENS = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
FIRST_NUMBER = 300  # after the bytes and control tokens


def random_model_folder(shape: str, parent: Path | None = None) -> Path:
    """The folder of a counting network of this shape: a name, or the path of a config.json. Written once."""
    config = MODEL_CONFIGS[shape] if shape in MODEL_CONFIGS else _read_config(Path(shape))
    config = network_config({"torch_dtype": "bfloat16", **config, "tie_word_embeddings": False, "eos_token_id": 0})
    if config.get("model_type") not in SHAPE_TYPES or not is_llama_like(config):
        raise InputError(f"{shape}: not one of {', '.join(SHAPE_TYPES)}; known shapes are {', '.join(MODEL_CONFIGS)}")
    name = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
    parent = (parent or cache_folder() / "shapes") / name
    if not (parent / "config.json").exists():
        parent.mkdir(parents=True, exist_ok=True)
        _write_weights(parent, config)
        _write_tokenizer(parent)
        (parent / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))
        (parent / "config.json").write_text(json.dumps(config, indent=1))  # written last: marks the folder as complete
    return parent


def counting_edit_prompts(count: int, length: int, replaced_interval: int, vocab_size: int) -> Iterator[list[int]]:
    """Prompts with `length` consecutive numbers, two of about `replaced_interval` replaced, that ask for all of them.

    The answer is the consecutive numbers: a copy except for the replaced ones, like the edit of a file.
    """
    rng = random.Random(1)
    for _ in range(count):
        start = rng.randrange(FIRST_NUMBER, vocab_size - length - 1)
        numbers = list(range(start, start + length))
        index = rng.randrange(1, replaced_interval)
        while index + 1 < length:
            numbers[index : index + 2] = [rng.randrange(FIRST_NUMBER, vocab_size) for _ in range(2)]
            index += rng.randrange(replaced_interval // 2, replaced_interval + replaced_interval // 2) + 2
        yield [*numbers, start - 1]


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: neither one of {', '.join(MODEL_CONFIGS)} nor a config.json: {error}") from error


def _write_weights(folder: Path, config: Mapping[str, Any]) -> None:
    """Write one file a layer, so that only one layer is in memory."""
    rng = torch.Generator().manual_seed(1)
    shapes_by_file, weight_map = dict[str, dict[str, tuple[int, ...]]](), dict[str, str]()
    for name, shape in _shapes(config, folder):
        layer = int(name.split(".")[2]) + 1 if name.startswith("model.layers.") else 0
        shapes_by_file.setdefault(f"model-{layer:05d}.safetensors", {})[name] = shape
    for file, shapes in shapes_by_file.items():
        tensors = {name: _tensor(name, shape, config, rng) for name, shape in shapes.items()}
        if (embedding := tensors.get("model.embed_tokens.weight")) is not None:
            tensors["lm_head.weight"] = (embedding.roll(1, 0) * config["hidden_size"] ** -0.5).contiguous()
        save_file(tensors, folder / file, {"format": "pt"})
        weight_map.update(dict.fromkeys(tensors, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def _shapes(config: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that such a network must have, and those that its family has besides."""
    family, sizes = config["model_type"], read_dimensions(config, folder)
    for name, shape in required_tensors(TensorFiles(folder, {}), sizes, config):
        yield name, shape
        part = name.removesuffix("_proj.weight")
        if family == "qwen2" and part.endswith(QKV):
            yield f"{part}_proj.bias", shape[:1]
        if family in QK_NORM_TYPES and part.endswith(QKV[:2]):
            yield f"{part}_norm.weight", (sizes.shape(int(name.split(".")[2])).head_size,)
        if name.endswith(f"{PER_LAYER.output_norm}.weight"):
            yield name.replace(f"{PER_LAYER.output_norm}.weight", LAYER_SCALAR), (1,)


def _tensor(name: str, shape: tuple[int, ...], config: Mapping[str, Any], rng: torch.Generator) -> Tensor:
    if name.endswith(LAYER_SCALAR):
        return torch.full(shape, LAYER_SCALE, dtype=torch.bfloat16)
    if name.endswith("norm.weight"):  # neutral: it multiplies with 1
        adds_one = FAMILIES[config["model_type"]].scaling(config).norms_add_one
        return torch.full(shape, 0.0 if adds_one else 1.0, dtype=torch.bfloat16)
    if name == "model.embed_tokens.weight":
        return _random_tensor(shape, 1.0, rng)
    is_output = name.endswith(("self_attn.o_proj.weight", f"{DOWN}.weight"))
    return _random_tensor(shape, WEIGHT_STD * RESIDUAL_SCALE if is_output else WEIGHT_STD, rng)


def _random_tensor(shape: tuple[int, ...], std: float, rng: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=rng).mul_(std).to(torch.bfloat16)


def _write_tokenizer(folder: Path) -> None:
    """Write a tokenizer whose first tokens are bytes, so that prompts can be encoded; the others are numbers."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = [*CONTROL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(piece, special=True) for piece in CONTROL_TOKENS])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": CONTROL_TOKENS[0], "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
