"""Heads that draft a block of tokens in one pass: DFlash (arXiv 2602.06036).

The text is present as keys and values only: each layer projects them from the target's hidden states, once per token.
A block is the last committed token, followed by mask tokens. Its slots see the text and each other, and each slot
predicts the token at its own position (in some checkpoints, the next one). The rows of a block are never committed.
DFlash-2 and DSpark have other layers (`backbone`), or correct each slot by the token before it (`blocks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specchat.drafters.heads.backbone import HeadBackbone
from specchat.drafters.heads.draft_head import TESTED_DEPTH, CachingHead, TargetSample
from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.cache import KVCache
from specchat.engine.model import Model
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import RowBatch
from specchat.forward.llama.decoder_layer import AttentionModule
from specchat.weights.tensor_files import WeightLoader
from specchat_heads.block_chain import DraftedBlocks
from specchat_heads.block_spec import BlockSpec


class DFlashHead(CachingHead):
    backbone: type[HeadBackbone] = HeadBackbone

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        assert isinstance(spec, BlockSpec), "a block head without a block"
        self.kind, self.context_window, self.block_config = spec.kind, spec.context_window, spec.block_config
        self.tokens_ahead = spec.tokens_ahead
        self.hidden_state_layers = spec.hidden_state_layers_for(target.layer_count)
        self._backbone = self.backbone(spec, loader, target)
        self.pool, self.draft_to_target_ids = self._backbone.pool, self._backbone.draft_to_target_ids
        self._fc, self._feature_norm = loader.linear("fc"), self._backbone.norm_weight("feature_norm")
        self.bytes = loader.loaded_bytes

    @torch.inference_mode()
    def prefill(self, hidden_states: Tensor, position: int, cache: KVCache) -> None:
        """Commit keys and values of the target's hidden states [n, layers * D] of the tokens from `position` on."""
        rows = self._backbone.rms_norm(self._fc(hidden_states), self._feature_norm)
        stack, rope = self._backbone.stack, self._backbone.angles.at(torch.arange(position, position + len(rows)))
        for index, layer in enumerate(stack.layers):
            assert isinstance(layer.self_attn, AttentionModule)
            cache.write(index, *layer.self_attn.project_qkv(rows, stack.ops, rope).cache_rows)
        cache.commit(list(range(len(rows))))

    @torch.inference_mode()
    def draft_block(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        cache: KVCache,
        first_position: int = 0,
        tokens_ahead: int | None = None,
    ) -> DraftedBlocks:
        """The slots of the `tokens_ahead` (default: all) tokens after each committed token.

        Each token starts a block at its position, which sees the text before it and no other block. `first_position`
        is the position of row 0 of the cache. The committed rows stay unchanged, but the slot needs space for
        `n * block_size` more rows.
        """
        config = self.block_config
        block_tokens = torch.full((len(tokens), config.block_size), config.mask_token_id)
        block_tokens[:, 0] = torch.tensor(tokens)
        starts = torch.tensor(positions).repeat_interleave(config.block_size)
        batch = self._block_batch(block_tokens, starts, cache.length, first_position)
        masks = {window: self._mask(batch, starts, window) for window in self._backbone.stack.sliding_windows}
        device = self.pool.layout.device
        embeddings = self._backbone.embed(block_tokens.flatten().to(device))
        output = self._backbone.forward_batch(embeddings, batch.to_device(cache, masks, device), None, ())
        states = output.final.view(*block_tokens.shape, -1)
        states = (states if config.samples_from_anchor else states[:, 1:])[:, :tokens_ahead]
        logits = self._backbone.lm_head(states.flatten(0, 1)).view(*states.shape[:2], -1)
        return self.blocks(logits, states)

    def blocks(self, logits: Tensor, _states: Tensor) -> DraftedBlocks:
        """The slots with these logits [n, slots, Vd] and states [n, slots, D]; the states are for a correction."""
        return DraftedBlocks(logits)

    @torch.inference_mode()
    def predictions(self, sample: TargetSample) -> list[Tensor]:
        """A block after every position, with the sampled token as its anchor."""
        count, cache, ahead = len(sample.probabilities), self.pool.open(), min(TESTED_DEPTH, self.tokens_ahead)
        with self.pool.acquire_slot(cache, count * (1 + self.block_config.block_size)):
            self.prefill(sample.hidden_states, 0, cache)
            blocks = self.draft_block(sample.tokens[1:], range(1, count + 1), cache, tokens_ahead=ahead)
        self.pool.close(cache)
        best = [blocks.next_slot(sample.tokens_after(depth)).logits.argmax(-1) for depth in range(ahead)]
        ids = self.draft_to_target_ids
        return best if ids is None else [ids[columns] for columns in best]

    def _block_batch(self, block_tokens: Tensor, starts: Tensor, length: int, first_position: int) -> RowBatch:
        """Blocks [n, size] that follow `length` rows of text: each sees its own slots and the text before it."""
        count, size = block_tokens.shape
        block = torch.arange(count).repeat_interleave(size)
        text = torch.arange(first_position, first_position + length)
        is_before, is_near = text[None, :] < starts[:, None], text[None, :] > starts[:, None] - self.context_window
        mask = torch.cat((is_before & is_near, block[None, :] == block[:, None]), dim=1)
        positions = starts + torch.arange(size).repeat(count)
        return RowBatch(block_tokens.flatten().tolist(), positions, mask, length, first_position)

    def _mask(self, batch: RowBatch, starts: Tensor, sliding_window: int | None) -> AttentionMask | None:
        """The mask of a layer. With a sliding window, most checkpoints hide later slots from earlier ones."""
        if sliding_window is None:
            return self._backbone.attention_mask(batch, None)
        config, rows = self.block_config, batch.kv_positions[None, :]
        oldest = starts - sliding_window if config.windows_start_at_anchor else batch.positions - sliding_window + 1
        allowed = batch.attention_mask & (rows >= oldest[:, None])
        if not config.has_non_causal_windows:
            allowed &= rows <= batch.positions[:, None]
        return self._backbone.attention_mask(replace(batch, attention_mask=allowed), None)
