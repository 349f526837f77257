"""How fast a rotary embedding turns: the settings of old and new configs, and the speeds that follow from them.

Knows numbers of a config.json; knows no network. The whole table of a target and the few angles that a head needs at
a time come from the same speeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

ROPE_TYPES = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Rope:
    """The settings of a rotary embedding."""

    theta: float = 10000.0
    rope_type: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    partial_rotary_factor: float = 1.0  # of a head's size that is turned; the rest stays as it is

    @classmethod
    def from_config(cls, config: Mapping[str, Any], theta: float = 10000.0) -> Rope:
        """What a config says, in the spelling of today or of old. `theta` holds where it says no base."""
        said = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        kind = said.get("rope_type") or said.get("type") or "default"
        return cls(
            theta=float(said.get("rope_theta") or config.get("rope_theta") or theta),
            rope_type="default" if kind == "mrope" else kind,  # of text, all three positions are one
            scaling=said,
            partial_rotary_factor=float(
                said.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
            ),
        )

    @property
    def is_supported(self) -> bool:
        """Whether we compute this kind."""
        return self.rope_type in ROPE_TYPES

    def inv_freq(self, head_size: int) -> Tensor:
        """Radians per position of every pair of numbers. [share * head_size / 2]"""
        turned = int(head_size * self.partial_rotary_factor)
        pairs = torch.arange(0, turned, 2, dtype=torch.int64).float() / turned
        speeds = 1.0 / self.theta**pairs
        match self.rope_type:
            case "linear":
                return speeds / self.scaling["factor"]
            case "llama3":
                return _llama3_inv_freq(speeds, self.scaling)
            case "yarn":
                return _yarn_inv_freq(speeds, self.scaling, self.theta)
            case _:
                return speeds

    @property
    def attention_factor(self) -> float:
        """What cosine and sine are multiplied with: YaRN makes long texts attend more sharply."""
        if self.rope_type != "yarn":
            return 1.0
        if (said := self.scaling.get("attention_factor")) is not None:
            return float(said)
        one, all_of = (self.scaling.get(key) for key in ("mscale", "mscale_all_dim"))
        return (
            (self._yarn_log_factor * one + 1) / (self._yarn_log_factor * all_of + 1)
            if one and all_of
            else self._yarn_log_factor + 1
        )

    @property
    def softmax_mscale(self) -> float:
        """What DeepSeek's attention over latents multiplies all scores with: what `size` leaves out, of both sides."""
        all_of = self.scaling.get("mscale_all_dim") or 0.0
        return (self._yarn_log_factor * all_of + 1) ** 2 if self.rope_type == "yarn" else 1.0

    @property
    def _yarn_log_factor(self) -> float:
        factor = self.scaling.get("factor")
        return 0.1 * math.log(factor) if factor and factor > 1 else 0.0


def cos_sin(positions: Tensor, inv_freq: Tensor, attention_factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine, negative in its first half, at every position. [N] -> two [N, 2 * speeds]"""
    angles = positions.float()[:, None] * inv_freq[None, :]
    cosine, sine = angles.cos() * attention_factor, angles.sin() * attention_factor
    return torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1)


def _llama3_inv_freq(inv_freq: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Llama 3.1's scaling: slow waves are stretched, fast ones kept, those between blended."""
    old, low, high = (
        scaling[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    waves = 2 * math.pi / inv_freq
    blend = (old / waves - low) / (high - low)
    stretched = torch.where(waves > old / low, inv_freq / scaling["factor"], inv_freq)
    between = (1 - blend) * stretched / scaling["factor"] + blend * stretched
    return torch.where((waves <= old / low) & (waves >= old / high), between, stretched)


def _yarn_inv_freq(inv_freq: Tensor, scaling: Mapping[str, Any], theta: float) -> Tensor:
    """YaRN (arXiv 2309.00071): pairs that turn often are kept, those that turn seldom stretched, a ramp between."""
    old, pairs = scaling["original_max_position_embeddings"], len(inv_freq)

    def pair_that_turns(times: float) -> float:
        return pairs * math.log(old / (times * 2 * math.pi)) / math.log(theta)

    low, high = pair_that_turns(scaling.get("beta_fast") or 32), pair_that_turns(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    stretched = ((torch.arange(pairs).float() - low) / (max(high - low, 0) or 0.001)).clamp(0, 1)
    return inv_freq / scaling["factor"] * stretched + inv_freq * (1 - stretched)
