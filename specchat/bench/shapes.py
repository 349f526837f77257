"""Networks of a known shape that nobody trained: what a pass costs hangs on the shape, not on what was learnt.

The network counts: after token 7 it says 8. Its output matrix is its embedding moved by one row, and what its layers
add is too faint to matter. So every engine writes the same text with it in every precision, near ties do not exist,
and numbers in order with some of them replaced are a file whose edit is a copy. As text all of it is meaningless.
Knows files and tensors; no engine.
"""

from __future__ import annotations

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
from specchat.models.llama_weights import is_dense
from specchat.paths import cache_folder

SHAPES: Mapping[str, dict[str, Any]] = {
    "0.5b": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
    },
    "8b": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
    },
}  # fmt: skip
MEANINGLESS = "the weights are random: what is written with them is meaningless, what it costs is not"
FAINT = 0.02  # of what a layer would add
USUAL = 0.02  # standard deviation of weights
CONTROL = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
FIRST_NUMBER = 300  # above the bytes and control tokens


def shaped(shape: str, folder: Path | None = None) -> Path:
    """The folder of a counting network of this shape: a name, or the path of a config.json. Written once, then kept."""
    config = SHAPES[shape] if shape in SHAPES else _read_config(Path(shape))
    config = {"torch_dtype": "bfloat16", **config, "tie_word_embeddings": False, "eos_token_id": 0}
    if not is_dense(config):
        raise InputError(f"{shape}: not of the dense Llama family; known shapes are {', '.join(SHAPES)}")
    name = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
    folder = (folder or cache_folder() / "shapes") / name
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write_weights(folder, config)
        _write_tokenizer(folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))
        (folder / "config.json").write_text(json.dumps(config, indent=1))  # the last: it says that all is there
    return folder


def edits(count: int, length: int, every: int, vocabulary: int) -> Iterator[list[int]]:
    """Prompts that show `length` numbers in order, two replaced in about `every`, and then ask for all of them.

    The answer is the numbers in order: a copy but for the replaced ones, as the edit of a file is.
    """
    dice = random.Random(1)
    for _ in range(count):
        start = dice.randrange(FIRST_NUMBER, vocabulary - length - 1)
        shown = list(range(start, start + length))
        at = dice.randrange(1, every)
        while at + 1 < length:
            shown[at : at + 2] = [dice.randrange(FIRST_NUMBER, vocabulary) for _ in range(2)]
            at += dice.randrange(every // 2, every + every // 2) + 2
        yield [*shown, start - 1]


def file_in(prompt: list[int]) -> list[int]:
    """The file of such a prompt: all but the token that asks."""
    return prompt[:-1]


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: neither one of {', '.join(SHAPES)} nor a config.json: {error}") from error


def _write_weights(folder: Path, config: Mapping[str, Any]) -> None:
    """One file for each layer, so that no more than a layer stands in memory."""
    dice = torch.Generator().manual_seed(1)
    places = dict[str, str]()

    def write(file: str, tensors: Mapping[str, Tensor]) -> None:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / file, {"format": "pt"})
        places.update(dict.fromkeys(tensors, file))

    for number in range(config["num_hidden_layers"]):
        write(f"model-{number + 1:05d}.safetensors", dict(_layer(config, f"model.layers.{number}", dice)))
    size = config["hidden_size"]
    embedding = _random((config["vocab_size"], size), 1.0, dice)
    ends = {"model.embed_tokens.weight": embedding, "model.norm.weight": torch.ones(size, dtype=torch.bfloat16)}
    write("model-00000.safetensors", {**ends, "lm_head.weight": embedding.roll(1, 0) * size**-0.5})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def _layer(config: Mapping[str, Any], at: str, dice: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    size, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head = config.get("head_dim") or size // heads
    kv_heads = config.get("num_key_value_heads") or heads
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"{at}.{norm}.weight", torch.ones(size, dtype=torch.bfloat16)
    for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        yield f"{at}.self_attn.{part}_proj.weight", _random((count * head, size), USUAL, dice)
        if config["model_type"] == "qwen2":
            yield f"{at}.self_attn.{part}_proj.bias", _random((count * head,), USUAL, dice)
        if config["model_type"] == "qwen3" and part != "v":
            yield f"{at}.self_attn.{part}_norm.weight", torch.ones(head, dtype=torch.bfloat16)
    yield f"{at}.self_attn.o_proj.weight", _random((size, heads * head), FAINT * USUAL, dice)
    yield f"{at}.mlp.gate_proj.weight", _random((inner, size), USUAL, dice)
    yield f"{at}.mlp.up_proj.weight", _random((inner, size), USUAL, dice)
    yield f"{at}.mlp.down_proj.weight", _random((size, inner), FAINT * USUAL, dice)


def _random(shape: tuple[int, ...], deviation: float, dice: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=dice).mul_(deviation).to(torch.bfloat16)


def _write_tokenizer(folder: Path) -> None:
    """Tokens that are bytes, so that a conversation can be held; all others are numbers to count with."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = [*CONTROL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(piece, special=True) for piece in CONTROL])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": CONTROL[0], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
