"""A plugin for networks that transformers computes: drafts for recurrent ones, quantized weights, GGUF files.

    chains.py       the model: a chain of drafts in a pass, checkpoints to go back to
    steps.py        plain decoding of networks that continue a state with one token only
    row_steps.py    recurrences of a few rows, without changing their states until rows are committed
    scan.py         the one of Mamba-2
    snapshots.py    copies of states

    network_weights.py    which weights are quantized, one after the other, while a network is loaded
    quant_weight.py       quantized weights in the code of a network

    gguf_networks.py      the tensors of GGUF files with a network that transformers computes
    gguf_conversion.py    all weights of a GGUF file → bf16 safetensors

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


@hookimpl
def register_gguf_networks() -> list[Extension]:
    return [
        Extension(
            "gguf-networks",
            "GGUF files of networks that transformers computes, and conversions of all to safetensors",
            "specchat_hybrids.gguf_networks:GgufNetworks",
        )
    ]
