"""What DFlash-2 adds to the layers of a block head: convolutions over the slots, around attention and MLP.

A slot of a block sees its neighbours through attention only, and less of them the further it is from the text. So each
module reads a mix of its slot and the few slots before it, and so does the residual connection behind the module. The
weights of the mix depend on the slot. The text before the block is not convolved, and blocks do not mix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional

from specchat.drafters.heads.backbone import HeadBackbone
from specchat.drafters.heads.spec import HeadSpec
from specchat.forward.fused_ops import QKV, TorchOps
from specchat.forward.llama.decoder_layer import AttentionModule, DecoderLayer, LayerContext, RopeAngles
from specchat.weights.tensor_files import WeightLoader
from specchat_heads.block_spec import BlockSpec


class BlockConvolution:
    """Two causal convolutions, before and behind a module. Groups of neighbouring channels share what varies."""

    def __init__(self, spec: HeadSpec, loader: WeightLoader, name: str) -> None:
        assert isinstance(spec, BlockSpec), "a block head without a block"
        self._base, self._projection = loader.tensor(f"{name}.base_kernel"), loader.linear(f"{name}.kernel_projection")
        self._block_size = spec.block_config.block_size

    def around(self, module: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """The output of a module for the rows of whole blocks. [n * block_size, D]"""
        taps, size = self._base.shape[1], self._block_size
        before, behind = self._projection(rows).view(len(rows) // size, size, 2, taps, -1, 1).unbind(2)
        return _convolve(module(_convolve(rows, self._base[0], before)), self._base[1], behind)


@dataclass(frozen=True)
class ConvolvedAttention:
    convolution: BlockConvolution
    attention: AttentionModule

    def project_qkv(self, hidden_states: Tensor, ops: TorchOps, rope: RopeAngles) -> QKV:
        """Queries, keys and values of the text, which is not convolved."""
        return self.attention.project_qkv(hidden_states, ops, rope)

    def __call__(self, hidden_states: Tensor, context: LayerContext, layer: int, window: int | None) -> Tensor:
        return self.convolution.around(lambda rows: self.attention(rows, context, layer, window), hidden_states)


@dataclass(frozen=True)
class ConvolvedMlp:
    convolution: BlockConvolution
    mlp: Callable[[Tensor, TorchOps], Tensor]

    def __call__(self, rows: Tensor, ops: TorchOps) -> Tensor:
        return self.convolution.around(lambda convolved: self.mlp(convolved, ops), rows)


class ConvolvedBackbone(HeadBackbone):
    """The network of a head whose layers have convolutions around both modules."""

    def load_layer(self, index: int) -> DecoderLayer:
        layer, name = super().load_layer(index), f"layers.{index}"
        around_attention, around_mlp = (
            BlockConvolution(self.spec, self.loader, f"{name}.{part}_conv") for part in ("attention", "mlp")
        )
        assert isinstance(layer.self_attn, AttentionModule)
        attention = ConvolvedAttention(around_attention, layer.self_attn)
        return replace(layer, self_attn=attention, mlp=ConvolvedMlp(around_mlp, layer.mlp))


def _convolve(rows: Tensor, base: Tensor, varying: Tensor) -> Tensor:
    """Rows [n * slots, D], a fixed kernel [taps, D], and what each slot adds to it [n, slots, taps, groups, 1]."""
    count, slots, taps, groups, _ = varying.shape
    blocks = rows.view(count, slots, groups, -1)
    kernel = base.view(taps, groups, -1) + varying
    sums = blocks * kernel[:, :, 0]
    for tap in range(1, taps):
        sums = sums + functional.pad(blocks[:, :-tap], (0, 0, 0, 0, tap, 0)) * kernel[:, :, tap]
    return sums.view_as(rows)
