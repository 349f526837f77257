"""Medusa (arXiv 2401.10774): several heads on the target's last hidden state, each for one position ahead.

The format of its checkpoints, its network and its drafter. Only exact verification is supported: the paper's "typical"
acceptance changes the text. The heads are independent of each other, so the tree combines their best candidates.

`medusa_lm_head.pt` has `{k}.{l}.linear.*` and, in its first version, the LM heads `{k}.{L}.weight`; Medusa-2 has the
same tensors with the prefix `medusa_head.` in a complete model.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import functional

from specchat.drafters.heads.draft_head import DraftHead, TargetSample
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.spec import HeadDimensions, HeadSpec
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import storage_bytes
from specchat.engine.model import FINAL_NORM, Model, select_layers
from specchat.errors import ModelError
from specchat.forward.linear.linear import Linear
from specchat.weights.tensor_files import WeightLoader
from specchat_heads.candidate_tree import CandidateTree, PathLogits

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources

MEDUSA = "medusa"
BLOCK_PATTERN = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias)$")
LM_HEAD_PATTERN = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.weight$")


class MedusaHead(DraftHead):
    """Medusa (arXiv 2401.10774): residual blocks over the final hidden state of token t, one column per token ahead.

    Column k predicts token t+2+k. Medusa-1 has an LM head for every column; later checkpoints use the target's.
    """

    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model) -> None:
        self.tokens_ahead = spec.tokens_ahead
        columns = range(self.tokens_ahead)
        depths = [sum(f"blocks.{column}.{depth}.weight" in spec.tensors for depth in range(9)) for column in columns]
        self._blocks = [
            [loader.linear(f"blocks.{column}.{index}") for index in range(depth)] for column, depth in enumerate(depths)
        ]
        names = [f"heads.{column}" for column in columns]
        self._lm_heads = [loader.linear(name) for name in names] if "heads.0.weight" in spec.tensors else []
        self._target_lm_head, self.bytes = target.compute_logits, loader.loaded_bytes

    @torch.inference_mode()
    def logits(self, hidden_states: Tensor) -> list[Tensor]:
        """Hidden states after the final norm [n, D] -> logits [n, V] of the tokens t+2, t+3, …"""
        columns = [self._residual_blocks(blocks, hidden_states) for blocks in self._blocks]
        if self._lm_heads:
            return [lm_head(rows) for lm_head, rows in zip(self._lm_heads, columns, strict=True)]
        return list(self._target_lm_head(torch.cat(columns)).split(len(hidden_states)))

    def predictions(self, sample: TargetSample) -> list[Tensor]:
        return [logits.argmax(-1) for logits in self.logits(sample.hidden_states)]

    def _residual_blocks(self, blocks: list[Linear], rows: Tensor) -> Tensor:
        for block in blocks:
            rows = rows + functional.silu(block(rows))
        return rows


class Medusa(CandidateTree):
    """Stores one hidden state of the text."""

    name = MEDUSA
    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, head: MedusaHead, target: Model) -> None:
        super().__init__(head.tokens_ahead)
        self.head, self.target = head, target
        self._hidden_state: Tensor | None = None  # of the last token in the target's cache [1, D]
        self._hidden_state_end = 0  # tokens up to that one, inclusive

    def path_logits(self, context: DraftContext) -> PathLogits | None:
        if self._hidden_state is None or self._hidden_state_end != len(context.tokens) - 1:
            return None
        logits = self.head.logits(self._hidden_state)
        return lambda ahead, _paths: logits[ahead]

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        if outcome.hidden_states is not None and FINAL_NORM in self.target.hidden_state_layers:
            self._hidden_state = select_layers(
                outcome.hidden_states[-1:], self.target.hidden_state_layers, self.hidden_state_layers
            )
            self._hidden_state_end = outcome.root_position + len(outcome.path)

    def memory_bytes(self) -> int:
        return storage_bytes([self._hidden_state] if self._hidden_state is not None else [])

    def forget(self, length: int) -> None:
        super().forget(length)
        if length < self._hidden_state_end:
            self._hidden_state, self._hidden_state_end = None, 0


def detect_medusa(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Residual blocks over the final hidden state, one column for every token ahead."""
    names: dict[str, str] = {}
    for name in checkpoint.tensors.locations:
        if match := BLOCK_PATTERN.match(name):
            names[f"blocks.{match[1]}.{match[2]}.{match[3]}"] = name
        elif match := LM_HEAD_PATTERN.match(name):
            names[f"heads.{match[1]}.weight"] = name
    blocks = [name for name in names if name.startswith("blocks.") and name.endswith(".weight")]
    if not blocks:
        return None
    tensors = checkpoint.tensors.renamed(names)
    rows, hidden_size = checkpoint.matrix_shape(names[blocks[0]])
    count = 1 + max(int(name.split(".")[1]) for name in blocks)
    lm_heads = [f"heads.{index}.weight" for index in range(count) if f"heads.{index}.weight" in tensors]
    _check(tensors.source, blocks, count, len(lm_heads))
    configured = checkpoint.config.get("medusa_num_heads")
    warning = f"config.json has {configured} heads, the file has {count}; the file is used"
    is_inside = checkpoint.first_match(r"medusa_head\.") is not None
    vocab_size = tensors.shape(lm_heads[0])[0] if lm_heads else int(checkpoint.config.get("vocab_size") or 0)
    heads = f"an LM head each, {list(tensors.shape(lm_heads[0]))}" if lm_heads else "the target's LM head"
    return HeadSpec(
        kind=MEDUSA,
        network=MedusaHead,
        uses_target_tables=False,
        format="Medusa-2 in its target's checkpoint" if is_inside else "Medusa-1",
        tensors=tensors,
        evidence=(f"{count} columns of residual blocks {[rows, hidden_size]}, with {heads}",),
        warnings=(warning,) if configured not in (None, count) else (),
        dimensions=HeadDimensions(rows, 1, 1, rows, 0, 0.0),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=rows,
        target_vocab_size=vocab_size,
        draft_vocab_size=vocab_size,
        tokens_ahead=count,
    )


def _check(source: object, blocks: list[str], count: int, lm_heads: int) -> None:
    if {int(name.split(".")[1]) for name in blocks} != set(range(count)):
        raise ModelError(f"{source}: a part of the head is missing: not all columns from 0 to {count - 1} exist")
    if lm_heads not in (0, count):
        raise ModelError(f"{source}: a part of the head is missing: {lm_heads} LM heads for {count} columns")


def build(resources: DraftingResources) -> Drafter | None:
    head = resources.heads.get(MEDUSA)
    return Medusa(cast("MedusaHead", head), resources.target) if head is not None else None
