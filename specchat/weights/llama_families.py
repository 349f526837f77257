"""The families that `forward.llama.llama` computes, as data: how the config and the tensors of each mean its network.

`llama_families.toml` says in what a family differs from Llama, and `family_defaults.toml` what published configs leave
out. Plans of memory ask which families there are, so that nothing here imports torch. Knows names and numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from specchat.devices import DeviceKind
from specchat.forward.llama.variations import OTHER_NETWORK, SILU, LayerShape, Scaling
from specchat.own_tables import own_tables

Config = Mapping[str, Any]
LayerRule = Callable[[Config, int], bool]
SLIDING, FULL, RECURRENT = "sliding_attention", "full_attention", "linear_attention"
# Vision-language checkpoints whose text part is one of the families; images are not read.
COMPOSITE_TYPES = ("gemma3", "gemma4", "gemma4_unified", "mistral3", "qwen3_5", "qwen3_5_moe")
OUTER_KEYS = ("dtype", "torch_dtype", "quantization_config", "tie_word_embeddings")  # may stand beside the text part
TEXT_PREFIXES = {
    "language_model.model.": "model.", "model.language_model.": "model.", "language_model.lm_head.": "lm_head.",
    "lm_head.": "lm_head.",
}  # fmt: skip
GEMMA4_GLOBAL_HEAD_SIZE = 512  # of a config that leaves it out
LAYER_SCALAR = "layer_scalar"  # without `.weight`


@dataclass(frozen=True)
class PerLayerNames:
    """Tensors of per-layer embeddings: those of the network, then those of a layer without its prefix."""

    embedding: str = "model.embed_tokens_per_layer"
    model_projection: str = "model.per_layer_model_projection"
    norm: str = "model.per_layer_projection_norm"
    gate: str = "per_layer_input_gate"
    projection: str = "per_layer_projection"
    output_norm: str = "post_per_layer_input_norm"


PER_LAYER = PerLayerNames()


@dataclass(frozen=True)
class LayerNames:
    """Tensors of a decoder layer, without the prefix of the layer and without `.weight`. None: there is no such norm.

    Linear layers that are computed as one matmul stand together; some families publish them as one tensor.
    """

    input_norm: str | None = "input_layernorm"
    attention_output_norm: str | None = None
    mlp_norm: str | None = "post_attention_layernorm"
    mlp_output_norm: str | None = None
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    delta_qkvz: tuple[str, ...] = ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z")  # of recurrent layers
    delta_ba: tuple[str, ...] = ("linear_attn.in_proj_b", "linear_attn.in_proj_a")

    @property
    def norms(self) -> tuple[str, ...]:
        norms = (self.input_norm, self.attention_output_norm, self.mlp_norm, self.mlp_output_norm)
        return tuple(norm for norm in norms if norm is not None)

    def qkv_of(self, shape: LayerShape) -> tuple[str, ...]:
        """The linear layers of queries, keys and values; keys may stand for values, or be those of another layer."""
        if shape.kv_source is not None:
            return self.qkv[:1]
        return self.qkv if shape.has_values else (*self.qkv[:2], self.qkv[1])


@dataclass(frozen=True)
class ExpertNames:
    """Tensors of a mixture of experts, without the prefix of the layer and without `.weight`; see `moe_weights`."""

    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    gate_up: tuple[str, str] = ("gate_proj", "up_proj")  # of an expert
    down: str = "down_proj"
    shared: str | None = None  # with `_gate` after it, what its output is multiplied with
    has_gpt_oss_stacks: bool = False  # [E, in, out], where the outputs of gate and up alternate, and biases


def _always(_config: Config, _layer: int) -> bool:
    return True


def _all_but_every(count: int, config: Config, layer: int) -> bool:
    return (layer + 1) % int(config.get("sliding_window_pattern") or count) != 0


def _has_window_in_gemma4(config: Config, layer: int) -> bool:
    return layer + 1 < config["num_hidden_layers"] and _all_but_every(6, config, layer)


def _has_window_in_qwen(config: Config, layer: int) -> bool:
    return bool(config.get("use_sliding_window")) and layer >= config.get("max_window_layers", 28)


def _has_rope_in_smollm3(config: Config, layer: int) -> bool:
    if listed := config.get("no_rope_layers"):  # 1 for a layer with RoPE, against the name
        return bool(listed[layer])
    return _all_but_every(config.get("no_rope_layer_interval", 4), {}, layer)


def _has_rope_in_exaone4(config: Config, layer: int) -> bool:
    return not config.get("sliding_window") or sliding_window(config, layer) is not None


def _has_window_if_used(config: Config, _layer: int) -> bool:
    return bool(config.get("use_sliding_window"))


def _has_window_in_qwen2_moe(config: Config, layer: int) -> bool:
    return layer % 2 == 0 and layer < config.get("max_window_layers", 28) and _has_window_if_used(config, layer)


def _has_experts_in_qwen(config: Config, layer: int) -> bool:
    return layer not in (config.get("mlp_only_layers") or ()) and (layer + 1) % config["decoder_sparse_step"] == 0


def _gemma4_layer_shapes(config: Config, kinds: Sequence[str]) -> tuple[LayerShape, ...]:
    """The shape of each layer; `kinds` as `layer_types`. The config is the published one, or one of transformers.

    Full attention has heads of another size than attention with a sliding window, and the last layers read the keys and
    values of an earlier layer of their kind.
    """
    own = len(kinds) - int(config.get("num_kv_shared_layers") or 0)
    return tuple(_gemma4_layer_shape(config, kinds, layer, own) for layer in range(len(kinds)))


def _gemma4_layer_shape(config: Config, kinds: Sequence[str], layer: int, own: int) -> LayerShape:
    kind, is_shared = kinds[layer], layer >= own
    sources = [index for index in range(max(own, 0)) if kinds[index] == kind]
    given = _gemma4_attention_sizes(config, kind, layer)
    return LayerShape(
        kv_heads=given.get("num_key_value_heads") or config["num_key_value_heads"],
        head_size=given.get("head_dim") or config["head_dim"],
        intermediate_size=config["intermediate_size"] * (2 if is_shared and config.get("use_double_wide_mlp") else 1),
        kv_source=(sources or [OTHER_NETWORK])[-1] if is_shared else None,
        has_values=not config.get("attention_k_eq_v") or kind != FULL,
        normalizes_values=True,
    )


def _gemma4_attention_sizes(config: Config, kind: str, layer: int) -> Config:
    """The sizes in which a layer differs from those of the whole network."""
    if (by_layer := config.get("per_layer_config")) is not None:
        return by_layer.get(str(layer)) or {}
    if kind != FULL:
        return {}
    kv_heads = config.get("num_global_key_value_heads") if config.get("attention_k_eq_v") else None
    return {"head_dim": config.get("global_head_dim") or GEMMA4_GLOBAL_HEAD_SIZE, "num_key_value_heads": kv_heads}


def _gemma_scaling(config: Config) -> Scaling:
    scalar = config.get("query_pre_attn_scalar")
    return Scaling(
        norms_add_one=True,
        embeddings=config["hidden_size"] ** 0.5,
        attention=scalar**-0.5 if scalar else None,
        attention_cap=config.get("attn_logit_softcapping"),
        logit_cap=config.get("final_logit_softcapping"),
    )


def _gemma4_scaling(config: Config) -> Scaling:
    return Scaling(
        embeddings=config["hidden_size"] ** 0.5, attention=1.0, logit_cap=config.get("final_logit_softcapping")
    )


def _added_one_scaling(_config: Config) -> Scaling:
    return Scaling(norms_add_one=True)


def _granite_scaling(config: Config) -> Scaling:
    return Scaling(
        embeddings=config.get("embedding_multiplier", 1.0),
        attention=config.get("attention_multiplier", 1.0),
        residual=config.get("residual_multiplier", 1.0),
        logits=1 / config.get("logits_scaling", 1.0),
    )


@dataclass(frozen=True)
class RopeBase:
    """Where a config without `rope_parameters` has the base of the rotary embeddings."""

    key: str = "rope_theta"
    default: float = 10000.0


@dataclass(frozen=True)
class Family:
    """What is peculiar to the models of a `model_type`: a table of `llama_families.toml`."""

    names: LayerNames = LayerNames()
    activation: Literal["silu", "gelu_pytorch_tanh"] = SILU
    activation_key: str = "hidden_act"
    has_wide_qk_norms: bool = False  # over all heads together
    has_output_gate: bool = False  # q_proj has a gate after the query of each head
    rotary_share: float = 1.0  # of a head, where a config does not say it
    scaling: Callable[[Config], Scaling] = lambda _config: Scaling()
    layer_shapes: Callable[[Config, Sequence[str]], tuple[LayerShape, ...]] = lambda *_: ()  # none: all are equal
    has_window: LayerRule = _always  # in a config with a sliding window and without `layer_types`
    has_rope: LayerRule = _always
    rope_base: RopeBase = RopeBase()
    has_sinks: bool = False  # a learned score of each attention head
    experts: ExpertNames | None = None  # of families whose MLP is a mixture of experts
    has_experts: LayerRule = _always  # in such a family; other layers have one MLP
    expert_size_key: str = "intermediate_size"
    sliding_rope_base: RopeBase | None = None  # of layers with a window, where they have rotary embeddings of their own


_RULES: Mapping[str, Callable[..., Any]] = {
    rule.__name__.removeprefix("_"): rule
    for rule in (
        _gemma_scaling, _gemma4_scaling, _granite_scaling, _added_one_scaling, _gemma4_layer_shapes,
        _has_window_in_gemma4, _has_window_in_qwen, _has_window_if_used, _has_window_in_qwen2_moe,
        _has_rope_in_smollm3, _has_rope_in_exaone4, _has_experts_in_qwen,
    )
}  # fmt: skip
_PARTS = dict[str, type[Any]](names=LayerNames, experts=ExpertNames, rope_base=RopeBase, sliding_rope_base=RopeBase)


def _read_families() -> Mapping[str, Family]:
    families = dict[str, dict[str, Any]]()
    for name, table in own_tables(__file__).items():
        others = families[table["like"]] if "like" in table else {}
        families[name] = others | {key: _field(key, value) for key, value in table.items() if key != "like"}
    return {name: Family(**fields) for name, fields in families.items()}


def _field(name: str, value: Any) -> Any:
    """The value of a field as `Family` has it."""
    if name in _PARTS:
        items = ((key, tuple(each) if isinstance(each, list) else each or None) for key, each in value.items())
        return _PARTS[name](**dict(items))
    return partial(_all_but_every, value) if type(value) is int else _RULES.get(value, value)


FAMILIES = _read_families()
HYBRID_FAMILIES = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")  # their recurrent layers need kernels of ours
LLAMA_LIKE_FAMILIES = tuple(FAMILIES)
TORCH_FAMILIES = tuple(name for name in FAMILIES if name not in HYBRID_FAMILIES)


def own_families(kind: DeviceKind) -> tuple[str, ...]:
    """Those that our own passes compute on a kind of device."""
    return LLAMA_LIKE_FAMILIES if kind.has_kernels or not kind.is_gpu else TORCH_FAMILIES


def network_config(config: Config) -> dict[str, Any]:
    """The config of the network: of a vision-language checkpoint its text part, with the defaults of its family."""
    if config.get("model_type") in COMPOSITE_TYPES:
        outer = {key: config[key] for key in OUTER_KEYS if key in config}
        config = outer | {"model_type": f"{config['model_type']}_text"} | (config.get("text_config") or {})
    return {**own_tables(__file__, "family_defaults.toml").get(str(config.get("model_type")), {}), **config}


def expert_count(config: Config) -> int | None:
    """The experts of a layer; None for a config without."""
    return config.get("num_experts") or config.get("num_local_experts")


def has_experts(config: Config, layer: int) -> bool:
    """Whether the MLP of a layer is a mixture of experts."""
    family = FAMILIES[config["model_type"]]
    return family.experts is not None and family.has_experts(config, layer)


def published_names(names: list[str]) -> dict[str, str]:
    """The tensors of the text part of a vision-language checkpoint: {name in its own model: name in the file}."""
    return {
        f"{own}{name.removeprefix(prefix)}": name
        for name in names
        for prefix, own in TEXT_PREFIXES.items()
        if name.startswith(prefix)
    }


def sliding_window(config: Config, layer: int) -> int | None:
    """The sliding window of a layer; None for full attention."""
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return None
    if kinds := config.get("layer_types"):
        return config["sliding_window"] if kinds[layer] == SLIDING else None
    return config["sliding_window"] if FAMILIES[config["model_type"]].has_window(config, layer) else None


def layer_shapes(config: Config) -> tuple[LayerShape, ...]:
    """The shape of each layer of a family whose layers differ; none where all are equal."""
    layers = range(config["num_hidden_layers"])
    kinds = [FULL if sliding_window(config, layer) is None else SLIDING for layer in layers]
    return FAMILIES[config["model_type"]].layer_shapes(config, kinds)


def is_recurrent(config: Config, layer: int) -> bool:
    """Whether a layer has a state instead of keys and values."""
    if config["model_type"] not in HYBRID_FAMILIES:
        return False
    if kinds := config.get("layer_types"):
        return kinds[layer] == RECURRENT
    return (layer + 1) % config["full_attention_interval"] != 0


def rope_config(config: Config, layer: int) -> Config | None:
    """The rotary embeddings of a layer, as `Rope.from_config` reads them; None for a layer without."""
    family = FAMILIES[config["model_type"]]
    if not family.has_rope(config, layer):
        return None
    has_own = family.sliding_rope_base is not None and sliding_window(config, layer) is not None
    base = family.sliding_rope_base if has_own and family.sliding_rope_base else family.rope_base
    settings = config.get("rope_parameters") or (None if has_own else config.get("rope_scaling")) or {}
    if FULL in settings or SLIDING in settings:
        settings = settings.get(SLIDING if has_own else FULL) or {}
    return {
        "rope_theta": config.get(base.key) or base.default,
        "rope_parameters": settings,
        "partial_rotary_factor": config.get("partial_rotary_factor") or family.rotary_share,
    }
