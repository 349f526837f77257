"""The metadata and tensor names of a GGUF file → config.json and the tensor names of the published model.

llama.cpp changes weights where it computes differently; `WeightChange` says how to undo that. A tensor that is missing
or unknown is an error: a model that is loaded in part answers nonsense. Shapes are compared where a model is loaded
(`llama_manifest`). Reads no weights, and imports neither torch nor transformers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specchat.forward.llama.variations import LayerShape
from specchat.own_tables import own_tables
from specchat.plugins.own_plugins import install_line
from specchat.weights.gguf.gguf_conversion import network_reader
from specchat.weights.gguf.gguf_file import GgufFile
from specchat.weights.gguf.gguf_heads import DRAFTING_LAYERS, drafting_config, drafting_tensors
from specchat.weights.gguf.gguf_keys import GgufKeys
from specchat.weights.gguf.gguf_manifest import MappedModel, MappedTensor, WeightChange
from specchat.weights.gguf.gguf_recurrent import recurrent_tensors
from specchat.weights.gguf.gguf_rope import rope_factors, rope_parameters
from specchat.weights.llama_families import FAMILIES as LLAMA_FAMILIES
from specchat.weights.llama_families import FULL, RECURRENT, SLIDING, Family, is_recurrent, layer_shapes

NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")  # before and after attention and MLP
LAYERS_OF_27B = {"gemma2": 46, "gemma3_text": 62}
QKV = ("attn_q", "attn_k", "attn_v")
UNREADABLE = "{} ({}) cannot be read from GGUF; use the *.safetensors"
EXPERT = "{}"  # in the name of a tensor that holds all experts: the number of one
KEYS = ("attn_k", "attn_v", "attn_k_norm")
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


@dataclass(frozen=True)
class _Family:
    """An architecture of llama.cpp: a table of `gguf_families.toml`, which says what each field is."""

    model_type: str
    class_name: str
    biases: Sequence[str] = ()
    norms: Sequence[str] = NORMS
    has_qk_norms: bool = False
    pairs_rows: bool = False
    tiles_heads: bool = False
    gates: Mapping[str, str] = field(default_factory=dict[str, str])
    layers_differ: bool = False
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    numbers: Mapping[str, str] = field(default_factory=dict[str, str])
    sizes: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    window: int | None = None
    window_every: int = 0
    yarn: Mapping[str, Any] = field(default_factory=dict[str, Any])
    optional: Mapping[str, str] = field(default_factory=dict[str, str])
    per_layer_input: Mapping[str, str] = field(default_factory=dict[str, str])
    neutral: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    has: Mapping[str, str] = field(default_factory=dict[str, str])
    kinds: Sequence[str] = ()
    is_network: bool = False  # that transformers computes

    @property
    def published(self) -> Family:
        return LLAMA_FAMILIES.get(self.model_type, Family())

    @property
    def layer_names(self) -> dict[str, str]:
        """The tensors of a layer: GGUF → transformers."""
        names, qk_norms = self.published.names, QK_NORMS if self.has_qk_norms else {}
        norms = (names.input_norm, names.attention_output_norm, names.mlp_norm, names.mlp_output_norm)
        qkv = QKV if len(names.qkv) > 1 else ("attn_qkv",)
        attention = dict(zip((*self.norms, *qkv), (*norms, *names.qkv), strict=True))
        attention |= {"attn_output": "self_attn.o_proj", **qk_norms, **self._mlp_names}
        return {stored: published for stored, published in attention.items() if published is not None}

    @property
    def _mlp_names(self) -> dict[str, str]:
        experts = self.published.experts
        if experts is None:
            gate_up = self.published.names.gate_up
            return dict(zip(("ffn_gate", "ffn_up")[-len(gate_up) :], gate_up, strict=True)) | {
                "ffn_down": "mlp.down_proj"
            }
        names = {"ffn_gate_inp": experts.router}
        for stored, published in zip(("gate", "up", "down"), (*experts.gate_up, experts.down), strict=True):
            names[f"ffn_{stored}_exps"] = f"{experts.experts}.{EXPERT}.{published}"
            if experts.shared:
                names[f"ffn_{stored}_shexp"] = f"{experts.shared}.{stored}_proj"
        return names | ({"ffn_gate_inp_shexp": f"{experts.shared}_gate"} if experts.shared else {})


def map_model(file: GgufFile) -> MappedModel:
    """The model in a GGUF file. ModelError when its architecture is not supported, or tensors do not fit."""
    keys = GgufKeys(file, str(file.metadata.get("general.architecture")))
    family = _family(keys)
    of_sizes = (key.removesuffix("?") for choices in family.sizes.values() for key in choices)
    known = {*of_sizes, *family.numbers.values(), *family.has.values()}
    for key, neutral in (own_tables(__file__)["neutral"] | family.neutral).items():
        if key not in known and (value := keys.value(key)) not in (None, *neutral):
            raise keys.error(f"{keys.architecture} with {key} = {value} is not supported")
    config = _config(keys, family)
    if family.is_network and (reader := network_reader()):
        return MappedModel(config, tuple(reader.tensors(keys, config)))
    drafting = tuple(_drafting_tensors(keys, family, config))
    tensors = tuple(_mapped_tensors(keys, family, config, drafting))
    return MappedModel(config | (drafting_config(config) if drafting else {}), tensors)


def _family(keys: GgufKeys) -> _Family:
    tables, name = own_tables(__file__), keys.architecture
    kind = "experts" if keys.value("expert_count") else "dense"
    if kind == "dense" and keys.value("attention.sliding_window") and name in tables["windows"]:
        kind = "windows"
    reader = None if name in tables[kind] else network_reader()
    if (table := (reader.families() if reader else tables[kind]).get(name)) is not None:
        fields: dict[str, Any] = {**table, **dict.fromkeys(table.get("flags", ()), True)}
        for part, others in fields.pop("without", {}).items():
            fields |= {} if keys.has(part, keys.layers - 1) else others
        fields.pop("flags", None)
        return _Family(**fields)
    if name in tables["networks"]:
        raise keys.error(f"{name} needs a plugin: {install_line('hybrids')}; or use the *.safetensors")
    if name in tables["dense"]:
        raise keys.error(f"{name} with experts is not supported; choose a dense model, or its *.safetensors")
    if name in tables["experts"]:
        keys.size("expert_count")  # its file says that it has none
    if name in tables["unsupported"]:
        raise keys.error(UNREADABLE.format(tables["unsupported"][name], name))
    reason = "is not a language model" if name in ("clip", "whisper") else "is not supported"
    supported = ", ".join(dict.fromkeys((*tables["dense"], *tables["experts"], *tables["networks"])))
    raise keys.error(f"the architecture {name} {reason}; supported are {supported}")


def _config(keys: GgufKeys, family: _Family) -> dict[str, Any]:
    heads, width, layers = keys.size("attention.head_count"), keys.size("embedding_length"), keys.layers
    kv_heads, layer = keys.listed("attention.head_count_kv", layers), 0 if family.layers_differ else None
    if family.kinds:  # the first layer that has some
        layer = next((index for index, count in enumerate(kv_heads) if count), 0)
    head_size = max(width // heads, 1)
    if not family.is_network:
        head_size = keys.size("rope.dimension_count", head_size)
    head_size = keys.size("attention.key_length", head_size)
    if keys.size("attention.value_length", head_size) != head_size and not family.is_network:
        raise keys.error(f"{keys.architecture} with keys and values of different sizes is not supported")
    config: dict[str, Any] = {
        "architectures": [family.class_name],
        "model_type": family.model_type,
        "vocab_size": keys.embedding.shape[0],
        "hidden_size": width,
        "intermediate_size": keys.size("feed_forward_length", keys.value("expert_feed_forward_length"), layer),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys.size("attention.head_count_kv", heads, layer),
        "head_dim": head_size,
        family.published.activation_key: family.published.activation,
        "max_position_embeddings": _positions(keys),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": keys.tensor("output.weight") is None,
        "dtype": "bfloat16",
        "use_cache": True,
        **family.constants,
        **{name: keys.number(key) for name, key in family.numbers.items() if keys.value(key)},
        **{name: keys.computed(keys.first(choices)) for name, choices in family.sizes.items()},
        **{name: keys.has(part, layers - 1) for name, part in family.has.items()},
        **({"layer_types": [family.kinds[bool(count)] for count in kv_heads]} if family.kinds else {}),
        **_windows(keys, family, layers),
    }
    if "attn_output" in family.biases:
        config["attention_bias"] = keys.tensor("blk.0.attn_q.bias") is not None
    if family.published.experts:
        config |= _expert_config(keys, config)
    special = SPECIAL_CONFIGS.get(family.model_type, _partial_rope if family.is_network else _whole_rope)
    return config | special(keys, family, config)


def _positions(keys: GgufKeys) -> int:
    """The context length; of a model that scales its later queries (Ministral 3), where that begins."""
    trained = keys.size("context_length")
    if not keys.value("attention.temperature_scale"):
        return trained
    return min(trained, keys.size("rope.scaling.original_context_length", trained))


def _windows(keys: GgufKeys, family: _Family, layers: int) -> dict[str, Any]:
    """The sliding window of a family with one, and which layers have it."""
    if not family.window_every:
        return {}
    if not keys.value("attention.sliding_window", family.window):
        return {"sliding_window": None}
    kinds = _layer_types(keys, layers, family.window_every)
    return {"sliding_window": keys.size("attention.sliding_window", family.window), "layer_types": kinds}


def _expert_config(keys: GgufKeys, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "num_experts": keys.size("expert_count"),
        "num_local_experts": keys.size("expert_count"),  # as Mixtral and gpt-oss call it
        "num_experts_per_tok": keys.size("expert_used_count"),
        "moe_intermediate_size": keys.size("expert_feed_forward_length", config["intermediate_size"]),
    }


def _whole_rope(keys: GgufKeys, family: _Family, config: dict[str, Any]) -> dict[str, Any]:
    """RoPE on the whole of each head, where layers with a window may have their own."""
    if keys.size("rope.dimension_count", config["head_dim"]) != config["head_dim"]:
        raise keys.error(f"{keys.architecture} with RoPE on a part of each head is not supported")
    base, sliding = family.published.rope_base, family.published.sliding_rope_base
    if sliding is None:
        return {"rope_parameters": rope_parameters(keys, family.yarn, config["head_dim"])}
    rope = rope_parameters(keys, family.yarn, config["head_dim"], base.default)
    default = rope["rope_theta"] if sliding.key == base.key else sliding.default
    own = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base_swa", default)}
    return {"rope_parameters": {FULL: rope, SLIDING: own}}


def _partial_rope(keys: GgufKeys, family: _Family, config: dict[str, Any]) -> dict[str, Any]:
    """RoPE on the first part of each head, or on the part that MLA keeps apart."""
    rotated = keys.size("rope.dimension_count", config["head_dim"])
    share = rotated / config["head_dim"]
    part = {"partial_rotary_factor": share} if share < 1 else {}
    return {"rope_parameters": rope_parameters(keys, family.yarn, rotated) | part}


def _latent_config(keys: GgufKeys, _family: _Family, config: dict[str, Any]) -> dict[str, Any]:
    """Keys and values are made from a latent, queries not always, and YaRN sharpens attention by a scale of its own."""
    own = "_mla" if keys.value("attention.key_length_mla") else ""  # older files have the sizes of whole heads
    yarn = dict[str, float]()
    if keys.value("rope.scaling.yarn_log_multiplier"):  # a tenth of both scales, which are the same
        scale = round(10 * keys.number("rope.scaling.yarn_log_multiplier"), 6)
        yarn = {"attention_factor": 1.0, "mscale": scale, "mscale_all_dim": scale}
    return {
        "q_lora_rank": keys.count("attention.q_lora_rank") or None,
        "qk_nope_head_dim": keys.computed(f"attention.key_length{own}-rope.dimension_count"),
        "v_head_dim": keys.size(f"attention.value_length{own}"),
        **{key: config[key] or 1 for key in ("n_group", "topk_group")},
        "rope_parameters": rope_parameters(keys, yarn, config["head_dim"]),
    }


def _gemma_config(keys: GgufKeys, family: _Family, config: dict[str, Any]) -> dict[str, Any]:
    """The file does not say the scale of queries: the head size, but with 27B the width of a head's share."""
    is_27b = config["num_hidden_layers"] == LAYERS_OF_27B[family.model_type]
    scalar = config["hidden_size"] // config["num_attention_heads"] if is_27b else config["head_dim"]
    return _whole_rope(keys, family, config) | {"query_pre_attn_scalar": scalar}


def _layer_types(keys: GgufKeys, layers: int, every: int) -> list[str]:
    """Whether each layer has a sliding window: all but every so many, or as the file lists it."""
    listed = keys.value("attention.sliding_window_pattern")
    if isinstance(listed, list) and len(listed) == layers:
        is_sliding = [bool(each) for each in listed]
    else:
        pattern = keys.size("attention.sliding_window_pattern", every)
        is_sliding = [(layer + 1) % pattern != 0 for layer in range(layers)]
    return [SLIDING if each else FULL for each in is_sliding]


def _gemma4_config(keys: GgufKeys, family: _Family, config: dict[str, Any]) -> dict[str, Any]:
    """Layers with full attention have sizes of their own, and the last layers the keys of earlier ones."""
    kinds = config["layer_types"]
    full, local = (kinds.index(kind) if kind in kinds else 0 for kind in (FULL, SLIDING))
    head_size, per_layer = keys.size("attention.key_length_swa"), keys.tensor("per_layer_token_embd.weight")
    if keys.size("rope.dimension_count_swa", head_size) != head_size:
        raise keys.error(f"{keys.architecture} with RoPE on a part of each head is not supported")
    return _whole_rope(keys, family, config) | {
        "head_dim": head_size,
        "global_head_dim": config["head_dim"],
        "num_key_value_heads": keys.size("attention.head_count_kv", layer=local),
        "num_global_key_value_heads": keys.size("attention.head_count_kv", layer=full),
        "attention_k_eq_v": keys.tensor(f"blk.{full}.attn_v.weight") is None,
        "num_kv_shared_layers": keys.count("attention.shared_kv_layers"),
        "use_double_wide_mlp": keys.size("feed_forward_length", layer=-1) == 2 * config["intermediate_size"],
        "hidden_size_per_layer_input": keys.count("embedding_length_per_layer_input"),
        "vocab_size_per_layer_input": per_layer.shape[0] if per_layer is not None else config["vocab_size"],
    }


def _phi3_config(keys: GgufKeys, _family: _Family, config: dict[str, Any]) -> dict[str, Any]:
    head_size = config["hidden_size"] // config["num_attention_heads"]
    share = keys.size("rope.dimension_count", head_size) / head_size
    original = keys.size("rope.scaling.original_context_length", config["max_position_embeddings"])
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": keys.number("rope.freq_base", 10000.0),
        "partial_rotary_factor": share,
    }
    if keys.tensor("rope_factors_long.weight") is not None:
        rope["rope_type"] = "longrope"
        for length in ("short", "long"):
            factors = rope_factors(keys, f"rope_factors_{length}.weight", round(share * head_size) // 2)
            rope[f"{length}_factor"] = factors.tolist()
    special: dict[str, Any] = {"original_max_position_embeddings": original, "rope_parameters": rope}
    if share != 1:
        special["partial_rotary_factor"] = share
    if keys.value("attention.sliding_window"):
        special["sliding_window"] = keys.size("attention.sliding_window")
    return special | {"head_dim": head_size}


def _drafting_tensors(keys: GgufKeys, family: _Family, config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Those of the only layer that drafts; several are left out."""
    if keys.count(DRAFTING_LAYERS) == 1:
        yield from drafting_tensors(config, family.layer_names, keys.file.tensors.__contains__)


def _mapped_tensors(
    keys: GgufKeys, family: _Family, config: dict[str, Any], drafting: Sequence[tuple[str, str]]
) -> Iterator[MappedTensor]:
    """Every tensor of the model, in the order in which it is written, and those of its layer that drafts."""
    used, norms_add_one = set[str](), family.published.scaling(config).norms_add_one
    for gguf_name, name in (*_expected_tensors(keys, family, config), *drafting):
        tensor = keys.required(gguf_name)
        used.add(gguf_name)
        part = gguf_name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]
        if ".linear_attn." in name:
            yield from recurrent_tensors(config, tensor, part, name, are_tiled=family.tiles_heads)
            continue
        if EXPERT in name:
            experts = enumerate(keys.matrices(tensor, config["num_experts"]))
            yield from (MappedTensor(each, name.replace(EXPERT, str(index))) for index, each in experts)
            continue
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(part, 0)
        if family.pairs_rows and heads:
            yield MappedTensor(tensor, name, WeightChange.PAIRED_ROWS, heads)
        elif norms_add_one and part.endswith("norm"):
            yield MappedTensor(tensor, name, WeightChange.PLUS_ONE)
        elif part == "ffn_gate_inp_shexp":  # a vector, or a matrix of one row
            yield MappedTensor(replace(tensor, shape=(1, tensor.shape[-1])), name)
        else:
            yield MappedTensor(tensor, name)
    layers, shapes = config["num_hidden_layers"], enumerate(layer_shapes(config))
    unread_layers = tuple(f"blk.{layer}." for layer in range(layers, layers + keys.count(DRAFTING_LAYERS)))
    unread = {f"blk.{layer}.{part}.weight" for layer, shape in shapes if shape.kv_source is not None for part in KEYS}
    keys.check_unused(used | unread, ("rope_freqs.", "rope_factors_", *unread_layers))


def _expected_tensors(keys: GgufKeys, family: _Family, config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name in the file, and name in the model, of every tensor."""
    yield "token_embd.weight", "model.embed_tokens.weight"
    shapes = layer_shapes(config)
    for layer in range(config["num_hidden_layers"]):
        recurrent = own_tables(__file__)["recurrent"] | family.gates if is_recurrent(config, layer) else {}
        for part, name in recurrent.items():
            yield f"blk.{layer}.{part}", f"model.layers.{layer}.{name}"
        absent = _absent_parts(shapes[layer]) if shapes else ()
        for part, name in family.layer_names.items():
            if part in absent or (recurrent and name.startswith("self_attn.")):
                continue
            yield f"blk.{layer}.{part}.weight", f"model.layers.{layer}.{name}.weight"
            if part in family.biases and keys.tensor(f"blk.{layer}.{part}.bias") is not None:
                yield f"blk.{layer}.{part}.bias", f"model.layers.{layer}.{name}.bias"
        for part, name in family.optional.items():
            if keys.tensor(f"blk.{layer}.{part}") is not None:
                yield f"blk.{layer}.{part}", f"model.layers.{layer}.{name}"
    yield from family.per_layer_input.items() if config.get("hidden_size_per_layer_input") else ()
    yield "output_norm.weight", "model.norm.weight"
    if not config["tie_word_embeddings"]:
        yield "output.weight", "lm_head.weight"


def _absent_parts(shape: LayerShape) -> tuple[str, ...]:
    """Tensors that a layer does not have where keys stand for values, or are those of another layer."""
    return KEYS if shape.kv_source is not None else () if shape.has_values else ("attn_v",)


def _hybrid_config(keys: GgufKeys, family: _Family, config: dict[str, Any]) -> dict[str, Any]:
    """Every so many layers have attention, with RoPE on a part of each head; the others are recurrent."""
    rotated, interval = keys.size("rope.dimension_count"), keys.size("full_attention_interval", 4)
    if rotated > config["head_dim"]:
        raise keys.error(f"{keys.architecture} with RoPE on more than each head is not supported")
    rope = rope_parameters(keys, family.yarn, rotated) | {"partial_rotary_factor": rotated / config["head_dim"]}
    layers = range(1, config["num_hidden_layers"] + 1)
    return {
        "linear_value_head_dim": keys.size("ssm.inner_size") // config["linear_num_value_heads"],
        "layer_types": [RECURRENT if layer % interval else FULL for layer in layers],
        "rope_parameters": rope,
    }


SPECIAL_CONFIGS: Mapping[str, Callable[[GgufKeys, _Family, dict[str, Any]], dict[str, Any]]] = {
    "deepseek_v2": _latent_config,
    "deepseek_v3": _latent_config,
    "gemma2": _gemma_config,
    "gemma3_text": _gemma_config,
    "gemma4_text": _gemma4_config,
    "phi3": _phi3_config,
    "qwen3_5_moe_text": _hybrid_config,
    "qwen3_5_text": _hybrid_config,
}


def map_head(file: GgufFile) -> MappedModel | None:
    """The drafting head in a file of its own, with its config; None for a file with a model."""
    keys = GgufKeys(file, str(file.metadata.get("general.architecture")))
    table = own_tables(__file__)["heads"].get(keys.architecture)
    if table is None:
        return None
    family = _Family(table["model_type"], table["class_name"])
    heads, width = keys.size("attention.head_count"), keys.size("embedding_length")
    head_size = keys.size("attention.key_length", max(width // heads, 1))
    config = {
        "architectures": [family.class_name],
        "model_type": family.model_type,
        "vocab_size": keys.size("vocab_size", len(file.metadata.get("tokenizer.ggml.tokens") or ())),
        "hidden_size": width,
        "num_hidden_layers": keys.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.size("attention.head_count_kv", heads),
        "head_dim": head_size,
        "max_position_embeddings": keys.size("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_parameters": rope_parameters(keys, family.yarn, head_size),
        **_windows(keys, replace(family, window_every=1), keys.size("block_count")),
        **{name: value for key, name in table["values"].items() if (value := keys.value(key)) is not None},
        table["layers_key"]: [layer - table["first_layer"] for layer in keys.value("target_layers") or ()],
        "mask_token_id": file.metadata.get("tokenizer.ggml.mask_token_id"),
    }
    return MappedModel(config, tuple(_head_tensors(keys, table, config)))


def _head_tensors(keys: GgufKeys, table: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[MappedTensor]:
    """Those that are there; what must be there is known by the format of the head."""
    paired = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for stored, tensor in keys.file.tensors.items():
        name = stored.removesuffix(".weight")
        if name == "d2t":
            yield MappedTensor(tensor, "d2t", WeightChange.IDS)
        elif name in table["names"]:
            yield MappedTensor(tensor, f"{table['names'][name]}.weight")
        elif (part := name.split(".", 2)[-1]) in table["layer"]:
            change, heads = WeightChange.NONE, 0
            if table["pairs_rows"] and part in paired:
                change, heads = WeightChange.PAIRED_ROWS, paired[part]
            layer = table["layers"].format(name.split(".")[1])
            yield MappedTensor(tensor, f"{layer}.{table['layer'][part]}.weight", change, heads)
        elif name != "rope_freqs":
            raise keys.error(f"a head of {keys.architecture} with the tensor {stored} is not supported")
