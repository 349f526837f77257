"""Tiny random networks of every supported architecture, and drafters that try to break the engine."""

from __future__ import annotations

import json
import random
import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

import torch

from specchat.chat.session import Session
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.loading.load_engine import Engine
from specchat.profile.keys import Profile
from specchat.weights.llama_weights import load_llama
from tests.recorder import recorded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VOCABULARY = 96
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "pad_token_id": 0,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 32768,
    "initializer_range": 0.25, "eos_token_id": 0,
}  # fmt: skip
GRAPHED_CONTEXT = 2048  # tokens: simulated graphs attend to all rows of the KV arena
_FOLDER = TemporaryDirectory(prefix="specchat-tiny-")
SHAPES = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "mistral": ("Mistral", {"sliding_window": 24}),
    "gemma2": ("Gemma2", {"sliding_window": 24, "query_pre_attn_scalar": 12}),
    "gemma3": ("Gemma3Text", {"sliding_window": 24, "sliding_window_pattern": 2, "query_pre_attn_scalar": 12}),
}
# Variations of Llama that our own passes compute; with every number that the family multiplies with, and a window.
_SMOLLM3 = {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 24}
_GRANITE = {
    "embedding_multiplier": 6.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 3.0,
    "attention_bias": True,
}  # fmt: skip
_GEMMA4 = {  # its last layers read the keys and values of the second and the third
    "num_hidden_layers": 5, "num_kv_shared_layers": 2, "sliding_window": 24, "global_head_dim": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": VOCABULARY, "use_double_wide_mlp": True,
    "final_logit_softcapping": 5.0,
}  # fmt: skip
_GEMMA4_UNIFIED = {
    "layer_types": ["sliding_attention", "full_attention", "full_attention"], "sliding_window": 24,
    "global_head_dim": 20, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
}  # fmt: skip
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": True}
_SHARED_EXPERTS = _EXPERTS | {"moe_intermediate_size": 40, "shared_expert_intermediate_size": 56}
_YARN = {
    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
_DELTA = {
    "head_dim": 16, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 12, "linear_value_head_dim": 40,
}  # fmt: skip
HYBRIDS = {
    "qwen3_5": ("Qwen3_5Text", {}),
    "qwen3_next": ("Qwen3Next", _SHARED_EXPERTS | {"mlp_only_layers": [1]}),
    "qwen3_5_moe": ("Qwen3_5MoeText", _SHARED_EXPERTS),
}
_GPT_OSS = {
    "num_local_experts": 6, "sliding_window": 24, "swiglu_limit": 1.5, "rope_parameters": _YARN,
    "hidden_size": 64, "intermediate_size": 128,  # whole blocks of MXFP4 and NF4
}  # fmt: skip
VARIATIONS = {
    "gemma": ("Gemma", {"tie_word_embeddings": False}),
    "gemma4": ("Gemma4Text", _GEMMA4),
    "gemma4_unified": ("Gemma4UnifiedText", _GEMMA4_UNIFIED),
    "granite": ("Granite", _GRANITE),
    "phi3": ("Phi3", {"sliding_window": 24}),
    "olmo2": ("Olmo2", {}),
    "olmo3": ("Olmo3", {"sliding_window": 24}),
    "smollm3": ("SmolLM3", _SMOLLM3),
    "exaone4": ("Exaone4", {"sliding_window": 24, "sliding_window_pattern": 2}),
    "seed_oss": ("SeedOss", {}),
    "ministral": ("Ministral", {"sliding_window": 24}),
    "qwen3_moe": ("Qwen3Moe", _EXPERTS | {"moe_intermediate_size": 40, "mlp_only_layers": [1]}),
    "mixtral": ("Mixtral", {"num_local_experts": 6}),
    "qwen2_moe": ("Qwen2Moe", _SHARED_EXPERTS),
    "olmoe": ("Olmoe", _EXPERTS),
    "gpt_oss": ("GptOss", _GPT_OSS),
    **{name: (family, _DELTA | extra) for name, (family, extra) in HYBRIDS.items()},
}
OTHERS = {"cohere": ("Cohere", {})}  # computed by transformers


@lru_cache
def network(
    shape: str, layers: int = 3, seed: int = 1, dtype: torch.dtype = torch.float32, vocabulary: int = VOCABULARY,
    device: str = "cpu",
) -> PreTrainedModel:  # fmt: skip
    """A random network; the same one for the same arguments."""
    import transformers

    family, extra = (SHAPES | VARIATIONS | OTHERS)[shape]
    torch.manual_seed(seed)
    sizes = {"num_hidden_layers": layers, "vocab_size": vocabulary}
    config = getattr(transformers, f"{family}Config")(**(SIZES | sizes | extra))
    model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config)
    if shape in VARIATIONS:
        for name, weights in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith(("norm.weight", "bias", "sinks", "layer_scalar")):
                torch.nn.init.normal_(weights, mean=float(weights.data.mean()), std=0.2)
    return model.to(device, dtype).eval()


def target(
    shape: str = "llama", exact: bool = False, dtype: torch.dtype = torch.float32, device: str = "cpu", *,
    has_int8_kv: bool = False,
) -> Model:  # fmt: skip
    """An engine model of a random network; its small prefill chunks test chunking.

    `dense-llama` is the network of `llama` in our own passes, `graphs-llama` in passes laid out for recordings.
    """
    from specchat.forward.transformers.transformers_model import TransformersModel

    passes = BatchLimits(prefill_chunk=16, max_rows=32, exact=exact)
    if shape.startswith(("dense-", "graphs-")):
        kind, _, family = shape.partition("-")
        context_window = GRAPHED_CONTEXT if kind == "graphs" or device == "cuda" else None
        if kind == "dense":
            return load_llama(
                saved(family), dtype, torch.device(device), context_window, passes, has_int8_kv=has_int8_kv
            )
        with patch("specchat.forward.linear.linear.linear_kernel", return_value=None):  # what cannot be recorded
            return load_llama(saved(family), dtype, torch.device(device), context_window, passes, recorded)
    return TransformersModel(network(shape, dtype=dtype, device=device), limits=passes)


@lru_cache
def saved(shape: str) -> Path:
    """The folder of a random network, as a hub stores it."""
    folder = Path(_FOLDER.name, shape)
    network(shape).save_pretrained(folder)
    return folder


def small(shape: str = "llama") -> Model:
    """A smaller network with the same vocabulary, which rarely agrees with the target."""
    from specchat.forward.transformers.transformers_model import TransformersModel

    family = shape.rsplit("-", maxsplit=1)[-1]
    family = "llama" if family in HYBRIDS else family  # one layer cannot be of both kinds
    return TransformersModel(network(family, layers=1, seed=2), limits=BatchLimits(prefill_chunk=16))


class Chaos(Drafter):
    """Drafts random trees, which must not change the text."""

    name = "chaos"

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)

    def propose(self, context: DraftContext) -> DraftTree:
        """Up to `max_draft_tokens` random nodes under random parents, sometimes with tokens of the text."""
        tree = DraftTree(context.tokens[-1])
        for _ in range(self.random.randint(0, context.max_draft_tokens)):
            token = self.random.choice([self.random.randrange(VOCABULARY), self.random.choice(context.tokens)])
            tree.add(token, self.random.randrange(len(tree)), self.name)
        return tree


def session_drafted_by(engine: Engine, variant: str) -> Session:
    """A session in which `auto` is this drafter: one of the engine's, chaos, or self, which drafts with the target."""
    session = engine.create_session()
    chaos, perfect = Chaos(7), DraftModelDrafter(engine.models.target)
    perfect.name = "self"
    session.generation.drafters = (*session.generation.drafters, chaos, perfect)
    session.drafters = {**session.drafters, "chaos": chaos, "self": perfect}
    session.drafters = {**session.drafters, "auto": session.drafters[variant]}
    return session


class FirstOf(Drafter):
    """The first drafter that proposes anything."""

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters, self.name = drafters, " else ".join(drafter.name for drafter in drafters)

    def propose(self, context: DraftContext) -> DraftTree:
        """The first tree that is not a bare root, or a bare root."""
        trees = (drafter.propose(context) for drafter in self.drafters)
        return next((tree for tree in trees if len(tree) > 1), DraftTree(context.tokens[-1]))

    def observe(self, outcome: Outcome) -> None:
        for drafter in self.drafters:
            drafter.observe(outcome)

    def forget(self, length: int) -> None:
        for drafter in self.drafters:
            drafter.forget(length)


def write(writing: Generation, plan: GenerationConfig) -> list[Step]:
    """Prefill and decode one answer."""
    with writing.target.pool.acquire_slot(writing.cache, writing.rows_needed(plan.max_new_tokens)):
        for _known in writing.prefill():
            pass
        return list(writing.decode(plan))


def answer(model: Model, drafter: Drafter, prompt: list[int], sampler: Sampler, limit: int = 40) -> list[int]:
    """The tokens that follow a prompt."""
    writing = Generation(model, (drafter,))
    writing.replace_tokens(prompt)
    write(writing, GenerationConfig(drafter, sampler, max_draft_tokens=8, max_new_tokens=limit))
    return writing.tokens[len(prompt) :]


SPEAKING = 264  # 256 bytes, the control tokens, and padding rows
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


MARKERS = ["<think>", "</think>"]
THINKING_TEMPLATE = (  # as Qwen3's: a switch, the thought opened by the prompt, and earlier thoughts dropped
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{{ message['content'].split('</think>')[-1].lstrip() if message.role == 'assistant' else message['content'] }}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>"
    "{{ '<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and not enable_thinking else '<think>\\n' }}"
    "{% endif %}"
)
HERMES_TEMPLATE = (  # as Qwen's: tools in the system prompt, results in a message of the user
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<tool_call> {} </tool_call><|end|>"
    "{% endif %}{% for m in messages %}"
    "{% if m.role == 'tool' %}<|user|><tool_response>\n{{ m.content }}\n</tool_response><|end|>"
    "{% else %}<|{{ m.role }}|>{{ m.content }}{% for call in m.tool_calls or [] %}"
    '\n<tool_call>\n{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LLAMA_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}<|user|>{{ m.content | tojson }}<|end|>"
    "{% elif m.tool_calls %}<|assistant|>{% for call in m.tool_calls %}"
    '{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}{% endfor %}<|end|>'
    "{% else %}<|{{ m.role }}|>{% if tools and loop.first %}{{ tools | tojson }}\n\n{% endif %}{{ m.content }}<|end|>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
KEEPING_TEMPLATE = TEMPLATE.replace("<|assistant|>{% endif", "<|assistant|><think>\n{% endif") + "{# </think> #}"


@lru_cache
def thinking(template: str = THINKING_TEMPLATE, layers: int = 2, seed: int = 1, *, has_tokens: bool = True) -> Path:
    """The folder of a random network like `speaking` that thinks; without tokens, it spells the markers in bytes."""
    from tokenizers import Tokenizer

    name = f"thinking-{layers}-{seed}-{sum(map(ord, template))}-{has_tokens}"
    folder = Path(_FOLDER.name, name)
    if folder.exists():  # the same values, given in another way
        return folder
    shutil.copytree(speaking(layers, seed), folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens(MARKERS if has_tokens else [])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@lru_cache
def calling(template: str, *tokens: str) -> Path:
    """The folder of a random network like `speaking` whose template has tools, and these added tokens."""
    from tokenizers import Tokenizer

    folder = Path(_FOLDER.name, f"calling-{sum(map(ord, template))}-{len(tokens)}")
    shutil.copytree(speaking(), folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens(list(tokens))
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def tiny_profile() -> Profile:
    """`speaking` without a draft model."""
    return Profile().override({"models.target": str(speaking()), "models.draft": ""})


@lru_cache
def speaking(layers: int = 2, seed: int = 1, shape: str = "llama") -> Path:
    """The folder of a random network with a byte tokenizer, as a hub stores it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    folder = Path(_FOLDER.name, f"speaking-{shape}-{layers}-{seed}")
    network(shape, layers, seed, vocabulary=SPEAKING).save_pretrained(folder)
    control = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    pieces = [*control, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(piece, special=True) for piece in control])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))
    return folder
