"""What the layers of one network may differ in. Imports no torch, because tables of families compute it."""

from __future__ import annotations

from dataclasses import dataclass

OTHER_NETWORK = -1  # as `kv_source`: a layer of another network, as of the target of an assistant


@dataclass(frozen=True)
class LayerShape:
    kv_heads: int
    head_size: int
    intermediate_size: int
    kv_source: int | None = None  # the earlier layer whose keys and values it reads; None: it computes its own
    has_values: bool = True  # False: its keys are the values too, before their norm and rotation
    normalizes_values: bool = False  # by an RMS norm without a weight
