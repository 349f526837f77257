"""Attention over latents, DeepSeek's MLA (arXiv 2405.04434, section 2.1; arXiv 2412.19437): little is kept of a token.

A token leaves a short vector, its latent, of which the keys and values of all heads are linear maps, and one turned key
for all heads. Just that is cached, as one key whose front is also the value, beside a value of no numbers: any cache
takes such rows, and DeepSeek-V3 needs 576 numbers for a token where the keys and values of its 128 heads are 40,960.

So the maps change sides. A query is asked in the words of latents, and what the heads mix of latents becomes values
afterwards: the same products in another order (the paper calls the maps absorbed), equal but for rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specchat.forward.linear import Product, product
from specchat.heads.head_attention import Read, Turn, normed
from specchat.heads.spec import Latent
from specchat.models.tensor_files import Loader

EPSILON = 1e-6  # of the norms of latents, whatever the config says of the others


class LatentAttention:
    """All heads ask one vector of every token, each in its own way."""

    def __init__(self, sizes: Latent, loader: Loader, at: str, sharpness: float) -> None:
        self._sizes, self._loader, self._at = sizes, loader, at
        asking = "q_b_proj" if sizes.query_rank else "q_proj"
        self._query_in = loader.product(f"{at}.q_a_proj") if sizes.query_rank else None
        self._query_norm = loader.optional(f"{at}.q_a_layernorm.weight")
        self._query = self._halved(asking, heads=sizes.heads, before=sizes.still)
        self._offer = self._halved("kv_a_proj_with_mqa", heads=1, before=sizes.rank)
        self._norm = loader.optional(f"{at}.kv_a_layernorm.weight")
        both = loader.tensor(f"{at}.kv_b_proj.weight").view(sizes.heads, -1, sizes.rank)
        self._of_keys, self._of_values = both[:, : sizes.still], both[:, sizes.still :]  # [heads, size, rank]
        self._out = loader.product(f"{at}.o_proj")
        self._scale = sharpness / math.sqrt(sizes.still + sizes.turned)  # not of what is asked, which has another size

    @property
    def row(self) -> tuple[int, int, int]:
        """What it leaves for a token: heads, size of a key, size of a value."""
        return 1, self._sizes.rank + self._sizes.turned, 0

    def read(self, rows: Tensor, turn: Turn) -> Read:
        """What these rows ask and offer."""
        sizes = self._sizes
        inner = rows if self._query_in is None else normed(self._query_in(rows), self._query_norm, EPSILON)
        still, moving = self._query(inner).view(len(rows), sizes.heads, -1).split((sizes.still, sizes.turned), dim=-1)
        latents, shared = self._offer(rows)[:, None].split((sizes.rank, sizes.turned), dim=-1)
        asked = torch.cat((torch.einsum("nhs,hsr->nhr", still, self._of_keys), turn(moving)), dim=-1)
        offered = torch.cat((normed(latents, self._norm, EPSILON), turn(shared)), dim=-1)
        return Read(asked * self._scale, offered, offered[..., :0])

    def answer(self, read: Read, keys: Tensor, _values: Tensor, mask: Tensor | None) -> Tensor:
        """What the rows make of the latents that they see [1, 1, width, rank + turned]. [N, D]"""
        sizes, count, seen = self._sizes, len(read.queries), keys[0, 0]
        scores = (read.queries.flatten(0, 1) @ seen.T).view(count, sizes.heads, -1).float()
        if mask is not None:
            scores += mask[0, 0, :, None]
        mixed = scores.softmax(-1).to(seen).flatten(0, 1) @ seen[:, : sizes.rank]
        values = torch.einsum("nhr,hvr->nhv", mixed.view(count, sizes.heads, -1), self._of_values)
        return self._out(values.flatten(1))

    def _halved(self, name: str, heads: int, before: int) -> Product:
        """A map whose every head ends in numbers to be turned. Where neighbours turn together, they are laid apart.

        Of (0, 1, 2, 3) it makes (0, 2, 1, 3): what turned 0 with 1 now turns the first half with the second. Queries
        and keys are laid out alike, so their products are what they were.
        """
        turned, bias = self._sizes.turned, self._loader.optional(f"{self._at}.{name}.bias")
        weight = self._loader.tensor(f"{self._at}.{name}.weight")
        if self._sizes.interleaved:
            halves = before + torch.arange(turned).view(-1, 2).T.flatten()
            order = torch.cat((torch.arange(before), halves))
            order = (torch.arange(heads)[:, None] * len(order) + order).flatten().to(weight.device)
            weight, bias = weight[order], None if bias is None else bias[order]
        return product(weight, bias)
