"""What DeepSeek-V3's layers have beside those of other heads: latent attention, and a routing by groups of experts.

The routing (arXiv 2412.19437, section 2.1.2) chooses the highest sigmoids within the best groups. Knows tensors and no
config.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.backbone import HeadBackbone
from specchat.drafters.heads.spec import HeadDimensions
from specchat.forward.llama.decoder_layer import AttentionModule, GatedMlp
from specchat.forward.llama.moe import ExpertSelection, MixtureOfExperts, Routing
from specchat_heads.mla import MlaAttention, MlaDimensions


@dataclass(frozen=True)
class LatentDimensions(HeadDimensions):
    """The sizes of a head whose attention heads share one latent per token."""

    mla: MlaDimensions = field(kw_only=True)

    @property
    def rope_size(self) -> int:
        return self.mla.qk_rope_head_dim

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        return 1, self.mla.kv_lora_rank + self.mla.qk_rope_head_dim, 0


@dataclass(frozen=True)
class GroupRouting(Routing):
    """The correction changes which experts are selected, and not their weights."""

    expert_groups: int = 1  # of equal size
    topk_groups: int = 1  # groups whose experts can be selected
    routed_scaling_factor: float = 1.0  # of the weights
    correction: Tensor | None = field(default=None, compare=False)  # float32 [experts]

    def is_possible(self, experts: int) -> bool:
        """Whether so many experts have these groups, and enough of them can be selected."""
        has_valid_groups = experts % self.expert_groups == 0 and 0 < self.topk_groups <= self.expert_groups
        return has_valid_groups and 0 < self.experts_per_token <= experts // self.expert_groups * self.topk_groups

    def select(self, scores: Tensor) -> ExpertSelection:
        """With groups, only those with the highest sum of their two best experts count."""
        weights = scores.sigmoid()
        ranked = weights if self.correction is None else weights + self.correction
        if self.expert_groups > 1:
            groups = ranked.unflatten(-1, (self.expert_groups, -1))
            best = groups.topk(2, dim=-1).values.sum(-1).topk(self.topk_groups, dim=-1).indices
            is_open = torch.zeros(groups.shape[:-1], dtype=torch.bool, device=ranked.device)
            is_open = is_open.scatter_(-1, best, value=True)
            ranked = groups.masked_fill(~is_open[..., None], float("-inf")).flatten(-2)
        selection = self.highest(ranked, weights)
        return replace(selection, weights=selection.weights * self.routed_scaling_factor)


class DeepSeekBackbone(HeadBackbone):
    def load_attention(self, prefix: str) -> AttentionModule:
        if not isinstance(self.dimensions, LatentDimensions):
            return super().load_attention(prefix)
        return MlaAttention(self.dimensions.mla, self.loader, prefix, self.spec.rope.softmax_mscale)

    def load_mlp(self, prefix: str) -> GatedMlp | MixtureOfExperts:
        mlp, routing = super().load_mlp(prefix), self.spec.routing
        if not isinstance(mlp, MixtureOfExperts) or not isinstance(routing, GroupRouting):
            return mlp
        floats = replace(self.loader, dtype=torch.float32)
        routing = replace(routing, correction=floats.optional(f"{prefix}.mlp.gate.e_score_correction_bias"))
        return replace(mlp, router=replace(mlp.router, routing=routing))


class DeepSeekHead(EagleHead):
    backbone = DeepSeekBackbone
