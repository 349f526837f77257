"""Rotary position embeddings: settings from old and new configs, and the inverse frequencies that follow from them.

Knows numbers of a config.json; knows no network. Targets build one table of all positions from it, heads compute the
few angles that they need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

PROPORTIONAL = "proportional"
ROPE_TYPES = ("default", "linear", "llama3", "yarn", PROPORTIONAL)


@dataclass(frozen=True)
class Rope:
    theta: float = 10000.0
    rope_type: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    partial_rotary_factor: float = 1.0  # the share of a head that is rotated

    @classmethod
    def from_config(cls, config: Mapping[str, Any], theta: float = 10000.0) -> Rope:
        """The settings of a config, with old or new key names. `theta` is the default base."""
        scaling = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        rope_type = scaling.get("rope_type") or scaling.get("type") or "default"
        share = scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
        return cls(
            theta=float(scaling.get("rope_theta") or config.get("rope_theta") or theta),
            rope_type="default" if rope_type == "mrope" else rope_type,  # text has one position instead of three
            scaling=scaling,
            partial_rotary_factor=float(share),
        )

    @property
    def is_supported(self) -> bool:
        return self.rope_type in ROPE_TYPES

    def inv_freq(self, head_size: int) -> Tensor:
        """Radians per position for every pair of numbers. [partial_rotary_factor * head_size / 2]

        Of proportional RoPE [head_size / 2]: the pairs behind the rotated share have 0.
        """
        if self.rope_type == PROPORTIONAL:
            return self._proportional_inv_freq(head_size)
        rotary_size = int(head_size * self.partial_rotary_factor)
        inv_freq = 1.0 / self.theta ** (torch.arange(0, rotary_size, 2, dtype=torch.int64).float() / rotary_size)
        match self.rope_type:
            case "linear":
                return inv_freq / self.scaling["factor"]
            case "llama3":
                return _llama3_inv_freq(inv_freq, self.scaling)
            case "yarn":
                return _yarn_inv_freq(inv_freq, self.scaling, self.theta)
            case _:
                return inv_freq

    def _proportional_inv_freq(self, head_size: int) -> Tensor:
        """The frequencies of a fully rotated head (Gemma 4)."""
        rotated = int(self.partial_rotary_factor * head_size // 2)
        inv_freq = torch.zeros(head_size // 2)
        inv_freq[:rotated] = 1.0 / self.theta ** (
            torch.arange(0, 2 * rotated, 2, dtype=torch.int64).float() / head_size
        )
        return inv_freq / self.scaling.get("factor", 1.0)

    @property
    def attention_factor(self) -> float:
        """The factor of cosine and sine. YaRN uses it to sharpen the softmax of long texts."""
        if self.rope_type != "yarn":
            return 1.0
        if (factor := self.scaling.get("attention_factor")) is not None:
            return float(factor)
        mscale, mscale_all_dim = (self.scaling.get(key) for key in ("mscale", "mscale_all_dim"))
        if mscale and mscale_all_dim:
            return (self._yarn_log_factor * mscale + 1) / (self._yarn_log_factor * mscale_all_dim + 1)
        return self._yarn_log_factor + 1

    @property
    def softmax_mscale(self) -> float:
        """The factor of all scores in DeepSeek's MLA: the part of YaRN's scaling that `attention_factor` lacks."""
        mscale_all_dim = self.scaling.get("mscale_all_dim") or 0.0
        return (self._yarn_log_factor * mscale_all_dim + 1) ** 2 if self.rope_type == "yarn" else 1.0

    @property
    def _yarn_log_factor(self) -> float:
        factor = self.scaling.get("factor")
        return 0.1 * math.log(factor) if factor and factor > 1 else 0.0


def cos_sin(positions: Tensor, inv_freq: Tensor, attention_factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position; the first half of the sine is negative. [N] -> two [N, 2 * len(inv_freq)]"""
    angles = positions.float()[:, None] * inv_freq[None, :]
    cos, sin = angles.cos() * attention_factor, angles.sin() * attention_factor
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _llama3_inv_freq(inv_freq: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Llama 3.1's scaling: long wavelengths are stretched, short ones kept, those between interpolated."""
    original_length, low, high = (
        scaling[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    wavelengths = 2 * math.pi / inv_freq
    smooth = (original_length / wavelengths - low) / (high - low)
    stretched = torch.where(wavelengths > original_length / low, inv_freq / scaling["factor"], inv_freq)
    interpolated = (1 - smooth) * stretched / scaling["factor"] + smooth * stretched
    is_between = (wavelengths <= original_length / low) & (wavelengths >= original_length / high)
    return torch.where(is_between, interpolated, stretched)


def _yarn_inv_freq(inv_freq: Tensor, scaling: Mapping[str, Any], theta: float) -> Tensor:
    """YaRN (arXiv 2309.00071): pairs with many rotations are kept, those with few stretched, a ramp between."""
    original_length, pairs = scaling["original_max_position_embeddings"], len(inv_freq)

    def pair_with_rotations(count: float) -> float:
        return pairs * math.log(original_length / (count * 2 * math.pi)) / math.log(theta)

    low = pair_with_rotations(scaling.get("beta_fast") or 32)
    high = pair_with_rotations(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    stretched_share = ((torch.arange(pairs).float() - low) / (max(high - low, 0) or 0.001)).clamp(0, 1)
    return inv_freq / scaling["factor"] * stretched_share + inv_freq * (1 - stretched_share)
