"""The target that a head is trained for: loaded once, never trained; gives answers and hidden states.

Hidden states come from the engine's forward passes, so training sees the same values as drafting.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specchat.chat.prompt import build_next_prompt
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.llama.rope import Rope
from specchat.hub.find_models import find_model
from specchat.text.tokenizer import Tokenizer
from specchat.weights.llama_families import FAMILIES, network_config
from specchat.weights.llama_weights import is_llama_like, tensor_files
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_train.fingerprint import fingerprint
from specchat_train.trainable_llama import ModelShape
from specchat_train.training_prompts import TrainingPrompt
from specchat_train.write_answer import DRAFT_BUDGET, GeneratedAnswer, generate_answer

MAX_HEAD_CONTEXT = 2048  # of a new head
ATTENTION_LAYER_TYPES = ("full_attention", "sliding_attention")
REQUIRED_CONFIG_KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


class FrozenTarget:
    def __init__(self, source: str, loading: LoadOptions, system: str = "") -> None:
        """ModelError for a target that heads do not support."""
        self.source, self.folder, self.system_prompt = source, find_model(source), system
        self.config = read_config(self.folder)
        self.shape = head_shape(self.config, source)
        self.fingerprint = fingerprint(self.folder)
        self.tokenizer = Tokenizer(self.folder)
        self.model: Model = load_model(self.folder, loading)

    @property
    def device(self) -> torch.device:
        return self.model.pool.layout.device

    def prompt_tokens(self, prompt: TrainingPrompt) -> list[int]:
        return build_next_prompt(self.tokenizer, self.system_prompt, prompt.previous_turns, prompt.request).token_ids

    def generate(self, prompt: list[int], max_tokens: int, drafter: Drafter | None = None) -> GeneratedAnswer:
        """A greedy answer, with a new drafter; suffix decoding by default."""
        drafter = drafter or SuffixDecoding()
        plan = GenerationConfig(drafter, Sampler(), DRAFT_BUDGET, max_tokens, self.tokenizer.stop_token_ids)
        return self.generate_with_plan(plan, prompt)

    def generate_with_plan(self, plan: GenerationConfig, prompt: list[int]) -> GeneratedAnswer:
        return generate_answer(self.model, plan, prompt)

    def hidden_states(self, tokens: Sequence[int], hidden_state_layers: tuple[int, ...]) -> Tensor:
        """The hidden states of a text at these layers, side by side. [L, layers * D]"""
        self.model.set_hidden_state_layers(hidden_state_layers)
        cache, states = self.model.pool.open(), list[Tensor]()
        try:
            with torch.inference_mode(), self.model.pool.acquire_slot(cache, len(tokens)):
                for start in range(0, len(tokens), self.model.prefill_chunk):
                    chunk = list(tokens[start : start + self.model.prefill_chunk])
                    hidden_states = self.model.prefill(chunk, cache).hidden_states
                    if hidden_states is None:
                        raise ModelError(
                            f"{self.source}: it does not provide hidden states, so heads are not supported"
                        )
                    states.append(hidden_states)
            return torch.cat(states)
        finally:
            self.model.pool.close(cache)

    @cached_property
    def embedding_weight(self) -> Tensor:
        """The input embeddings as the first layer reads them [V, D]."""
        ids = torch.arange(self.model.vocab_size, device=self.device)
        return torch.cat([self.model.embed(chunk) for chunk in ids.split(8192)]).clone()

    @cached_property
    def lm_head_weight(self) -> Tensor:
        """The output matrix [V, D], computed as the logits of unit vectors."""
        layout = self.model.pool.layout
        unit_vectors = torch.eye(self.shape.hidden_size, dtype=layout.dtype, device=layout.device)
        return torch.cat([self.model.compute_logits(chunk) for chunk in unit_vectors.split(256)]).T.clone()

    @cached_property
    def final_norm_weight(self) -> Tensor | None:
        """What the final norm multiplies with [D]; None for families that are not in our own passes."""
        if not is_llama_like(self.config):
            return None
        files, config = tensor_files(self.folder, self.config), network_config(self.config)
        if "model.norm.weight" not in files:
            return None
        stored_minus = float(FAMILIES[config["model_type"]].scaling(config).norms_add_one)
        return files.read_tensor("model.norm.weight").float() + stored_minus


def read_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def head_shape(config: Mapping[str, Any], source: str) -> ModelShape:
    """The sizes of a new head for this target. ModelError for unsupported targets.

    A head has keys for every query head (no grouped-query attention), even if the target has fewer.
    """
    kind = config.get("model_type", "an unnamed family")
    if missing := [name for name in REQUIRED_CONFIG_KEYS if not isinstance(config.get(name), int)]:
        raise ModelError(f"{source}: heads do not support {kind}: its config.json has no {', '.join(missing)}")
    rope = Rope.from_config(config)
    if not rope.is_supported or rope.partial_rotary_factor != 1.0:
        raise ModelError(f"{source}: heads do not support {kind}: it has an unsupported RoPE type")
    if any(layer not in ATTENTION_LAYER_TYPES for layer in config.get("layer_types") or ()):
        raise ModelError(f"{source}: heads do not support {kind}: it has recurrent layers")
    heads = config["num_attention_heads"]
    return ModelShape(
        layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        num_heads=heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        intermediate_size=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        max_positions=min(config.get("max_position_embeddings") or MAX_HEAD_CONTEXT, MAX_HEAD_CONTEXT),
        rope_theta=rope.theta,
        rms_norm_eps=config.get("rms_norm_eps") or 1e-6,
    )
