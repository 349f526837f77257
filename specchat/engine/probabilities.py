"""The probabilities that the target gives to committed tokens and to the likeliest others, for a reader.

Decoding never needs them: they are computed only on request, from logits that a pass has left, and they change nothing.
They are those of the model itself, before penalties, truncation, temperature and grammar.
"""

from dataclasses import dataclass

from torch import Tensor

from specchat.engine.device import copy_to_device

LIKELIEST_COUNT = 20  # as many as HTTP APIs ask for


@dataclass(frozen=True)
class TokenProbabilities:
    """Of one position: the committed token's probability, and the likeliest tokens with theirs, best first."""

    committed: float
    likeliest: tuple[tuple[int, float], ...]


def token_probabilities(
    logits: Tensor, path: list[int], committed_tokens: list[int], vocab_size: int | None
) -> tuple[TokenProbabilities, ...]:
    """For each node of the path the probabilities of the token after it. `logits` are those of the tree [N, V]"""
    rows = logits.index_select(0, copy_to_device(path, logits.device))[:, :vocab_size].float().softmax(dim=-1)
    own = rows.gather(1, copy_to_device(committed_tokens, rows.device)[:, None])[:, 0].tolist()
    best = rows.topk(min(LIKELIEST_COUNT, rows.shape[1]), dim=-1)
    return tuple(
        TokenProbabilities(probability, tuple(zip(ids, values, strict=True)))
        for probability, ids, values in zip(own, best.indices.tolist(), best.values.tolist(), strict=True)
    )
