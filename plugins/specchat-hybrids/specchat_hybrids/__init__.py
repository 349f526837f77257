"""A plugin for networks that transformers computes: drafts for most with recurrent layers, and quantized weights.

    chains.py       the model: a chain of drafts in a pass, checkpoints to go back to
    steps.py        plain decoding of networks that continue a state with one token only
    row_steps.py    recurrences of a few rows, without changing their states until rows are committed
    scan.py         the one of Mamba-2
    snapshots.py    copies of states

    network_weights.py    which weights are quantized, one after the other, while a network is loaded
    quant_weight.py       quantized weights in the code of a network

Every process of specchat imports this file, so it only declares the extensions.
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


@hookimpl
def register_network_quantizers() -> list[Extension]:
    return [
        Extension(
            "network-weights",
            "quantized weights of networks that transformers computes",
            "specchat_hybrids.network_weights:NetworkQuantization",
        )
    ]
