"""A head that drafts all its tokens in one pass, as a value: what is known of its masks beside what all heads have."""

from __future__ import annotations

from dataclasses import dataclass

from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.spec import HeadSpec
from specchat.errors import ModelError


@dataclass(frozen=True)
class BlockConfig:
    """The block of a head that drafts in one pass: the last committed token (anchor), followed by mask tokens."""

    block_size: int  # with the anchor
    mask_token_id: int
    samples_from_anchor: bool = False  # each slot predicts the token after its position, the anchor included
    windows_start_at_anchor: bool = (
        False  # a sliding window reaches back from the anchor for all slots, one more position
    )
    has_non_causal_windows: bool = False  # slots see later slots in layers with a sliding window too


@dataclass(frozen=True)
class BlockSpec(HeadSpec):
    block_config: BlockConfig = BlockConfig(0, 0)


def has_type(checkpoint: HeadCheckpoint, *names: str) -> bool:
    """Whether the config calls it one of these, in small letters."""
    given = " ".join(checkpoint.type_names).lower()
    return any(name in given for name in names)


def check_mask_token(checkpoint: HeadCheckpoint, mask_token_id: int, vocab_size: int) -> None:
    """ModelError when it is no token of the target."""
    if mask_token_id < 0 or (vocab_size and mask_token_id >= vocab_size):
        source = checkpoint.tensors.source
        raise ModelError(f"{source}: the mask token {mask_token_id} is outside the vocabulary of {vocab_size}")
