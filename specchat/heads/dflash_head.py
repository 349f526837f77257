"""Heads that fill a block of masks in one pass: DFlash (arXiv 2602.06036).

The text enters as keys and values alone: each layer makes them of the target's tapped states, once for every token. A
block is the last sure token and masks behind it; its slots see all of the text and one another, and each slot guesses
the token of its own place (or, where the head was trained so, the token after it). Nothing of a block stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache
from specchat.engine.model import Model
from specchat.forward.attention import build_additive_mask
from specchat.forward.batch import RowBatch
from specchat.heads.layers import LayerStack
from specchat.heads.spec import HeadSpec
from specchat.models.tensor_files import WeightLoader


class DFlashHead:
    """A head that says in one pass what stands in the next places."""

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        assert spec.block_config is not None, "a head without slots passed inspection"
        self.kind, self.context_window, self.block_config = spec.kind, spec.context_window, spec.block_config
        self.tokens_ahead = spec.tokens_ahead
        self.hidden_state_layers = spec.hidden_state_layers_for(len(target.pool.layout.shapes))
        self._layer_stack = stack = LayerStack(spec, loader, target.pool.layout.dtype)
        self.pool = stack.pool
        self._fc = loader.linear("fc")
        self._feature_norm, self._final_norm = stack.norm_weight("feature_norm"), stack.norm_weight("norm")
        self._own_embeddings = loader.optional("embed_tokens.weight")
        self._lm_head = loader.linear("lm_head") if "lm_head.weight" in spec.tensors else target.compute_logits
        self._embed = target.embed
        self.draft_to_target_ids = spec.draft_to_target_ids().to(loader.device) if "d2t" in spec.tensors else None
        self.bytes = loader.loaded_bytes

    @torch.inference_mode()
    def prefill(self, hidden_states: Tensor, position: int, cache: KVCache) -> None:
        """Take in the target's states of the tokens from `position` on, and commit them. [n, taps * D]"""
        stack, rows = self._layer_stack, self._layer_stack.rms_norm(self._fc(hidden_states), self._feature_norm)
        turn = stack.rope_angles(torch.arange(position, position + len(rows)), rows)
        for index, layer in enumerate(stack.layers):
            cache.write(index, *layer.attention.project_qkv(rows, turn).cache_rows)
        cache.commit(list(range(len(rows))))

    @torch.inference_mode()
    def draft_block(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        cache: KVCache,
        first_position: int = 0,
        tokens_ahead: int | None = None,
    ) -> Tensor:
        """What the head says of the next `ahead` places (or `count`) behind each sure token. [n, ahead, Vd]

        Each token begins a block, which sees no other block and the text before it. `first`: the position of row 0 of
        the cache. The cache is left as it was found, but needs room for `n * slots.size` more rows.
        """
        stack, slots = self._layer_stack, self.block_config
        written = torch.full((len(tokens), slots.block_size), slots.mask_token_id)
        written[:, 0] = torch.tensor(tokens)
        starts = torch.tensor(positions).repeat_interleave(slots.block_size)
        nodes = self._block_batch(written, starts, cache.length, first_position)
        stream = self._embed_tokens(written.flatten().to(stack.pool.layout.device))
        windows = {layer.sliding_window for layer in stack.layers}
        turn, masks = (
            stack.rope_angles(nodes.positions, stream),
            {w: self._attention_mask(nodes, starts, w, stream) for w in windows},
        )
        for index, layer in enumerate(stack.layers):
            rows = stack.rms_norm(stream, layer.input_layernorm)
            stream = stack.forward_layer(index, stream, rows, turn, masks[layer.sliding_window], cache, nodes.kv_length)
        said = stack.rms_norm(stream, self._final_norm).view(len(tokens), slots.block_size, -1)
        said = (said if slots.samples_from_anchor else said[:, 1:])[:, :tokens_ahead]
        return self._lm_head(said.flatten(0, 1)).view(*said.shape[:2], -1)

    def _block_batch(self, block_tokens: Tensor, starts: Tensor, length: int, first_position: int) -> RowBatch:
        """Blocks [n, size] behind `length` rows of text: each sees its own slots and the text before it."""
        count, size = block_tokens.shape
        block = torch.arange(count).repeat_interleave(size)
        text = torch.arange(first_position, first_position + length)
        before, near = text[None, :] < starts[:, None], text[None, :] > starts[:, None] - self.context_window
        sees = torch.cat((before & near, block[None, :] == block[:, None]), dim=1)
        return RowBatch(
            block_tokens.flatten().tolist(), starts + torch.arange(size).repeat(count), sees, length, first_position
        )

    def _embed_tokens(self, tokens: Tensor) -> Tensor:
        return (
            self._embed(tokens) if self._own_embeddings is None else functional.embedding(tokens, self._own_embeddings)
        )

    def _attention_mask(
        self, batch: RowBatch, starts: Tensor, sliding_window: int | None, like: Tensor
    ) -> Tensor | None:
        """What is added to the scores of a layer; with a window, mostly no slot sees those behind it."""
        shared, slots = self._layer_stack.dimensions.heads // self._layer_stack.dimensions.kv_heads, self.block_config
        if sliding_window is None:
            return build_additive_mask(batch, None, shared, like)
        rows = torch.arange(batch.kv_length) + batch.first_position
        rows[batch.committed_length :] = batch.positions
        oldest = starts - sliding_window if slots.windows_start_at_anchor else batch.positions - sliding_window + 1
        sees = batch.attention_mask & (rows[None, :] >= oldest[:, None])
        if not slots.has_non_causal_windows:
            sees &= rows[None, :] <= batch.positions[:, None]
        return build_additive_mask(replace(batch, sees=sees), None, shared, like)
