"""Writes a model's greedy answers to many questions at once, with its hidden states, for the training of heads.

    python -m recipes.starter_answers --target FOLDER --questions FILE --out FOLDER

A batch of 128 answers writes about five times as many tokens a second on one core as the engine, which writes one after
another. Each group of questions is one file; a run continues with the missing ones. Knows Llama models without bias.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.text.tokenizer import Tokenizer
from specchat.weights.gguf.gguf_conversion import safetensors_folder
from specchat_train.export_weights import eagle3_hidden_state_layers
from specchat_train.frozen_target import head_shape, read_config

GROUP_SIZE, PREFILL_ROWS, SORTED_GROUPS = 128, 16, 8
MAX_PROMPT, MAX_ANSWER = 320, 160  # tokens
FINISHED_SHARE = 0.1  # of a batch, before its finished rows are dropped


@dataclass(frozen=True)
class WrittenAnswer:
    """A prompt with its answer, and the hidden states of all tokens but the last. [L-1, layers * D]"""

    tokens: list[int]
    answer_start: int
    states: Tensor


class BatchKVCache:
    """Keys and values of a batch, for each layer. [B, KV heads, L, head_dim]"""

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys, self.values = keys, values

    def rows(self, rows: slice | Tensor) -> BatchKVCache:
        """A view (slice) or a copy (indices) of some rows."""
        return BatchKVCache([key[rows] for key in self.keys], [value[rows] for value in self.values])


class BatchedLlama:
    """A Llama in bfloat16 whose rows end at the same position: shorter prompts are padded on the left."""

    def __init__(self, folder: Path) -> None:
        stored = load_file(safetensors_folder(folder) / "model.safetensors")
        self.weights, self.config = {name: stored[name].bfloat16() for name in stored}, read_config(folder)
        self.shape = head_shape(self.config, str(folder))
        self.kv_heads: int = self.config["num_key_value_heads"]
        self.embedding = self.weights["model.embed_tokens.weight"]
        self.lm_head = self.weights.get("lm_head.weight", self.embedding)
        self.state_layers = eagle3_hidden_state_layers(self.shape.layers)
        powers = torch.arange(0, self.shape.head_dim, 2, dtype=torch.float32) / self.shape.head_dim
        self.inv_freq = 1.0 / self.shape.rope_theta**powers

    def new_cache(self, rows: int, length: int) -> BatchKVCache:
        size = (rows, self.kv_heads, length, self.shape.head_dim)
        empty = [torch.empty(size, dtype=torch.bfloat16) for _ in range(2 * self.shape.layers)]
        return BatchKVCache(empty[: self.shape.layers], empty[self.shape.layers :])

    def forward(self, tokens: Tensor, positions: Tensor, cache: BatchKVCache, start: int, mask: Tensor) -> Tensor:
        """tokens [B, L] at cache row `start` -> the states for EAGLE-3 and after the final norm. [B, L, 4 * D]"""
        hidden, states = F.embedding(tokens, self.embedding), list[Tensor]()
        angles = (positions[:, None, :, None].float() * self.inv_freq).repeat(1, 1, 1, 2)
        cosine, sine = angles.cos().bfloat16(), angles.sin().bfloat16()
        for layer in range(self.shape.layers):
            if layer in self.state_layers:
                states.append(hidden)
            normed = self._norm(hidden, f"model.layers.{layer}.input_layernorm")
            query, key, value = (self._heads(normed, layer, name) for name in ("q_proj", "k_proj", "v_proj"))
            end = start + tokens.shape[1]
            cache.keys[layer][:, :, start:end] = _rotated(key, cosine, sine)
            cache.values[layer][:, :, start:end] = value
            attended = F.scaled_dot_product_attention(
                _rotated(query, cosine, sine), cache.keys[layer][:, :, :end], cache.values[layer][:, :, :end],
                attn_mask=mask, enable_gqa=True,
            )  # fmt: skip
            hidden = hidden + self._linear(attended.transpose(1, 2).flatten(2), layer, "self_attn.o_proj")
            normed = self._norm(hidden, f"model.layers.{layer}.post_attention_layernorm")
            gate, up = (self._linear(normed, layer, f"mlp.{name}") for name in ("gate_proj", "up_proj"))
            hidden = hidden + self._linear(F.silu(gate) * up, layer, "mlp.down_proj")
        return torch.cat((*states, self._norm(hidden, "model.norm")), dim=-1)

    def best_tokens(self, states: Tensor) -> Tensor:
        """The most probable next token of each row of states. [B, 4 * D] -> [B]"""
        return F.linear(states[:, -self.shape.hidden_size :], self.lm_head).argmax(-1)

    def _norm(self, hidden: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        return F.rms_norm(hidden, weight.shape, weight, self.shape.rms_norm_eps)

    def _linear(self, hidden: Tensor, layer: int, name: str) -> Tensor:
        return F.linear(hidden, self.weights[f"model.layers.{layer}.{name}.weight"])

    def _heads(self, hidden: Tensor, layer: int, name: str) -> Tensor:
        return self._linear(hidden, layer, f"self_attn.{name}").unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)


def _rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-second, first), dim=-1) * sine


@torch.no_grad()
def write_answers(
    model: BatchedLlama, prompts: Sequence[list[int]], stop_id: int, max_tokens: int = MAX_ANSWER
) -> list[WrittenAnswer]:
    """Greedy answers to all prompts, as one batch; each with its stop token."""
    longest = max(map(len, prompts))
    padding = torch.tensor([longest - len(prompt) for prompt in prompts])
    tokens = torch.tensor([[stop_id] * (longest - len(prompt)) + prompt for prompt in prompts])
    tokens = torch.cat((tokens, torch.full((len(prompts), max_tokens), stop_id)), dim=1)
    states = torch.empty(*tokens.shape, 4 * model.shape.hidden_size, dtype=torch.bfloat16)
    cache, rows = model.new_cache(*tokens.shape), torch.arange(len(prompts))
    for part in (slice(start, start + PREFILL_ROWS) for start in range(0, len(prompts), PREFILL_ROWS)):
        positions = (torch.arange(longest)[None] - padding[part, None]).clamp(min=0)
        mask = _mask(padding[part], longest, longest)
        states[part, :longest] = model.forward(tokens[part, :longest], positions, cache.rows(part), 0, mask)
    best = model.best_tokens(states[:, longest - 1])
    for end in range(longest, longest + max_tokens):
        tokens[rows, end] = best
        is_running = best != stop_id
        if end + 1 == longest + max_tokens or not is_running.any():
            break
        if is_running.float().mean() < 1.0 - FINISHED_SHARE:
            kept = is_running.nonzero().squeeze(1)
            rows, best, cache, is_running = rows[kept], best[kept], cache.rows(kept), is_running[kept]
        mask = _mask(padding[rows], 1, end + 1)
        states[rows, end] = model.forward(best[:, None], end - padding[rows, None], cache, end, mask)[:, 0]
        best = torch.where(is_running, model.best_tokens(states[rows, end]), stop_id)
    answers = list[WrittenAnswer]()
    for row, prompt in enumerate(prompts):
        answer = tokens[row, longest:].tolist()
        answer = answer[: answer.index(stop_id) + 1] if stop_id in answer else answer
        first, length = int(padding[row]), len(prompt) + len(answer)
        answers.append(WrittenAnswer(prompt + answer, len(prompt), states[row, first : first + length - 1]))
    return answers


def _mask(padding: Tensor, queries: int, keys: int) -> Tensor:
    """Causal, without the padding; a padded row sees itself, as a row that sees nothing is NaN. [B, 1, L, L]"""
    own = torch.arange(keys - queries, keys)[:, None]
    key = torch.arange(keys)[None]
    is_seen = (key <= own) & (key >= padding[:, None, None]) | (key == own)
    return torch.zeros(is_seen.shape, dtype=torch.bfloat16).masked_fill_(~is_seen, float("-inf"))[:, None]


def save_group(path: Path, answers: Sequence[WrittenAnswer], is_held_out: Sequence[bool]) -> None:
    """Store a group atomically."""
    content = {
        "tokens": torch.tensor([token for answer in answers for token in answer.tokens], dtype=torch.int32),
        "lengths": torch.tensor([len(answer.tokens) for answer in answers]),
        "answer_starts": torch.tensor([answer.answer_start for answer in answers]),
        "is_held_out": torch.tensor(is_held_out),
        "states": torch.cat([answer.states for answer in answers]),
    }
    save_file(content, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--target", "--questions", "--out"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer, model = Tokenizer(arguments.target), BatchedLlama(arguments.target)
    rows: list[dict[str, Any]] = [json.loads(line) for line in arguments.questions.read_text().splitlines()]
    for row in rows:
        rendered = tokenizer.render([{"role": "user", "content": row["text"]}], add_generation_prompt=True)
        row["prompt"] = tokenizer.encode(rendered, parse_special=True)
    rows = [row for row in rows if len(row["prompt"]) <= MAX_PROMPT]
    for start in range(0, len(rows), GROUP_SIZE * SORTED_GROUPS):
        similar = sorted(rows[start : start + GROUP_SIZE * SORTED_GROUPS], key=lambda row: len(row["prompt"]))
        for first in range(0, len(similar), GROUP_SIZE):
            path, group = arguments.out / f"{start + first:06d}.safetensors", similar[first : first + GROUP_SIZE]
            if not path.is_file():
                answers = write_answers(model, [row["prompt"] for row in group], min(tokenizer.stop_token_ids))
                save_group(path, answers, [row["is_held_out"] for row in group])
                print(f"{path.name}: {sum(len(answer.tokens) - answer.answer_start for answer in answers)} tokens")


if __name__ == "__main__":
    main()
