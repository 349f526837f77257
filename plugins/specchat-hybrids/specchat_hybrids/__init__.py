"""A plugin for specchat: more networks with recurrent layers that transformers computes, and drafts for most of them.

    chains.py       the model: a chain of drafts in a pass, checkpoints to go back to
    steps.py        plain decoding of networks that continue a state with one token only
    row_steps.py    recurrences of a few rows, without changing their states until rows are committed
    scan.py         the one of Mamba-2
    snapshots.py    copies of states

Every process of specchat imports this file, so it only declares the extension.
"""

from __future__ import annotations

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_decoding_forms() -> list[Extension]:
    return [
        Extension(
            "chains-over-own-cache",
            "chains of drafts for networks with recurrent layers and others over their own cache",
            "specchat_hybrids.chains:OwnCacheChains",
        ),
        Extension(
            "token-by-token",
            "plain decoding of networks that continue a state with one token only",
            "specchat_hybrids.steps:TokenByToken",
        ),
    ]
