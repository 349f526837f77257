"""The assistants of Gemma 4 (`gemma4_assistant` of transformers): a few layers that read the target's keys and values.

`pre_projection` joins the target's embedding of a token and a hidden state, `model.layers.{i}` are layers of Gemma 4
without keys and values, and `post_projection` makes the hidden state for the next token. With `masked_embedding.*` only
the tokens of the best centroids are scored.
"""

from specchat.drafters.heads.assistant_head import AssistantHead
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint, require_tensors
from specchat.drafters.heads.spec import ASSISTANT, AssistantConfig, HeadDimensions, HeadSpec
from specchat.engine.model import FINAL_NORM
from specchat.errors import ModelError
from specchat.forward.rope import Rope
from specchat.weights.llama_families import network_config, rope_config, sliding_window
from specchat.weights.tensor_files import TensorFiles

NAMES = {
    "pre_projection.": "join.",
    "post_projection.": "feedback.",
    "lm_head.": "lm_head.",
    "model.embed_tokens.": "lm_head.",  # tied
    "model.layers.": "layers.",
    "model.norm.": "norm.",
    "masked_embedding.": "",
}
TEXT_TYPES = ("gemma4_text", "gemma4_unified_text")
PROJECTIONS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
NORMS = (
    "self_attn.q_norm", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)  # fmt: skip
DEFAULT_CENTROIDS = 32  # scored for a token, of a config that leaves it out


def detect_assistant(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """A small decoder between two projections, or the name of one in the config."""
    kind = str(checkpoint.config.get("model_type") or "")
    if "pre_projection.weight" not in checkpoint.tensors and not kind.endswith("_assistant"):
        return None
    text_type = checkpoint.text_config.get("model_type")
    if text_type not in TEXT_TYPES:
        evidence, reason = (f"model_type is {kind}",), f"an assistant with layers of {text_type}"
        return HeadSpec(ASSISTANT, f"{kind} of transformers", checkpoint.tensors, evidence, unsupported_reason=reason)
    config, tensors = network_config(checkpoint.text_config), checkpoint.with_canonical_names(NAMES)
    layers = range(int(config["num_hidden_layers"]))
    _check_tensors(tensors, len(layers))
    vocab_size, hidden_size = tensors.shape("lm_head.weight")
    target_hidden_size = tensors.shape("feedback.weight")[0]
    ropes = tuple(Rope.from_config(rope_config(config, layer) or {}) for layer in layers)
    has_centroids = "centroids.weight" in tensors
    centroids = int(checkpoint.config.get("centroid_intermediate_top_k") or DEFAULT_CENTROIDS) if has_centroids else 0
    evidence = f"{len(layers)} layers without keys between pre_projection and post_projection, {hidden_size} numbers"
    return HeadSpec(
        kind=ASSISTANT,
        network=AssistantHead,
        uses_target_tables=False,
        format="Gemma 4 assistant",
        tensors=tensors,
        evidence=(evidence, *((f"it scores the tokens of {centroids} centroids",) if centroids else ())),
        dimensions=HeadDimensions(
            hidden_size,
            heads=int(config["num_attention_heads"]),
            kv_heads=1,  # of its target
            head_size=0,  # another one in layers with full attention
            layers=len(layers),
            epsilon=float(config.get("rms_norm_eps", 1e-6)),
            sliding_windows=tuple(sliding_window(config, layer) for layer in layers),
        ),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=target_hidden_size,
        target_vocab_size=vocab_size,
        draft_vocab_size=vocab_size,
        context_window=int(config["max_position_embeddings"]),
        assistant_config=AssistantConfig(ropes, centroids),
    )


def _check_tensors(tensors: TensorFiles, layers: int) -> None:
    """ModelError when a tensor is missing, or a projection between target and head has another size."""
    parts = [f"layers.{layer}.{part}.weight" for layer in range(layers) for part in (*PROJECTIONS, *NORMS)]
    require_tensors(tensors, ["join.weight", "feedback.weight", "lm_head.weight", "norm.weight", *parts])
    target_size, hidden_size = tensors.shape("feedback.weight")
    for name, expected in (("join.weight", (hidden_size, 2 * target_size)), ("norm.weight", (hidden_size,))):
        if (actual := tensors.shape(name)) != expected:
            raise ModelError(f"{tensors.source}: {name} {list(actual)} should be {list(expected)}")
