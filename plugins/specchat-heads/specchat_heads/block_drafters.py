"""DSpark and DFlash-2: the drafter of DFlash, whose chain is read slot by slot where a head corrects its slots.

With DSpark's confidence head the chain ends before a token that the head does not trust.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from specchat.drafters.dflash import DFlashDrafter
from specchat.engine.drafter import Drafter

if TYPE_CHECKING:
    from specchat.drafters.heads.dflash_head import DFlashHead
    from specchat.drafters.registry import DraftingResources


def _build(resources: DraftingResources, kind: str) -> Drafter | None:
    head = resources.heads.get(kind)
    return DFlashDrafter(cast("DFlashHead", head), resources.target) if head is not None else None


build_dflash2, build_dspark = (partial(_build, kind=kind) for kind in ("dflash2", "dspark"))
