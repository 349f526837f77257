"""MTP layers with the names of MiMo, which vLLM's speculators writes for other families, too.

The order of a pair differs between the two; everything else is as in other MTP layers (`drafters/eagle/mtp_format.py`).
"""

from __future__ import annotations

from specchat.drafters.eagle.mtp_format import LAYER_NAMES, NamingScheme, detect_mtp
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.spec import HeadSpec, Wiring

MIMO_NAMES = LAYER_NAMES | {
    "token_layernorm.": "embedding_norm.", "hidden_layernorm.": "feature_norm.",
    "input_proj.": "join.", "final_layernorm.": "norm.",
}  # fmt: skip

SCHEMES = (
    NamingScheme(
        "MiMo MTP",
        r"(model\.mtp_layers\.0\.)input_proj\.weight",
        MIMO_NAMES,
        Wiring(is_feature_first=True, feeds_back_normed=True),
        "the hidden state is first in a pair",
    ),
    NamingScheme(
        "speculators MTP",
        r"(mtp_layers\.0\.)input_proj\.weight",
        MIMO_NAMES,
        Wiring(feeds_back_normed=True),
        "the embedding is first in a pair, although the names are MiMo's",
    ),
)


def detect_mimo(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    return detect_mtp(checkpoint, schemes=SCHEMES)
